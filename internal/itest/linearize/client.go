// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package linearize

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

// run has the clients work on keys until each has made its calls, waits for
// what is still on its way, and looks at each key once more.
func run(ctx context.Context, t *testing.T, open func(t *testing.T) driver.Store, o Options, round int, keys keys, h *history) {
	t.Helper()
	var wg sync.WaitGroup
	clients := make([]*client, o.Clients)
	for i := range clients {
		c := newClient(i, open(t), o.Seed, uint64(round*o.Clients+i), h)
		defer closeStore(t, c.store)
		clients[i] = c
	}
	for _, c := range clients {
		wg.Go(func() {
			for range o.Ops {
				c.turn(ctx, keys)
			}
		})
	}
	wg.Wait()
	for _, c := range clients {
		c.store.Wait()
	}
	last := clients[0]
	last.fault = faultstore.Fault{}
	if !h.foreign {
		h.mark(settled, keys.all())
	}
	for _, key := range keys.all() {
		last.get(ctx, key)
	}
	h.mark(over, keys.all())
}

func closeStore(t *testing.T, s *faultstore.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// client makes one call at a time, from what it saw last or earlier.
type client struct {
	id     int
	name   string
	store  *faultstore.Store
	random *rand.Rand
	h      *history
	serial int
	seen   map[string][]driver.Record
	fault  faultstore.Fault // of the next call
}

func newClient(id int, store driver.Store, seed, stream uint64, h *history) *client {
	c := &client{
		id: id, name: fmt.Sprintf("c%d", id), store: faultstore.New(store, nil),
		random: rand.New(rand.NewPCG(seed, stream)), h: h, seen: map[string][]driver.Record{},
	}
	c.store.Inject(faultstore.Rule{Decide: func(faultstore.Call) faultstore.Fault { return c.fault }})
	return c
}

// turn makes one call: on a lock as a rule, and now and then on a session, or on
// a record of history, which several clients may try to write.
func (c *client) turn(ctx context.Context, keys keys) {
	switch c.random.IntN(10) {
	case 0:
	case 1, 2:
		c.sessionStep(ctx, keys.sessions[c.random.IntN(len(keys.sessions))])
		return
	default:
		c.step(ctx, keys.locks[c.random.IntN(len(keys.locks))])
		return
	}
	c.fault = c.drawFault()
	key := keys.past[c.random.IntN(len(keys.past))]
	if c.random.IntN(4) == 0 {
		c.get(ctx, key)
	} else {
		c.claim(ctx, key, driver.Past)
	}
}

// step makes one call on key.
func (c *client) step(ctx context.Context, key string) {
	c.fault = c.drawFault()
	seen := c.seen[key]
	if len(seen) == 0 || c.random.IntN(8) == 0 {
		if len(seen) == 0 && c.random.IntN(2) == 0 {
			c.claim(ctx, key, driver.Held)
		} else {
			c.get(ctx, key)
		}
		return
	}
	rec := seen[len(seen)-1]
	if c.random.IntN(6) == 0 {
		rec = seen[c.random.IntN(len(seen))]
	}
	if rec.State == driver.Released && c.random.IntN(4) > 0 || rec.State == driver.Reserved && c.random.IntN(4) == 0 {
		c.claim(ctx, key, driver.Held)
		return
	}
	c.swap(ctx, rec, c.next(rec))
}

// sessionStep makes one call on a session, which any client may open, renew, ask,
// close and delete. A step out of Closed is none that a store is asked for.
func (c *client) sessionStep(ctx context.Context, key string) {
	c.fault = c.drawFault()
	seen := c.seen[key]
	var rec driver.Record
	if len(seen) > 0 {
		if rec = seen[len(seen)-1]; c.random.IntN(6) == 0 {
			rec = seen[c.random.IntN(len(seen))]
		}
	}
	n := c.random.IntN(12)
	switch next := rec.Clone(); {
	case n < 2:
		c.get(ctx, key)
	case n < 4 || rec.State == "":
		c.claim(ctx, key, driver.Alive)
	case rec.State == driver.Closed && n < 8:
		c.remove(ctx, rec)
	case rec.State == driver.Closed:
		c.claim(ctx, key, []driver.State{driver.Alive, driver.Held}[c.random.IntN(2)])
	case n < 7:
		next.Version = c.fresh()
		next.Beat = next.Version
		c.swap(ctx, rec, next)
	case n < 9 && len(rec.Requests) < driver.MaxRequests:
		next.Version = c.fresh()
		next.Requests = append(next.Requests, driver.Request{
			ID: next.Version, Kind: driver.Confirm, By: c.name, Lock: key, Token: uint64(n),
		})
		c.swap(ctx, rec, next)
	default:
		next.Version, next.State, next.Requests = c.fresh(), driver.Closed, nil
		c.swap(ctx, rec, next)
	}
}

// next returns a record to follow rec.
func (c *client) next(rec driver.Record) driver.Record {
	next := rec.Clone()
	next.Version = c.fresh()
	switch n := c.random.IntN(12); {
	case n < 3:
		next.Beat = next.Version
	case n < 4:
		next.Data = []byte(next.Version)
	case n < 6 && rec.State == driver.Held: // the beat stays
		next.Requests = []driver.Request{{ID: next.Version, Kind: driver.StepDown, By: c.name}}
	case n < 7:
		next.Beat, next.State, next.Prev = next.Version, driver.Reserved, rec.Tenure(driver.EndHandedOver)
		next.Owner, next.Requests, next.End, next.Asked, next.Session = c.name, nil, "", nil, ""
	case n < 10:
		next.State, next.End, next.Requests, next.Session = driver.Released, driver.EndReleased, nil, ""
		if len(rec.Requests) > 0 {
			next.End, next.Asked = driver.EndSteppedDown, &rec.Requests[0]
		}
	default: // a takeover, or the taking of what is reserved
		next.Owner, next.Token, next.State, next.Beat = c.name, rec.Token+1, driver.Held, next.Version
		next.End, next.Prev, next.Requests, next.Asked = "", rec.Tenure(driver.EndExpired), nil, nil
		next.Session = c.session()
	}
	return next
}

// session returns the session of a new holder, which is often none.
func (c *client) session() string {
	if c.random.IntN(3) > 0 {
		return ""
	}
	return c.fresh()
}

func (c *client) fresh() string {
	c.serial++
	return fmt.Sprintf("%s-%d", c.name, c.serial)
}

// drawFault returns what happens to the next call. Every call is a little slow,
// so that calls overlap.
func (c *client) drawFault() faultstore.Fault {
	short := func() time.Duration { return time.Duration(c.random.IntN(200)) * time.Microsecond }
	long := func() time.Duration { return time.Duration(c.random.IntN(3000)) * time.Microsecond }
	f := faultstore.Slow(short(), short())
	switch n := c.random.IntN(100); {
	case n < 8:
		f.Effect = faultstore.ReplyLost
	case n < 11:
		f.Effect = faultstore.RequestLost
	case n < 16:
		f.Effect, f.Again = faultstore.RequestLost, []time.Duration{long()}
	case n < 22:
		f.Again = []time.Duration{long()}
	case n < 25:
		f.Effect = faultstore.Refused
	}
	return f
}

func (c *client) get(ctx context.Context, key string) {
	start := c.h.tick()
	rec, err := c.store.Get(ctx, key, driver.Strong)
	c.h.read(c.id, start, key, rec, err)
	if err == nil {
		c.saw(rec)
	}
}

func (c *client) claim(ctx context.Context, key string, state driver.State) {
	next := driver.Record{
		Key: key, Version: c.fresh(), Owner: c.name, Lease: time.Second, State: state,
	}
	if state == driver.Held {
		next.Session = c.session()
	}
	if state == driver.Past {
		next.End, next.Asked = driver.EndRevoked, &driver.Request{ID: next.Version, Kind: driver.Revoke, By: c.name}
	}
	if c.random.IntN(2) == 0 {
		next.Data = []byte(next.Version)
	}
	c.claimAs(ctx, next)
}

func (c *client) claimAs(ctx context.Context, next driver.Record) {
	in := input{kind: claim, key: next.Key, next: snap(next), keepData: next.Data == nil}
	c.write(in, next, func() (now, prev driver.Record, err error) { return c.store.Claim(ctx, next) })
}

func (c *client) swap(ctx context.Context, from, next driver.Record) {
	in := input{kind: swap, key: next.Key, from: snap(from), next: snap(next)}
	c.write(in, next, func() (now, prev driver.Record, err error) {
		now, err = c.store.Swap(ctx, from, next)
		return now, prev, err
	})
}

func (c *client) remove(ctx context.Context, from driver.Record) {
	in := input{kind: remove, key: from.Key, from: snap(from)}
	c.write(in, driver.Record{}, func() (now, prev driver.Record, err error) { return now, prev, c.store.Delete(ctx, from) })
}

// write makes and records a write, and notes what can be learnt from it.
func (c *client) write(in input, next driver.Record, send func() (now, prev driver.Record, err error)) {
	start := c.h.tick()
	now, prev, err := send()
	c.h.write(c.id, start, in, now, prev, err)
	// The copy of a request that was lost is the write itself, come late.
	if c.fault.Effect == faultstore.Applied && len(c.fault.Again) > 0 {
		c.h.copied(c.id, start, in)
	}
	var conflict *driver.ConflictError
	switch {
	case err == nil && in.kind == remove:
	case err == nil:
		c.saw(now)
	case errors.As(err, &conflict):
		if !conflict.Absent {
			c.saw(conflict.Current)
		}
	case errors.Is(err, driver.ErrNotApplied):
	case !errors.Is(err, faultstore.ErrInjected):
		c.h.mu.Lock()
		c.h.foreign = true
		c.h.mu.Unlock()
	case in.kind == swap && c.random.IntN(2) == 0:
		// It may have been applied: sometimes go on as if it had been.
		c.saw(next)
	}
}

// saw notes a record that was, or may be, stored.
func (c *client) saw(rec driver.Record) { c.seen[rec.Key] = append(c.seen[rec.Key], rec) }
