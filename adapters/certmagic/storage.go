// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurecertmagic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/tenurelock/tenure"
)

// Locks are where the locks are taken: a [tenure.Client], or a [tenure.Session], which keeps
// all of them alive by one heartbeat.
type Locks interface {
	Acquire(ctx context.Context, name string, options *tenure.AcquireOptions) (*tenure.Lease, error)
	TryAcquire(ctx context.Context, name string, options *tenure.AcquireOptions) (*tenure.Lease, error)
}

// Options are for Wrap. Nil means the defaults.
type Options struct {
	// Prefix is put before certmagic's names of locks. If empty, it is "certmagic/".
	Prefix string

	// Timing is as in [tenure.AcquireOptions].
	Timing tenure.Timing

	// History keeps the terms of each lock: see [tenure.AcquireOptions].
	History bool

	// StoreTimeout is how long the store of the locks may fail to give any answer before
	// Lock returns its error. If zero, Lock goes on asking until its context ends, because
	// certmagic gives a certificate up, until its next maintenance, when a lock fails.
	StoreTimeout time.Duration
}

// Storage is a storage of certmagic with other locks. All methods may be called concurrently.
type Storage struct {
	certmagic.Storage
	locks   Locks
	prefix  string
	options tenure.AcquireOptions

	mu     sync.Mutex
	places map[string]*place
}

// A place belongs to the goroutine that holds, or waits for, the lock of a name in this
// process. It stays until the name is unlocked, even if the lease was lost: certmagic
// unlocks by name, so that a late Unlock would release the next holder's lock.
type place struct {
	left  chan struct{}
	lease *tenure.Lease // nil while it is acquired, and while it is released
}

var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)

// ErrNotLocked is matched by the errors of Unlock, RenewLockLease and issuers for a name whose
// lock this storage does not have. Another storage, or process, may have it.
var ErrNotLocked = errors.New("not locked by this storage")

// Wrap returns the storage with the locks of Tenure. Options may be nil. The storage and the
// client stay the caller's to close.
func Wrap(storage certmagic.Storage, locks Locks, options *Options) *Storage {
	var o Options
	if options != nil {
		o = *options
	}
	if o.Prefix == "" {
		o.Prefix = "certmagic/"
	}
	if o.StoreTimeout == 0 {
		o.StoreTimeout = -1
	}
	return &Storage{
		Storage: storage, locks: locks, prefix: o.Prefix,
		options: tenure.AcquireOptions{Timing: o.Timing, History: o.History, StoreTimeout: o.StoreTimeout},
		places:  make(map[string]*place),
	}
}

// String names the storage in certmagic's log.
func (s *Storage) String() string { return fmt.Sprintf("%v with locks of Tenure", s.Storage) }

// Lock takes the lock, waiting until it is free, or ctx ends. The lease goes on until Unlock.
// The errors are those of [tenure.Client.Acquire].
func (s *Storage) Lock(ctx context.Context, name string) error {
	p := &place{left: make(chan struct{})}
	for taken := s.enter(name, p); taken != nil; taken = s.enter(name, p) {
		select {
		case <-taken.left:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.take(ctx, name, p, s.locks.Acquire)
}

// TryLock takes the lock if that is possible without waiting for its holder. It returns
// false without an error if it is held.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	p := &place{left: make(chan struct{})}
	if s.enter(name, p) != nil {
		return false, nil
	}
	err := s.take(ctx, name, p, s.locks.TryAcquire)
	if errors.Is(err, tenure.ErrHeld) {
		return false, nil
	}
	return err == nil, err
}

// enter takes the place of a name if it is free, or else returns its present place.
func (s *Storage) enter(name string, p *place) (taken *place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if taken = s.places[name]; taken == nil {
		s.places[name] = p
	}
	return taken
}

func (s *Storage) leave(name string, p *place) {
	s.mu.Lock()
	delete(s.places, name)
	s.mu.Unlock()
	close(p.left)
}

// acquire is a lock call, with or without waiting.
type acquire func(ctx context.Context, name string, options *tenure.AcquireOptions) (*tenure.Lease, error)

func (s *Storage) acquire(ctx context.Context, name string, how acquire) (*tenure.Lease, error) {
	options := s.options
	return how(ctx, s.prefix+name, &options)
}

// take acquires the lock for a place.
func (s *Storage) take(ctx context.Context, name string, p *place, how acquire) error {
	lease, err := s.acquire(ctx, name, how)
	if err != nil {
		s.leave(name, p)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.lease = lease
	return nil
}

// Unlock releases the lock that Lock or TryLock has taken. It waits for the store
// as [tenure.Lease.Release] does, which ignores a ctx that has ended. An error says that the lease had been
// lost before, or that the store gave no answer: the lease expires then. The name can be locked
// again in any case. A name that is not locked is an error that matches [ErrNotLocked].
func (s *Storage) Unlock(ctx context.Context, name string) error {
	s.mu.Lock()
	p := s.places[name]
	if p == nil || p.lease == nil {
		s.mu.Unlock()
		return fmt.Errorf("unlock %q: %w", name, ErrNotLocked)
	}
	lease := p.lease
	p.lease = nil
	s.mu.Unlock()
	defer s.leave(name, p)
	return lease.Release(ctx)
}

// RenewLockLease returns nil when the lock may be used, by the clock of this process. It
// ignores the duration: heartbeats go on until Unlock. Certmagic calls it before each try. So
// if the lease was lost since the try before, it takes the lock again, as Lock does: another
// process may have had it meanwhile, and certmagic looks for its certificate next. It returns
// the errors of Lock, or an error that matches [ErrNotLocked].
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	s.mu.Lock()
	p := s.places[name]
	if p == nil || p.lease == nil {
		s.mu.Unlock()
		return fmt.Errorf("renew %q: %w", name, ErrNotLocked)
	}
	lease := p.lease
	s.mu.Unlock()
	if lease.Check() == nil {
		return nil
	}
	// An error of Check is an error of Release, and no news.
	_ = lease.Release(ctx)
	again, err := s.acquire(ctx, name, s.locks.Acquire)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.places[name] == p && p.lease == lease {
		p.lease = again
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	return errors.Join(fmt.Errorf("renew %q: unlocked meanwhile: %w", name, ErrNotLocked), again.Release(ctx))
}

// Lease returns the lease of a lock that this storage has: for its token, say. Otherwise the
// error matches [ErrNotLocked].
func (s *Storage) Lease(name string) (*tenure.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.places[name]; p != nil && p.lease != nil {
		return p.lease, nil
	}
	return nil, fmt.Errorf("lock %q: %w", name, ErrNotLocked)
}
