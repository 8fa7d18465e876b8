// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/slots"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/semaphore"
	"github.com/tenurelock/tenure/server/access"
	"github.com/tenurelock/tenure/server/internal/remote"
	"github.com/tenurelock/tenure/server/internal/wire"
)

// Slots of semaphores, readers and writers are taken by packages semaphore and rwlock, for holders
// elsewhere. Safety needs two things of this server: what those packages look at is read after the
// lock was granted, and before its holder learns of it.

// kept has the semaphores, or the locks for readers and writers, that calls have used of late. Their
// calls share what this server knows of the slots, its polls and their order. Nothing else rests on
// it.
type kept[T any] struct {
	make func(name string) (*T, error)

	mu   sync.Mutex
	all  map[string]*named[T]
	idle list.List // of those that no call uses, the latest at the back
}

// maxIdle bounds how many are kept that no call uses. One may know of a thousand slots.
const maxIdle = 500

// named is one of them.
type named[T any] struct {
	of   *T
	name string
	// Guarded by the mutex of kept.
	users int
	idle  *list.Element
	met   *tenure.HeldError // by a call that waits, last
	at    time.Time         // when
}

// use returns the one of that name until done is called.
func (k *kept[T]) use(name string) (n *named[T], done func(), err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n = k.all[name]; n == nil {
		of, err := k.make(name)
		if err != nil {
			return nil, nil, err
		}
		if k.all == nil {
			k.all = map[string]*named[T]{}
		}
		n = &named[T]{of: of, name: name}
		k.all[name] = n
	}
	if n.users++; n.idle != nil {
		k.idle.Remove(n.idle)
		n.idle = nil
	}
	return n, func() { k.done(n) }, nil
}

func (k *kept[T]) done(n *named[T]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n.users--; n.users > 0 {
		return
	}
	n.idle = k.idle.PushBack(n)
	if k.idle.Len() > maxIdle {
		delete(k.all, k.idle.Remove(k.idle.Front()).(*named[T]).name)
	}
}

// known returns the one of that name, or nil.
func (k *kept[T]) known(name string) *T {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := k.all[name]; n != nil {
		return n.of
	}
	return nil
}

// metFor is for how long a holder that one call has met is what others wait for.
const metFor = 10 * time.Second

// meets notes what a call that waits has met.
func (k *kept[T]) meets(n *named[T], e *tenure.HeldError) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n.met, n.at = e, time.Now()
}

// met returns what a call has met a moment ago, or nil.
func (k *kept[T]) met(n *named[T]) *tenure.HeldError {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(n.at) > metFor {
		return nil
	}
	return n.met
}

// released notes the release of a lock by its holder, for the calls that wait for it.
func (s *Server) released(lock string, token uint64) {
	s.meter.used(lock, token)
	if name, slot, ok := semaphore.ParseLockName(lock); ok {
		if of := s.sems.known(name); of != nil {
			of.LeftElsewhere(slot)
		}
	}
	if name, ok := rwlock.ParseGateName(lock); ok {
		if of := s.rws.known(name); of != nil {
			of.OpenedElsewhere()
		}
	}
}

// checkSlots checks what an acquire says of slots, readers and writers.
func checkSlots(q wire.AcquireRequest) error {
	kinds := 0
	for _, is := range []bool{q.Slots != nil, q.Shared, q.Exclusive} {
		if is {
			kinds++
		}
	}
	switch {
	case kinds > 1:
		return problemf(badRequest, "slots, shared and exclusive are of different kinds: give one of them")
	case q.Slots != nil && (*q.Slots < 1 || *q.Slots > semaphore.MaxSlots):
		return problemf(badRequest, "slots is %d: it must be from 1 to %d", *q.Slots, semaphore.MaxSlots)
	case q.Data != nil && (q.Shared || q.Exclusive):
		return problemf(badRequest, "data goes neither with shared nor with exclusive: the lock keeps its own data in its "+
			"records; keep yours with the resource")
	}
	return nil
}

// checkLeft refuses the data of a release by which later readers and writers would not know who has
// written.
func checkLeft(lock string, token uint64, data []byte) error {
	_, gate := rwlock.ParseGateName(lock)
	_, _, slot := rwlock.ParseSlotName(lock)
	switch {
	case !gate && !slot || len(data) == 0, gate && rwlock.IsUnwritten(data, token):
		return nil
	case gate:
		return problemf(badRequest, "the data are not those that the grant of %.200q has as unwritten: a writer leaves "+
			"these if it has not written, and no data if it has", lock)
	}
	return problemf(badRequest, "a reader leaves no data in %.200q: keep them with the resource", lock)
}

// wants, unless it is nil, is told who is in the way of a call that waits, each time that this is
// another one.
type wants = func(*tenure.HeldError)

