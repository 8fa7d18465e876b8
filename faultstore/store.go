// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package faultstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Options configures a [Store].
type Options struct {
	// Seed makes rules with a Probability repeatable, as long as the calls come
	// in the same order.
	Seed uint64
}

// Store is a store with faults. It implements [driver.Store]. All methods may
// be called concurrently.
//
// Store has no Watch and no Raise, whatever the inner store has: hand [Store.Driver]
// to the program under test if it may use them.
type Store struct {
	inner driver.Store

	// ctx ends at Close, and with it the calls under way.
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	idle    sync.Cond // signalled when pending falls to 0
	pending int       // late writes, copies and hints still on their way
	closed  bool
	hole    bool
	resumed chan struct{} // closed when a pause ends; nil while no pause is on
	rand    *rand.Rand
	rules   []*rule
	counts  map[Op]int
	log     []*Logged
}

// New returns a store that passes every call on to inner until faults are
// injected. opts may be nil.
func New(inner driver.Store, opts *Options) *Store {
	if opts == nil {
		opts = &Options{}
	}
	s := &Store{
		inner:  inner,
		rand:   rand.New(rand.NewPCG(opts.Seed, 0)),
		counts: map[Op]int{},
	}
	if past, ok := inner.(Past); ok {
		past.KeepPast(MaxStale)
	}
	s.idle.L = &s.mu
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Driver returns s as the program under test should see it: the result
// implements [driver.Watcher] if, and only if, the inner store does, and so with
// [driver.Raiser].
func (s *Store) Driver() driver.Store {
	watcher, watches := s.inner.(driver.Watcher)
	_, raises := s.inner.(driver.Raiser)
	switch {
	case watches && raises:
		return &watchingRaising{watching{s, watcher}}
	case watches:
		return &watching{s, watcher}
	case raises:
		return &raising{s}
	}
	return s
}

// Waits implements [driver.Guarded] for an inner store that does, and returns 0 for any other.
func (s *Store) Waits() time.Duration {
	if guarded, is := s.inner.(driver.Guarded); is {
		return guarded.Waits()
	}
	return 0
}

// SetBlackHole makes every call that begins from now on hang until its context
// is done, without reaching the inner store, and every hint get lost; or, with
// false, ends that for calls that begin later. It takes precedence over all
// rules.
func (s *Store) SetBlackHole(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hole = on
}

// SetPaused stops all traffic between the program and the store, as if the process of the
// program were stopped: calls are sent, and replies and hints delivered, after
// SetPaused(false). The timeouts of the calls go on.
func (s *Store) SetPaused(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case on && s.resumed == nil:
		s.resumed = make(chan struct{})
	case !on && s.resumed != nil:
		close(s.resumed)
		s.resumed = nil
	}
}

// running waits until there is no pause. The error is the context's, or ErrClosed.
func (s *Store) running(ctx context.Context) error {
	for {
		s.mu.Lock()
		resumed := s.resumed
		s.mu.Unlock()
		if resumed == nil {
			return nil
		}
		select {
		case <-resumed:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ctx.Done():
			return driver.ErrClosed
		}
	}
}

// Wait returns when no late write, copy or hint is on its way any more.
func (s *Store) Wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.pending > 0 {
		s.idle.Wait()
	}
}

// Close drops the late writes, copies and hints that have not reached the
// inner store (call [Store.Wait] first to let them), makes hanging calls
// return, and closes the inner store. Nothing that Store started runs on when
// it returns.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.Wait()
	return s.inner.Close()
}

// Get calls Get of the inner store.
func (s *Store) Get(ctx context.Context, key string, c driver.Consistency) (driver.Record, error) {
	r, err := s.do(ctx, Call{Op: OpGet, Key: key, Consistency: c})
	return r.now, err
}

// Claim calls Claim of the inner store.
func (s *Store) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	r, err := s.do(ctx, Call{Op: OpClaim, Key: next.Key, Next: next.Clone()})
	return r.now, r.prev, err
}

// Swap calls Swap of the inner store. For rules and counters it is one of
// OpHeartbeat, OpSetData, OpRequest, OpReserve, OpRelease, OpClose and
// OpTakeover; see [Classify].
func (s *Store) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	r, err := s.do(ctx, Call{Op: Classify(prev, next), Key: next.Key, Prev: prev.Clone(), Next: next.Clone()})
	return r.now, err
}

// Delete calls Delete of the inner store.
func (s *Store) Delete(ctx context.Context, prev driver.Record) error {
	_, err := s.do(ctx, Call{Op: OpDelete, Key: prev.Key, Prev: prev.Clone()})
	return err
}

// List calls List of the inner store. Key of the [Call] is the prefix.
func (s *Store) List(ctx context.Context, prefix, cursor string) (driver.Page, error) {
	r, err := s.do(ctx, Call{Op: OpList, Key: prefix, Cursor: cursor})
	return r.page, err
}

// do makes one call: counts it, decides its fault, carries both out, and logs
// what came of it.
func (s *Store) do(ctx context.Context, call Call) (reply, error) {
	// A context that is done sends nothing, through any driver.
	if err := ctx.Err(); err != nil && !s.isClosed() {
		return reply{}, driver.NotApplied(err)
	}
	if err := s.running(ctx); err != nil {
		return reply{}, driver.NotApplied(err)
	}
	entry, err := s.begin(call)
	if err != nil {
		return reply{}, err
	}
	fault := s.decide(entry.Call)
	r, err := s.carryOut(ctx, entry.Call, fault)
	s.end(entry, fault, r, err)
	if ended := s.running(ctx); ended != nil {
		return reply{}, ended
	}
	if err != nil {
		return reply{}, err
	}
	return r, nil
}

func (s *Store) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// reply is what any of the inner store's methods returns.
type reply struct {
	now, prev driver.Record
	page      driver.Page
}

// send makes the call to the inner store. A read that may be stale shows the
// state of stale writes ago.
func (s *Store) send(ctx context.Context, call Call, stale int) (reply, error) {
	if stale > 0 && call.eventual() {
		return s.sendPast(ctx, call, stale)
	}
	var r reply
	var err error
	// The inner store must not see memory that another copy of this call uses.
	prev, next := call.Prev.Clone(), call.Next.Clone()
	switch call.Op {
	case OpGet:
		r.now, err = s.inner.Get(ctx, call.Key, call.Consistency)
	case OpClaim:
		r.now, r.prev, err = s.inner.Claim(ctx, next)
	case OpHeartbeat, OpSetData, OpRequest, OpReserve, OpRelease, OpClose, OpTakeover:
		r.now, err = s.inner.Swap(ctx, prev, next)
	case OpRaise:
		r.now, err = s.inner.(driver.Raiser).Raise(ctx, prev, next)
	case OpDelete:
		err = s.inner.Delete(ctx, prev)
	case OpList:
		r.page, err = s.inner.List(ctx, call.Key, call.Cursor)
	default:
		panic("faultstore: no such call: " + string(call.Op)) //nolint:forbidigo // a programmer's error
	}
	return r, err
}

var _ driver.Store = (*Store)(nil)
