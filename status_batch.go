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
	return c.statuses(ctx, names, fresh)
}

// EventualStatuses is [Client.Statuses] for programs that look again and again: by reads
// that may be behind, and cost half as much on DynamoDB. A session is not read before its
// next heartbeat is due. So the answers may be behind by as long as such a read is, and the
// end of a session by a heartbeat period. They are never older than what this client has
// seen before. An acquire of this client that acts on
// what they show reads anew, or writes on conditions that say whether it is still so.
func (c *Client) EventualStatuses(ctx context.Context, names []string) ([]Status, []error) {
	return c.statuses(ctx, names, cheap)
}

// EventualLockStatuses is [Client.EventualStatuses] of the locks' own records: the sessions
// under which they are held are not read. It is for programs that know the sessions, or that
// look at a lock seldom. Held, Unchanged and FreeIn of a lock under a session say what
// this client had seen of that session before: until it has seen it, Held is true and
// FreeIn is 0. The first read of a lock may be behind, too; that there is no lock is said
// after a strong read alone.
func (c *Client) EventualLockStatuses(ctx context.Context, names []string) ([]Status, []error) {
	return c.statuses(ctx, names, alone)
}

// reading says how the locks of a list are read.
type reading int

const (
	fresh reading = iota // strongly
	cheap                // by reads that may be behind, where these do
	alone                // so, and without their sessions
)

func (c *Client) statuses(ctx context.Context, names []string, as reading) ([]Status, []error) {
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
	how, err := c.freshness(keys, as)
	var found []driver.Lookup
	if err == nil {
		found, err = c.readAll(ctx, keys, how)
	}
	if err == nil && as == alone {
		err = c.readAbsent(ctx, keys, how, found)
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
	seen, err := c.sawAll(ctx, sent, how, recs, as)
	if err != nil {
		return fail(err)
	}
	var dead []int
	for j, s := range seen {
		i := at[j]
		if errs[i] != nil {
			continue
		}
		if list[i] = s.status(names[i]); as != fresh && how[j] == driver.Eventual && s.found && s.seemsDead() {
			dead = append(dead, i)
		}
	}
	if len(dead) > 0 {
		c.certain(ctx, dead, names, list, errs)
	}
	return list, errs
}

// certain reads again, strongly, those locks that seem to be held by the dead: by cheap reads
// alone that cannot be told.
func (c *Client) certain(ctx context.Context, dead []int, names []string, list []Status, errs []error) {
	again := make([]string, len(dead))
	for j, i := range dead {
		again[j] = names[i]
	}
	some, bad := c.statuses(ctx, again, fresh)
	for j, i := range dead {
		list[i], errs[i] = some[j], bad[j]
	}
}

// freshness returns how fresh the reads of locks must be: strong, unless they are to be
// cheap and what is known of the lock allows for it.
func (c *Client) freshness(keys []string, as reading) ([]driver.Consistency, error) {
	how := make([]driver.Consistency, len(keys))
	now := c.clock.Contender()
	for i, key := range keys {
		if how[i] = driver.Strong; as == fresh {
			continue
		}
		k, err := c.tracker(key)
		if err != nil {
			return nil, err
		}
		how[i] = k.how(now, as == alone)
		k.leave()
	}
	return how, nil
}

// readAbsent reads again, strongly, what the first read of a lock has not found, which was
// cheap: the record may be new.
func (c *Client) readAbsent(ctx context.Context, keys []string, how []driver.Consistency, found []driver.Lookup) error {
	var again []string
	var at []int
	for i, f := range found {
		if how[i] == driver.Strong || !isNotFound(f.Err) {
			continue
		}
		k, err := c.tracker(keys[i])
		if err != nil {
			return err
		}
		if !k.known() {
			again, at = append(again, keys[i]), append(at, i)
		}
		k.leave()
	}
	if len(again) == 0 {
		return nil
	}
	list, err := c.readAll(ctx, again, nil)
	if err != nil {
		return err
	}
	for j, f := range list {
		found[at[j]], how[at[j]] = f, driver.Strong
	}
	return nil
}

// sawAll notes what a read of many records has shown, and reads the sessions of
// those that are held under one, as told. A record with a key and no state is one that is
// not there; a record that nobody understands is left out.
func (c *Client) sawAll(ctx context.Context, sent time.Duration, how []driver.Consistency, recs []driver.Record, as reading) ([]sighting, error) {
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
		if id, ok := k.openSession(); ok && as != alone {
			open[id] = struct{}{}
		}
	}
	if err := c.seeSessions(ctx, slices.Sorted(maps.Keys(open)), as == cheap); err != nil {
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
			seen, err := c.sawAll(ctx, sent, slices.Repeat([]driver.Consistency{driver.Eventual}, len(page.Records)), page.Records, fresh)
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
