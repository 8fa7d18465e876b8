// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// SessionSnapshot is what a client knows of a session.
type SessionSnapshot struct {
	Record driver.Record
	Found  bool
	Alive  bool // the session's locks cannot be taken
	// Since is how long it has shown no sign of life; FreeIn is how long its locks stay held
	// at most if none comes. Both are 0 if it is not alive.
	Since, FreeIn time.Duration
}

// Session returns what the client knows of a session.
func (c *Client) Session(id string) SessionSnapshot {
	c.viewMu.Lock()
	defer c.viewMu.Unlock()
	return sessionSnapshotOf(c.sessions.Of(id), c.clock())
}

func sessionSnapshotOf(u *protocol.View, now time.Duration) SessionSnapshot {
	var s SessionSnapshot
	s.Record, s.Found = u.Record()
	if dead, alive := u.DeadAt(); alive {
		s.Alive = !u.Dead()
		s.Since, s.FreeIn = now-u.Since(), max(0, dead-now)
	}
	return s
}

// ListSessions reads a page of session records. seen has a snapshot of each. A session without a
// sign of life for its lease is read strongly.
func (c *Client) ListSessions(ctx context.Context, cursor string) (page driver.Page, seen []SessionSnapshot, err error) {
	sent := c.clock()
	page, err = c.Store.List(ctx, driver.SessionPrefix, cursor)
	if err != nil {
		return driver.Page{}, nil, err
	}
	seen = make([]SessionSnapshot, len(page.Records))
	var dead []string
	var at []int
	c.viewMu.Lock()
	now := c.clock()
	for i, rec := range page.Records {
		id := driver.SessionID(rec.Key)
		u := c.sessions.known[id]
		if u != nil {
			u.Observe(sent, now, driver.Eventual, rec, true)
		}
		proved := u != nil && u.Dead() && !u.Hinted()
		if u == nil || u.Hinted() {
			u = c.liveness.glance(c.timing, c.env, sent, now, rec)
		}
		seen[i] = sessionSnapshotOf(u, now)
		if until, alive := u.DeadAt(); alive && now >= until && !proved {
			seen[i].Alive = true // the list alone does not prove the opposite
			dead, at = append(dead, id), append(at, i)
		}
	}
	c.viewMu.Unlock()
	if err := c.ReadSessions(ctx, dead, false); err != nil {
		return page, seen, nil // the list's own result stays
	}
	for j, i := range at {
		seen[i] = c.Session(dead[j])
	}
	return page, seen, nil
}

// Read reads one record, and waits for the answer. It waits one request timeout, or
// two if the store ignores its context.
func (c *Client) Read(ctx context.Context, key string, how driver.Consistency) (protocol.Result, error) {
	answer := make(answer, 1)
	c.send(0, neverNeeded, &protocol.Call{Kind: protocol.Read, Key: key, Consistency: how}, answer)
	return c.answered(ctx, answer)
}

// answer takes the result of a read; its buffer has room for it.
type answer chan protocol.Result

func (a answer) result(_ *protocol.Call, res protocol.Result) { a <- res }

// ReadAll reads many records, in few requests if the store can do that. how has the
// consistency for each key; nil: strong.
func (c *Client) ReadAll(ctx context.Context, keys []string, how []driver.Consistency) ([]driver.Lookup, error) {
	if how == nil {
		how = make([]driver.Consistency, len(keys))
		for i := range how {
			how[i] = driver.Strong
		}
	}
	if c.Store.Batch != nil && len(keys) > 0 {
		return c.readBatches(ctx, keys, how)
	}
	const reads = 8
	found := make([]driver.Lookup, len(keys))
	AtOnce(reads, keys, func(i int, key string) {
		if found[i].Err = ctx.Err(); found[i].Err == nil {
			found[i].Record, found[i].Err = c.read(ctx, key, how[i])
		}
	})
	if ctx.Err() != nil {
		return nil, Done(ctx)
	}
	return found, nil
}

// read is Read for a record that should be there.
func (c *Client) read(ctx context.Context, key string, how driver.Consistency) (driver.Record, error) {
	res, err := c.Read(ctx, key, how)
	if err == nil && !res.Found {
		err = driver.ErrNotFound
	}
	return res.Record, err
}

