// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package slots has the common parts of packages semaphore and rwlock, whose names each
// have several locks, some of them slots: the record with the number of slots, the line
// of waiting processes, the queue of waiters in one process, patience with a store that
// gives no answer, and the bounds of a session. It only uses the public API.
package slots

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/internal/text"
)

// Base is the common base of all locks of one name in one process. All methods may be
// called concurrently.
type Base struct {
	Client *tenure.Client
	// Session keeps the slots alive, if it is not nil. The locks of the size and of the
	// line have their own leases: a process whose session has ended can still change the
	// number of slots.
	Session *tenure.Session
}

// Check returns what is wrong with the base of a kind, such as "semaphore".
func (b Base) Check(kind string) error {
	switch {
	case b.Client == nil:
		return errors.New("client is nil: make one with tenure.New")
	case b.Session != nil && b.Session.Client() != b.Client:
		return fmt.Errorf("session belongs to another client, whose store may be another one: open a session with the %s's client", kind)
	}
	return text.OfLossyStore(b.Client.Options().LossyStore, "a "+kind)
}

// Taker takes a lock if it is free, as [tenure.Client.TryAcquire] does, and with its errors.
type Taker func(ctx context.Context, name string) (Lock, error)

// Taker takes locks for this process: under the session, if there is one. The locks are
// [*tenure.Lease].
func (b Base) Taker(o *tenure.AcquireOptions) Taker {
	take := b.Client.TryAcquire
	if b.Session != nil {
		take = b.Session.TryAcquire
	}
	return func(ctx context.Context, name string) (Lock, error) {
		l, err := take(ctx, name, o)
		if err != nil {
			return nil, err
		}
		return l, nil
	}
}

// Bound returns a context that also ends with the session: a waiter only polls slots,
// and would not learn of that end before a slot is free.
func (b Base) Bound(ctx context.Context) (bound context.Context, stop context.CancelFunc) {
	if b.Session == nil {
		return ctx, func() {}
	}
	bound, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(b.Session.Context(), cancel)
	return bound, func() {
		unhook()
		cancel()
	}
}

// OrEnded is the error of a call that the end of the session may have ended.
func (b Base) OrEnded(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || b.Session == nil {
		return err
	}
	cause := context.Cause(b.Session.Context())
	if cause == nil || errors.Is(err, tenure.ErrSessionClosed) {
		return err
	}
	if errors.Is(cause, tenure.ErrSessionClosed) {
		return cause
	}
	return fmt.Errorf("%w: %w", tenure.ErrSessionClosed, cause)
}

// GiveBack releases a lease without work under it. It waits for a moment, so that the
// next holder need not; a caller whose context has ended goes on at once.
func (b Base) GiveBack(ctx context.Context, l Lock) { b.GiveBackWith(ctx, l, nil) }

