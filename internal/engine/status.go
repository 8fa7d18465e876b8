// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// Snapshot is what a client has seen of a record.
type Snapshot struct {
	Record driver.Record
	Found  bool
	Alive  bool          // it shows a holder that may be alive
	Since  time.Duration // for so long it has shown the same sign of life
	FreeIn time.Duration // after so long at the latest it can be taken if none comes

	known  bool          // a reply has come
	looked time.Duration // on the contender's clock: when the latest one came
	closed bool          // it shows a holder whose session has been closed by itself
	sure   bool          // a strong reply that came when the lease was over has shown its sign of life
}

// seemsDead says that it shows a holder with a lease of its own, which seems to be over, and
// that no strong read has told so.
func (s Snapshot) seemsDead() bool {
	return s.Record.State == driver.Held && s.Record.Session == "" && !s.Alive && !s.sure
}

// Status reads the record of a lock, and the session under which it is held, and remembers
// what it saw. It waits as [Client.Read] does.
func (c *Client) Status(ctx context.Context, key string) (Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return Snapshot{}, err
	}
	k, err := c.tracker(key)
	if err != nil {
		return Snapshot{}, err
	}
	defer k.leave()
	sent := c.contender()
	res, err := c.Read(ctx, key, driver.Strong)
	if err != nil {
		return Snapshot{}, err
	}
	if res.Found && !protocol.Readable(res.Record) {
		return Snapshot{}, Unreadable(res.Record)
	}
	s := k.saw(sent, driver.Strong, res.Record, res.Found)
	if id, open := k.openSession(); open {
		if err := c.ReadSessions(ctx, []string{id}, false); err != nil {
			return Snapshot{}, err
		}
		s = k.seen()
	}
	return s, nil
}

// StatusOptions are for [Client.Statuses], as those of the API.
type StatusOptions struct{ Eventual, WithoutSessions bool }

// Statuses reads the records of many locks, and the sessions under which they are held, each
// once. The answers are in the order of the keys.
func (c *Client) Statuses(ctx context.Context, keys []string, o StatusOptions) ([]Snapshot, []error) {
	errs := make([]error, len(keys))
	seen, how, err := c.statuses(ctx, keys, o, errs)
	if err != nil {
		for i := range errs {
			if errs[i] == nil {
				errs[i] = err
			}
		}
		return make([]Snapshot, len(keys)), errs
	}
	// By cheap reads alone it cannot be told that a holder is dead: those are read again.
	var dead []string
	var at []int
	for i, s := range seen {
		if errs[i] == nil && o.Eventual && how[i] == driver.Eventual && s.Found && s.seemsDead() {
			dead, at = append(dead, keys[i]), append(at, i)
		}
	}
	if len(dead) > 0 {
		again, bad := c.Statuses(ctx, dead, StatusOptions{})
		for j, i := range at {
			seen[i], errs[i] = again[j], bad[j]
		}
	}
	return seen, errs
}

// statuses is Statuses without the last look at those that seem dead. It sets the errors of
// single keys, and returns one that concerns all, and how fresh each read was.
func (c *Client) statuses(
	ctx context.Context, keys []string, o StatusOptions, errs []error,
) (seen []Snapshot, how []driver.Consistency, err error) {
	sent := c.contender()
	how, err = c.freshness(keys, o)
	var found []driver.Lookup
	if err == nil {
		found, err = c.ReadAll(ctx, keys, how)
	}
	if err == nil && o.Eventual {
		err = c.readAbsent(ctx, keys, how, found)
	}
	if err == nil && c.Closed() {
		err = ErrClosed
	}
	if err != nil {
		return nil, nil, err
	}
	recs := make([]driver.Record, len(found))
	for i, f := range found {
		switch {
		case errors.Is(f.Err, driver.ErrNotFound):
			recs[i] = driver.Record{Key: keys[i]}
		case f.Err != nil:
			errs[i] = f.Err
		case !protocol.Readable(f.Record):
			errs[i] = Unreadable(f.Record)
		default:
			recs[i] = f.Record
		}
	}
	seen, err = c.sawAll(ctx, sent, how, recs, o)
	return seen, how, err
}

// freshness returns how fresh the reads of locks must be: strong, unless they are to be
// cheap and what is known of the lock allows for it.
func (c *Client) freshness(keys []string, o StatusOptions) ([]driver.Consistency, error) {
	how := make([]driver.Consistency, len(keys))
	now := c.contender()
	for i, key := range keys {
		if how[i] = driver.Strong; !o.Eventual {
			continue
		}
		k, err := c.tracker(key)
		if err != nil {
			return nil, err
		}
		how[i] = k.how(now, o.WithoutSessions)
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
		if how[i] == driver.Strong || !errors.Is(f.Err, driver.ErrNotFound) {
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
	list, err := c.ReadAll(ctx, again, nil)
	if err != nil {
		return err
	}
	for j, f := range list {
		found[at[j]], how[at[j]] = f, driver.Strong
	}
	return nil
}

// sawAll notes what a read of many records has shown, and reads the sessions of
// those that are held under one. A record with a key and no state is one that is
// not there; one without a key is left out.
func (c *Client) sawAll(
	ctx context.Context, sent time.Duration, how []driver.Consistency, recs []driver.Record, o StatusOptions,
) ([]Snapshot, error) {
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
		if rec.Key == "" {
			continue
		}
		k, err := c.tracker(rec.Key)
		if err != nil {
			return nil, err
		}
		trackers[i] = k
		k.saw(sent, how[i], rec, rec.State != "")
		if id, ok := k.openSession(); ok && !o.WithoutSessions {
			open[id] = struct{}{}
		}
	}
	if err := c.ReadSessions(ctx, slices.Sorted(maps.Keys(open)), o.Eventual); err != nil {
		return nil, err
	}
	seen := make([]Snapshot, len(recs))
	for i, k := range trackers {
		if k != nil {
			seen[i] = k.seen()
		}
	}
	return seen, nil
}

// List reads a page of the records of locks, and the sessions under which they are held. What
// it shows of each stands in seen, and what could not be understood in the page.
func (c *Client) List(ctx context.Context, prefix, cursor string) (page driver.Page, seen []Snapshot, err error) {
	sent := c.contender()
	page, err = c.Store.List(ctx, prefix, cursor)
	if err != nil {
		return driver.Page{}, nil, err
	}
	bad := map[string]error{}
	for key, err := range page.Unreadable {
		if !strings.HasPrefix(key, driver.OwnPrefix) {
			bad[key] = err
		}
	}
	page.Records = slices.DeleteFunc(page.Records, func(r driver.Record) bool {
		own := strings.HasPrefix(r.Key, driver.OwnPrefix)
		if !own && !protocol.Readable(r) {
			bad[r.Key] = Unreadable(r)
		}
		return own || bad[r.Key] != nil
	})
	page.Unreadable = bad
	how := slices.Repeat([]driver.Consistency{driver.Eventual}, len(page.Records))
	seen, err = c.sawAll(ctx, sent, how, page.Records, StatusOptions{})
	return page, seen, err
}
