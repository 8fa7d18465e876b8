// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// Statuses reads the records of many locks, in few requests where the store can
// do that, and the sessions under which they are held, each once. The answers are
// in the order of the names: what [Client.Status] returns for each. What was seen
// is remembered, for [Client.TryAcquire] say.
func (c *Client) Statuses(ctx context.Context, names []string) ([]Status, []error) {
	return c.statuses(ctx, names, false)
}

// EventualStatuses is [Client.Statuses] for programs that look again and again: by reads
// that may be behind, and cost half as much on DynamoDB. A session is not read before its
// next heartbeat is due. So the answers may be behind by as long as such a read is, and the
// end of a session by a heartbeat period. They are never older than what this client has
// seen before. An acquire of this client that acts on
// what they show reads anew, or writes on conditions that say whether it is still so.
func (c *Client) EventualStatuses(ctx context.Context, names []string) ([]Status, []error) {
	return c.statuses(ctx, names, true)
}

func (c *Client) statuses(ctx context.Context, names []string, cheap bool) ([]Status, []error) {
	list, errs := make([]Status, len(names)), make([]error, len(names))
	var keys []string
	var at []int
	for i, name := range names {
		list[i].Name = name
		if err := checkKey(name); err != nil {
			errs[i] = wrap("status", name, err)
			continue
		}
		keys, at = append(keys, name), append(at, i)
	}
	sent := c.clock.Contender()
	how, err := c.freshness(keys, cheap)
	var found []driver.Lookup
	if err == nil {
		found, err = c.readAll(ctx, keys, how)
	}
	if err == nil && c.isClosed() {
		err = ErrClosed
	}
	fail := func(err error) ([]Status, []error) {
		for _, i := range at {
			if errs[i] == nil {
				errs[i] = wrap("status", names[i], err)
			}
		}
		return list, errs
	}
	if err != nil {
		return fail(err)
	}
	recs := make([]driver.Record, len(found))
	for j, f := range found {
		switch i := at[j]; {
		case isNotFound(f.Err):
			recs[j] = driver.Record{Key: keys[j]}
		case f.Err != nil:
			errs[i] = wrap("status", names[i], f.Err)
		case !protocol.Readable(f.Record):
			errs[i] = wrap("status", names[i], unreadable(f.Record))
		default:
			recs[j] = f.Record
		}
	}
	seen, err := c.sawAll(ctx, sent, how, recs, cheap)
	if err != nil {
		return fail(err)
	}
	for j, s := range seen {
		if i := at[j]; errs[i] == nil {
			list[i] = s.status(names[i])
		}
	}
	return list, errs
}

// freshness returns how fresh the reads of locks must be: strong, unless they are to be
// cheap and what is known of the lock allows for it.
func (c *Client) freshness(keys []string, cheap bool) ([]driver.Consistency, error) {
	how := make([]driver.Consistency, len(keys))
	now := c.clock.Contender()
	for i, key := range keys {
		if how[i] = driver.Strong; !cheap {
			continue
		}
		k, err := c.tracker(key)
		if err != nil {
			return nil, err
		}
		how[i] = k.how(now)
		k.leave()
	}
	return how, nil
}

// sawAll notes what a read of many records has shown, and reads the sessions of
// those that are held under one, cheaply if told so. A record with a key and no state is one that is
// not there; a record that nobody understands is left out.
func (c *Client) sawAll(ctx context.Context, sent time.Duration, how []driver.Consistency, recs []driver.Record, cheap bool) ([]sighting, error) {
	trackers := make([]*tracker, len(recs))
	defer func() {
		for _, k := range trackers {
			if k != nil {
				k.leave()
			}
		}
	}()
	open := map[string]struct{}{}
	for i, rec := range recs {
		if rec.State != "" && !protocol.Readable(rec) || rec.Key == "" {
			continue
		}
		k, err := c.tracker(rec.Key)
		if err != nil {
			return nil, err
		}
		trackers[i] = k
		k.saw(sent, how[i], rec, rec.State != "")
		if id, ok := k.openSession(); ok {
			open[id] = struct{}{}
		}
	}
	if err := c.seeSessions(ctx, slices.Sorted(maps.Keys(open)), cheap); err != nil {
		return nil, err
	}
	seen := make([]sighting, len(recs))
	for i, k := range trackers {
		if k != nil {
			seen[i] = k.seen()
		}
	}
	return seen, nil
}

// Locks reads the records of all locks whose names begin with prefix, in the order
// of their names. It may be slow. A record that cannot be read comes as an error,
// and the others follow.
func (c *Client) Locks(ctx context.Context, prefix string) iter.Seq2[Status, error] {
	return c.LocksAfter(ctx, prefix, "")
}

// LocksAfter is [Client.Locks] without the locks up to the name after, which need not
// be that of a lock: a program that has read a part of the list goes on where that
// ended. On most engines it costs no more than what is read; on those that list the
// names of all records for each page (DynamoDB, Kubernetes, ZooKeeper, buckets) it costs
// that as well.
func (c *Client) LocksAfter(ctx context.Context, prefix, after string) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		if c.isClosed() {
			yield(Status{}, wrap("list", prefix, ErrClosed))
			return
		}
		if err := checkAfter(after); err != nil {
			yield(Status{}, wrap("list", prefix, err))
			return
		}
		cursor := after
		for {
			sent := c.clock.Contender()
			page, err := c.store.List(ctx, prefix, cursor)
			if err != nil {
				yield(Status{}, wrap("list", prefix, err))
				return
			}
			// All of the page is noted before the caller takes its time with it.
			page.Records = slices.DeleteFunc(page.Records, func(r driver.Record) bool { return strings.HasPrefix(r.Key, driver.OwnPrefix) })
			maps.DeleteFunc(page.Unreadable, func(key string, _ error) bool { return strings.HasPrefix(key, driver.OwnPrefix) })
			seen, err := c.sawAll(ctx, sent, slices.Repeat([]driver.Consistency{driver.Eventual}, len(page.Records)), page.Records, false)
			if err != nil {
				yield(Status{}, wrap("list", prefix, err))
				return
			}
			for key, i := range inOrder(page) {
				st, err := Status{Name: key}, error(nil)
				switch {
				case i < 0:
					err = wrap("list", key, page.Unreadable[key])
				case !protocol.Readable(page.Records[i]):
					err = wrap("list", key, unreadable(page.Records[i]))
				default:
					st = seen[i].status(key)
				}
				if !yield(st, err) {
					return
				}
			}
			if cursor = page.Cursor; cursor == "" {
				return
			}
		}
	}
}

// checkAfter returns an error if no name can come before or after it on some store.
func checkAfter(name string) error {
	if strings.ContainsRune(name, 0) {
		return invalid("name to list after %.200q has U+0000, which no name has", name)
	}
	return checkForm("name to list after", name, len(name))
}

// inOrder returns the keys of a page in their order, each with the place of its record,
// or -1 if it is unreadable.
func inOrder(page driver.Page) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		bad := slices.Sorted(maps.Keys(page.Unreadable))
		for i, rec := range page.Records {
			for len(bad) > 0 && bad[0] < rec.Key {
				if !yield(bad[0], -1) {
					return
				}
				bad = bad[1:]
			}
			if !yield(rec.Key, i) {
				return
			}
		}
		for _, key := range bad {
			if !yield(key, -1) {
				return
			}
		}
	}
}