// GiveBackWith is GiveBack with the options of the release.
func (b Base) GiveBackWith(ctx context.Context, l Lock, o *tenure.ReleaseOptions) {
	patience := b.Client.Options().RequestTimeout
	if ctx.Err() != nil {
		patience = time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	_ = l.ReleaseWith(ctx, o) // the release goes on in the background, or the record expires by itself
}

// ErrBroken is the failure of work that has not returned.
var ErrBroken = errors.New("the work panicked, or ended its goroutine")

// Lease has the methods of a lease that Failure and Outcome need.
type Lease interface {
	Context() context.Context
	Check() error
}

// Lock has what acquires need of a lock that was granted: a [*tenure.Lease], or the grant of a
// holder in another process: see [Elsewhere].
type Lock interface {
	Check() error
	Owner() string
	Token() uint64
	Bind(context.Context) (bound context.Context, stop context.CancelFunc)
	Previous() (tenure.Term, bool)
	ReleaseWith(context.Context, *tenure.ReleaseOptions) error
}

// Elsewhere is a holder in another process without a store, such as a client of a lock service,
// for which this process acquires. This process looks on its behalf, and the holder has nothing
// before it has learned of the [Grant].
type Elsewhere struct {
	// Take takes a lock for that holder.
	Take Taker
	// Wait is how long to wait at most. If zero, the acquire does not wait.
	Wait time.Duration
	// Met is called for what is in the way, each time that this is seen, by the goroutine of the
	// caller.
	Met func(*tenure.HeldError)
}

// Grant is what a holder elsewhere was granted.
type Grant struct {
	Lock Lock
	// Slot is the number of the slot of a semaphore or of a reader. Slots is how many there are.
	Slot, Slots int
	// Waited says that the first attempt has failed.
	Waited bool

	// These are for readers and writers. Token is the fencing token under the lock's name. Last is
	// the term of the last writer, nil without one. Drain says that a writer has met readers, and
	// has to wait for their end. Unwritten is the data of the release of a writer that has not
	// written.
	Token     uint64
	Last      *tenure.Term
	Drain     bool
	Unwritten []byte
}

// Failure returns the release options for the error of work: that the work has failed,
// unless it was asked to stop before.
func Failure(ctx context.Context, l Lease, err error) *tenure.ReleaseOptions {
	if err == nil || ctx.Err() != nil || l.Context().Err() != nil || l.Check() != nil {
		return nil
	}
	return &tenure.ReleaseOptions{Failed: err}
}

// Outcome returns what a Run returns: the error of the release, if that says that the
// lease was lost, and the error of the work. wrap adds the operation to an error.
func Outcome(l Lease, lost, err error, wrap func(error) error) error {
	if errors.Is(lost, tenure.ErrLost) || errors.Is(lost, tenure.ErrStopTimeout) {
		return errors.Join(lost, err)
	}
	if cause := context.Cause(l.Context()); err != nil && errors.Is(cause, tenure.ErrSteppedDown) {
		return errors.Join(wrap(cause), err)
	}
	return err
}

// AtWork says that a slot shows a holder that may be at work. A holder whose slot was
// revoked may be at work until the slot is free.
func AtWork(st tenure.Status) bool {
	return st.Held || st.State == tenure.StateReserved && st.ReservedFor == "" && st.FreeIn > 0
}

// Expired says that a read shows a holder whose lease is over. The holder may have renewed it
// since, or the read may have been stale. A takeover is safe, because a stale write is
// rejected. A caller that does not write must confirm with a strong read: a read that begins
// after the lease is over, and shows the same, is certain.
func Expired(st tenure.Status) bool { return st.State == tenure.StateHeld && !st.Held }

// EndDead ends the term of a slot that a certain read has shown as [Expired], and returns what it shows
// then: its holder may have come to life. Without this write a slot would keep a record that its
// holder could still renew. A holder elsewhere that has sent no heartbeat yet has no deadline: it would
// have the slot again with the first one, however late that is, beside others who go by its death. A
// slot that is taken over has another record anyway; and a session ends by its own rules.
func (b Base) EndDead(ctx context.Context, st tenure.Status) (tenure.Status, error) {
	if st.Session != "" {
		return st, nil
	}
	err := admin.ReleaseDead(ctx, b.Client, st.Name, "the holder has shown no sign of life for its lease")
	switch {
	case err == nil, errors.Is(err, tenure.ErrNotHeld): // or another process was quicker
		st.State, st.FreeIn = tenure.StateReleased, 0
		return st, nil
	case errors.Is(err, tenure.ErrAlive):
		return b.Client.Status(ctx, st.Name)
	}
	return st, err
}

// Options returns a copy of the options of an acquire, and refuses those that only
// apply to one lock.
func Options(options *tenure.AcquireOptions) (tenure.AcquireOptions, error) {
	var o tenure.AcquireOptions
	if options != nil {
		o = *options
	}
	if o.Data != nil {
		o.Data = append([]byte{}, o.Data...)
	}
	switch {
	case o.UnlessAlive, o.AdditionalWait != 0, o.Priority != 0:
		return o, errors.New("UnlessAlive, AdditionalWait and Priority apply to one lock, not to slots: leave them unset")
	case o.Wait < 0:
		return o, fmt.Errorf("wait %v must not be negative", o.Wait)
	case o.Capacity < 0:
		return o, fmt.Errorf("capacity %d must not be negative", o.Capacity)
	case len(o.Data) > MaxDataLen:
		return o, fmt.Errorf("data has %d bytes: at most %d are allowed", len(o.Data), MaxDataLen)
	}
	return o, nil
}
