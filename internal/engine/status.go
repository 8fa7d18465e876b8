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

// Snapshot is what a client knows of a record.
type Snapshot struct {
	Record driver.Record
	Found  bool
	Alive  bool          // the record shows a holder that may be alive
	Since  time.Duration // how long it has shown the same sign of life
	FreeIn time.Duration // how long it stays held at most without another sign of life

	known  bool          // the record has been read
	looked time.Duration // on the contender's clock: when the latest reply came
	closed bool          // it shows a holder whose session was closed by its own process
}

// Status reads the record of a lock, and the session under which it is held, and notes
// both in the views. It waits as [Client.Read] does.
func (c *Client) Status(ctx context.Context, key string) (Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return Snapshot{}, err
	}
	k, err := c.tracker(key)
	if err != nil {
		return Snapshot{}, err
	}
	defer k.leave()
	sent := c.clock()
	k.polls(sent, false)
	res, err := c.Read(ctx, key, driver.Strong)
	if err == nil && res.Found && !protocol.Readable(res.Record) {
		err = Unreadable(res.Record)
	}
	if err != nil {
		k.missed()
		return Snapshot{}, err
	}
	k.observed(sent, driver.Strong, res.Record, res.Found)
	if id, open := k.openSession(); open {
		if err := c.ReadSessions(ctx, []string{id}, false); err != nil {
			return Snapshot{}, err
		}
	}
	s, _ := k.seen()
	return s, nil
}

// StatusOptions are the options of [Client.Statuses], as in the API.
type StatusOptions struct{ Eventual, WithoutSessions bool }

// Statuses reads the records of many locks, and the sessions under which they are held, each
// once. The answers are in the order of the keys. If an eventual read has shown another version than
// the known one, the record is read again.
func (c *Client) Statuses(ctx context.Context, keys []string, o StatusOptions) ([]Snapshot, []error) {
	errs := make([]error, len(keys))
	seen, hinted, err := c.statuses(ctx, keys, o, errs)
	if err != nil {
		for i := range errs {
			if errs[i] == nil {
				errs[i] = err
			}
		}
		return make([]Snapshot, len(keys)), errs
	}
	if o.Eventual && len(hinted) > 0 {
		again := make([]string, len(hinted))
		for j, i := range hinted {
			again[j] = keys[i]
		}
		o.Eventual = false
		strong, bad := c.Statuses(ctx, again, o)
		for j, i := range hinted {
			seen[i], errs[i] = strong[j], bad[j]
		}
	}
	return seen, errs
}

// statuses is Statuses without the second read. It sets the errors of single keys, and returns
// an error that concerns all, and the indexes of keys that need a strong read.
func (c *Client) statuses(
	ctx context.Context, keys []string, o StatusOptions, errs []error,
) (seen []Snapshot, hinted []int, err error) {
	trackers := make([]*tracker, 0, len(keys))
	defer func() {
		for _, k := range trackers {
			k.leave()
		}
	}()
	sent := c.clock()
	how := make([]driver.Consistency, len(keys))
	for i, key := range keys {
		k, err := c.tracker(key)
		if err != nil {
			return nil, nil, err
		}
		trackers = append(trackers, k)
		how[i] = k.polls(sent, o.Eventual)
	}
	found, err := c.ReadAll(ctx, keys, how)
	if err == nil && c.Closed() {
		err = ErrClosed
	}
	if err != nil {
		for _, k := range trackers {
			k.missed()
		}
		return nil, nil, err
	}
	open := map[string]struct{}{}
	for i, f := range found {
		k := trackers[i]
		absent := errors.Is(f.Err, driver.ErrNotFound)
		switch {
		case !absent && f.Err != nil:
			errs[i] = f.Err
		case !absent && !protocol.Readable(f.Record):
			errs[i] = Unreadable(f.Record)
		default:
			k.observed(sent, how[i], f.Record, !absent)
		}
		if errs[i] != nil {
			k.missed()
		} else if id, ok := k.openSession(); ok && !o.WithoutSessions {
			open[id] = struct{}{}
		}
	}
	if err := c.ReadSessions(ctx, slices.Sorted(maps.Keys(open)), o.Eventual); err != nil {
		return nil, nil, err
	}
	seen = make([]Snapshot, len(keys))
	for i, k := range trackers {
		if errs[i] == nil {
			var due bool
			if seen[i], due = k.seen(); due {
				hinted = append(hinted, i)
			}
		}
	}
	return seen, hinted, nil
}

// List reads a page of lock records, and the sessions under which the locks are held. seen
// has a snapshot of each; the page has the records that could not be read.
func (c *Client) List(ctx context.Context, prefix, cursor string) (page driver.Page, seen []Snapshot, err error) {
	sent := c.clock()
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
	seen, err = c.listed(ctx, sent, page.Records)
	return page, seen, err
}

// listed returns snapshots of listed locks. A list is an eventual read: it does not change the
// views, and its snapshots say how long this client has been shown the same sign of life. A lock
// without a sign of life for its lease is read strongly, and so are the sessions of locks.
func (c *Client) listed(ctx context.Context, sent time.Duration, recs []driver.Record) ([]Snapshot, error) {
	views := make([]*protocol.View, len(recs))
	trackers := make([]*tracker, len(recs))
	open := map[string]struct{}{}
	for i, rec := range recs {
		if views[i], trackers[i] = c.glance(sent, rec); rec.Session != "" && rec.State == driver.Held {
			open[rec.Session] = struct{}{}
		}
	}
	if err := c.ReadSessions(ctx, slices.Sorted(maps.Keys(open)), false); err != nil {
		return nil, err
	}
	var dead []string
	var at []int
	seen := make([]Snapshot, len(recs))
	c.viewMu.Lock()
	now := c.clock()
	for i, view := range views {
		seen[i] = snapshotOf(view, now)
		k := trackers[i]
		if k != nil {
			k.notify()
		}
		proved := k != nil && view == k.view && view.Dead()
		if until, holds := view.DeadAt(); holds && now >= until && !view.UnderSession() && !proved {
			seen[i].Alive = recs[i].State == driver.Held // the list alone does not prove the contrary
			dead, at = append(dead, recs[i].Key), append(at, i)
		}
	}
	c.viewMu.Unlock()
	if len(dead) == 0 {
		return seen, nil
	}
	strong, bad := c.Statuses(ctx, dead, StatusOptions{})
	for j, i := range at {
		if bad[j] == nil { // otherwise the list's own result stays
			seen[i] = strong[j]
		}
	}
	return seen, nil
}

// glance returns the known view of a listed lock if it shows the listed record, or else a view of
// that record alone; and the tracker of the lock, if there is one.
func (c *Client) glance(sent time.Duration, rec driver.Record) (*protocol.View, *tracker) {
	c.mu.Lock()
	k := c.trackers[rec.Key]
	c.mu.Unlock()
	c.viewMu.Lock()
	defer c.viewMu.Unlock()
	now := c.clock()
	if k != nil {
		k.view.Observe(sent, now, driver.Eventual, rec, true)
		if known, found := k.view.Record(); found && known.Version == rec.Version && known.Token == rec.Token {
			return k.view, k
		}
	}
	return c.liveness.glance(c.timing, c.env, sent, now, rec), k
}