// takeOf takes a part of one of those that are kept.
func takeOf[T any](
	ctx context.Context, a *attempt, k *kept[T], q wire.AcquireRequest, wants wants,
	acquire func(*T, slots.Elsewhere) (slots.Grant, error),
) (slots.Grant, error) {
	take, err := a.c.s.remote.Taker(ctx, q)
	if err != nil {
		return slots.Grant{}, err
	}
	n, done, err := k.use(q.Name)
	if err != nil {
		return slots.Grant{}, unusable(err)
	}
	defer done()
	got, err := acquire(n.of, slots.Elsewhere{Take: take, Wait: a.wait, Met: func(e *tenure.HeldError) {
		again := a.met != nil && a.met.Owner == e.Owner && a.met.Token == e.Token
		if a.met = e; a.wait == 0 {
			return
		}
		k.meets(n, e)
		if wants != nil && !again {
			wants(e)
		}
	}})
	if err != nil {
		err = inTheWay(ctx, err, cmp.Or(a.met, k.met(n)))
	}
	a.waited = got.Waited
	return got, err
}

// takeSlot takes a slot of a semaphore.
func (a *attempt) takeSlot(ctx context.Context, q wire.AcquireRequest, wants wants) (wire.Grant, error) {
	looked := 0
	take := func(s *semaphore.Semaphore, of slots.Elsewhere) (slots.Grant, error) {
		g, err := s.AcquireElsewhere(ctx, int(*q.Slots), of)
		looked = g.Slots
		if full := (*semaphore.FullError)(nil); errors.As(err, &full) {
			looked = full.Slots
		}
		return g, err
	}
	got, err := takeOf(ctx, a, &a.c.s.sems, q, wants, take)
	if a.wait == 0 {
		a.c.s.limits.read(a.c.principal.Name(), looked)
	}
	if err != nil {
		return wire.Grant{}, err
	}
	g, slot := grantOf(got), int64(got.Slot)
	g.Slot, g.Slots = &slot, int64(got.Slots)
	return g, nil
}

// takePart takes a lock for readers and writers.
func (a *attempt) takePart(ctx context.Context, q wire.AcquireRequest, wants wants) (wire.Grant, error) {
	take := func(l *rwlock.Lock, of slots.Elsewhere) (slots.Grant, error) {
		if q.Exclusive {
			return l.AcquireWriteElsewhere(ctx, of)
		}
		return l.AcquireReadElsewhere(ctx, of)
	}
	got, err := takeOf(ctx, a, &a.c.s.rws, q, wants, take)
	if err != nil {
		return wire.Grant{}, err
	}
	a.c.s.limits.read(a.c.principal.Name(), got.Slots)
	g := grantOf(got)
	g.Data, g.FenceToken, g.Drain, g.Unwritten = nil, got.Token, got.Drain, got.Unwritten
	if t := got.Last; t != nil {
		g.LastWriter = wire.LastWriter{Owner: t.Owner, Token: t.Token, End: t.End}
	}
	return g, nil
}

func grantOf(g slots.Grant) wire.Grant {
	return g.Lock.(*remote.Lock).Grant() //nolint:forcetypeassert // of [remote.Client.Taker]
}

// unusable is the problem of a name or of a store that has no slots.
func unusable(err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return problemf(unsupported, "the store of this server may lose writes that it has confirmed, and there are "+
			"neither semaphores nor locks for readers and writers there: use plain locks, or another store")
	}
	return problemf(badRequest, "%v", err)
}

// inTheWay names a holder in the problem of a caller that others kept out. met is what was met last,
// by this call or by another one; nil: nothing.
func inTheWay(ctx context.Context, err error, met *tenure.HeldError) error {
	over := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil // of the wait, before its turn
	switch busy := (*rwlock.BusyError)(nil); {
	case !errors.Is(err, tenure.ErrHeld) && !over:
		return err
	case met != nil:
		return heldBy(met, err)
	case errors.As(err, &busy):
		return heldBy(&tenure.HeldError{FreeIn: busy.FreeIn}, err)
	}
	return problemf(unavailable, "%v: it could not be taken in time: send the call again", err).after(retrySoon)
}

// drain is POST /v1/drain.
func (c *call) drain() error {
	var q wire.DrainRequest
	if err := c.read(&q); err != nil {
		return err
	}
	if err := c.may(access.Hold, q.Name); err != nil {
		return err
	}
	wait, err := waitOf(q.WaitMs)
	if err != nil {
		return err
	}
	name, ok := rwlock.ParseGateName(q.Name)
	switch {
	case !ok:
		return problemf(badRequest, "%.200q is not the name of a gate: give name and token of the grant of an acquire with "+
			"exclusive", q.Name)
	case q.Token == 0:
		return problemf(badRequest, "token is 0: give the token of the grant")
	}
	n, done, err := c.s.rws.use(name)
	if err != nil {
		return unusable(err)
	}
	defer done()
	ctx, leave, err := c.waitsFor("drain", access.Hold, q.Name)
	if err != nil {
		return err
	}
	defer leave()
	var met *tenure.HeldError
	looked, err := n.of.DrainElsewhere(ctx, q.Token, wait, func(e *tenure.HeldError) { met = e })
	c.s.limits.read(c.principal.Name(), looked)
	if err != nil {
		return inTheWay(ctx, err, met)
	}
	return c.answer(wire.Empty{})
}
