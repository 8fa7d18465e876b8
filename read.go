// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
)

// get reads one record, and waits for the answer. It waits for one request timeout, or
// two if the store ignores it.
func (c *base) get(ctx context.Context, key string, how driver.Consistency) (protocol.Result, error) {
	answer := make(answer, 1)
	c.sendLast(&protocol.Call{Kind: protocol.Look, Key: key, Consistency: how}, answer)
	return c.answered(ctx, answer)
}

// answer takes the result of a read; it has room for the one.
type answer chan protocol.Result

func (a answer) Result(_ *protocol.Call, res protocol.Result) { a <- res }

// readAll reads many records, in few requests where the store can do that. How says how
// fresh the answer for each key must be; nil: strong.
func (c *base) readAll(ctx context.Context, keys []string, how []driver.Consistency) ([]driver.Lookup, error) {
	if how == nil {
		how = make([]driver.Consistency, len(keys))
		for i := range how {
			how[i] = driver.Strong
		}
	}
	if c.store.Batch != nil && len(keys) > 0 {
		return c.readBatches(ctx, keys, how)
	}
	const atOnce = 8
	found := make([]driver.Lookup, len(keys))
	places := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, key := range keys {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			all.Wait()
			return nil, done(ctx)
		}
		all.Go(func() {
			defer func() { <-places }()
			found[i].Record, found[i].Err = c.read(ctx, key, how[i])
		})
	}
	all.Wait()
	return found, nil
}

// read is get for a record that should be there.
func (c *base) read(ctx context.Context, key string, how driver.Consistency) (driver.Record, error) {
	res, err := c.get(ctx, key, how)
	if err == nil && !res.Found {
		err = driver.ErrNotFound
	}
	return res.Record, err
}

// answered waits for the result of a read: until ctx ends, or the client does.
func (c *base) answered(ctx context.Context, answer answer) (protocol.Result, error) {
	select {
	case res := <-answer:
		return res, res.Err
	case <-ctx.Done():
		return protocol.Result{}, done(ctx)
	case <-c.gone:
		return protocol.Result{}, ErrClosed
	}
}

// unreadable is the error of a record that a store could read, but that this client
// does not understand.
func unreadable(rec driver.Record) error {
	return refused("%w: lease %v, state %q, written by %q", ErrUnreadable, rec.Lease, rec.State, rec.Owner)
}

// seeSessions reads sessions, so that it can be told whether the locks under
// them are held. It waits as look does. If it is to be cheap, a session is not read whose
// next heartbeat is not due, and each as freshly as what is known of it asks for.
func (c *base) seeSessions(ctx context.Context, ids []string, cheap bool) error {
	sent := c.clock.Contender()
	how := make([]driver.Consistency, 0, len(ids))
	keys := make([]string, 0, len(ids))
	read := make([]string, 0, len(ids))
	c.seeing.Lock()
	for _, id := range ids {
		fresh := driver.Strong
		if cheap {
			u := c.sessions.Of(id)
			if !u.Due(sent) {
				continue
			}
			fresh = u.How(sent)
		}
		read, keys, how = append(read, id), append(keys, driver.SessionKey(id)), append(how, fresh)
	}
	c.seeing.Unlock()
	if len(keys) == 0 {
		return nil
	}
	found, err := c.readAll(ctx, keys, how)
	if err != nil {
		return err
	}
	c.seeing.Lock()
	defer c.seeing.Unlock()
	now := c.clock.Contender()
	for i, f := range found {
		switch {
		case f.Err == nil:
			c.sessions.Of(read[i]).Saw(sent, now, how[i], f.Record, true)
		case isNotFound(f.Err):
			c.sessions.Of(read[i]).Saw(sent, now, how[i], driver.Record{}, false)
		default:
			return f.Err
		}
	}
	return nil
}

func isNotFound(err error) bool { return errors.Is(err, driver.ErrNotFound) }

// readBatches is readAll where the store can read many records in a request: the strong
// reads in one, the others in another.
func (c *base) readBatches(ctx context.Context, keys []string, how []driver.Consistency) ([]driver.Lookup, error) {
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

func (c *base) readBatch(ctx context.Context, keys []string, how driver.Consistency) ([]driver.Lookup, error) {
	q := &batchRead{store: c.store, keys: keys, how: how, answer: make(answer, 1)}
	c.calls.Send(engine.Last, engine.Call{Request: q})
	if _, err := c.answered(ctx, q.answer); err != nil {
		return nil, err // found may still be written to
	}
	return q.found, nil
}

// batchRead is a read of many records in one request.
type batchRead struct {
	store *engine.CheckedStore
	keys  []string
	how   driver.Consistency
	found []driver.Lookup
	answer
}

// Make implements [engine.Request].
func (q *batchRead) Make(ctx context.Context) (none, also driver.Record, err error) {
	q.found, err = q.store.GetBatch(ctx, q.keys, q.how)
	if err == nil && len(q.found) != len(q.keys) {
		err = fmt.Errorf("the store answered %d of %d reads", len(q.found), len(q.keys))
	}
	return none, also, err
}

// Answer implements [engine.Request].
func (q *batchRead) Answer(rec, former driver.Record, err error) {
	q.answer <- protocol.ResultOf(protocol.Look, rec, former, err)
}