// answered waits for the result of a read until ctx or the client ends.
func (c *Client) answered(ctx context.Context, answer answer) (protocol.Result, error) {
	select {
	case res := <-answer:
		return res, res.Err
	case <-ctx.Done():
		return protocol.Result{}, Done(ctx)
	case <-c.gone:
		return protocol.Result{}, ErrClosed
	}
}

// ReadSessions reads sessions, to find out whether the locks under them are held. If cheap
// is set, each is read with the consistency that its view needs, and read again if an eventual
// read was not enough.
func (c *Client) ReadSessions(ctx context.Context, ids []string, cheap bool) error {
	if len(ids) == 0 {
		return nil
	}
	sent := c.clock()
	how, keys := make([]driver.Consistency, len(ids)), make([]string, len(ids))
	c.viewMu.Lock()
	for i, id := range ids {
		u := c.sessions.Of(id)
		if how[i] = driver.Strong; cheap {
			how[i] = u.PollConsistency(sent)
		}
		u.Polls(sent, how[i])
		keys[i] = driver.SessionKey(id)
	}
	c.viewMu.Unlock()
	found, err := c.ReadAll(ctx, keys, how)
	again, err := c.sawSessions(sent, ids, how, found, err)
	if err == nil && len(again) > 0 {
		err = c.ReadSessions(ctx, again, false)
	}
	return err
}

// sawSessions notes the answers to such reads, or their absence. It returns the sessions for which
// an eventual read has shown something new.
func (c *Client) sawSessions(
	sent time.Duration, ids []string, how []driver.Consistency, found []driver.Lookup, all error,
) (again []string, err error) {
	c.viewMu.Lock()
	defer c.viewMu.Unlock()
	now := c.clock()
	for i, id := range ids {
		u := c.sessions.Of(id)
		switch {
		case all != nil:
			u.Unanswered()
			continue
		case found[i].Err == nil:
			u.Observe(sent, now, how[i], found[i].Record, true)
		case errors.Is(found[i].Err, driver.ErrNotFound):
			u.Observe(sent, now, how[i], driver.Record{}, false)
		default:
			u.Unanswered()
			err = found[i].Err
			continue
		}
		if how[i] != driver.Strong && u.Hinted() {
			again = append(again, id)
		}
	}
	return again, cmp.Or(all, err)
}

// readBatches is ReadAll for a store that can read many records in a request: the
// strong reads in one request, the others in another.
func (c *Client) readBatches(ctx context.Context, keys []string, how []driver.Consistency) ([]driver.Lookup, error) {
	found := make([]driver.Lookup, len(keys))
	for _, fresh := range []driver.Consistency{driver.Strong, driver.Eventual} {
		var some []string
		var at []int
		for i, key := range keys {
			if how[i] == fresh {
				some, at = append(some, key), append(at, i)
			}
		}
		if len(some) == 0 {
			continue
		}
		list, err := c.readBatch(ctx, some, fresh)
		if err != nil {
			return nil, err
		}
		for j, f := range list {
			found[at[j]] = f
		}
	}
	return found, nil
}

func (c *Client) readBatch(ctx context.Context, keys []string, how driver.Consistency) ([]driver.Lookup, error) {
	q := &batchRead{store: c.Store, keys: keys, how: how, answer: make(answer, 1)}
	c.calls.Send(neverNeeded, storeCall{request: q})
	if _, err := c.answered(ctx, q.answer); err != nil {
		return nil, err // found may still be written to
	}
	return q.found, nil
}

// batchRead is a read of many records in one request.
type batchRead struct {
	store *CheckedStore
	keys  []string
	how   driver.Consistency
	found []driver.Lookup
	answer
}

// Make implements [request].
func (q *batchRead) Make(ctx context.Context) (none, also driver.Record, err error) {
	q.found, err = q.store.GetBatch(ctx, q.keys, q.how)
	if err == nil && len(q.found) != len(q.keys) {
		err = fmt.Errorf("the store answered %d of %d reads", len(q.found), len(q.keys))
	}
	return none, also, err
}

// Answer implements [request].
func (q *batchRead) Answer(rec, former driver.Record, err error) {
	q.answer <- protocol.ResultOf(protocol.Read, rec, former, err)
}

// AtOnce calls do for all items, at most n at once, and waits for the calls.
func AtOnce[T any](n int, items []T, do func(i int, item T)) {
	var all sync.WaitGroup
	places := make(chan struct{}, n)
	for i, item := range items {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			do(i, item)
		})
	}
	all.Wait()
}
