// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/notification"
	"github.com/tenurelock/tenure/internal/protocol"
)

// heldRecord is the common part of a lease and a session: a record that a machine keeps
// alive, the right to act that depends on it, and the callers that wait for a write.
type heldRecord struct {
	c        *Client
	t        *protocol.Timing
	key      string
	lease    *LeaseHolder   // the owner of the record; nil for a session's record
	session  *SessionHolder // the owner of the record; nil for a lease's record
	since    time.Duration  // on the holder's clock: when it was granted
	deadline leaseDeadline
	ctx      context.Context
	cancel   context.CancelCauseFunc

	loop          run
	h             *protocol.Holder   // of the record
	deadlineTimer timer              // takes none of our mutexes
	lock          *notification.Lock // for the client's notifier; nil without one
	early         timer              // sends a heartbeat because of a message or a hint

	mu       *sync.Mutex   // guards the machine and the fields below; one for a session and all under it; never held across I/O
	hurried  time.Duration // when early last sent a heartbeat
	cause    error         // why the context was cancelled
	waits    []writeWait
	finished bool // over, or quiet: Close need not wait for it
}

// machine has the methods that the machines of a holder and of a session share.
type machine interface {
	protocol.Machine
	Stop(now time.Duration) protocol.Action
	Expire(now time.Duration) protocol.Action
	Replace(now time.Duration, err error) protocol.Action
	Renew(now time.Duration) protocol.Action
	SetData(now time.Duration, data []byte) (uint64, protocol.Action)
}

// writeWait is a caller that waits for a write of the holder.
type writeWait struct {
	data uint64        // serial number of the data that must be confirmed
	sent time.Duration // the confirmed write must not be older
	done chan error
}

// prepare sets up the record before the machine is stepped. Its context ends with ctx.
func (k *heldRecord) prepare(ctx context.Context, mu *sync.Mutex, parent *leaseDeadline) {
	c := k.c
	k.mu = mu
	k.ctx, k.cancel = context.WithCancelCause(ctx)
	k.deadline.clocks, k.deadline.Parent = c.deadlines, parent
	k.loop = run{c: c, owner: k, mutex: mu, timers: c.beats, timeout: k.t.RequestTimeout}
	if !c.slowWrites {
		k.loop.beat = k.t.HeartbeatTimeout()
	}
	c.deadlines.Nap(napOf(*k.t))
	c.beats.Nap(napOf(*k.t))
}

// begin begins to run the machine. The caller holds the mutex: once the timer of the
// deadline is set, timers step the machine, and the deadline may have passed already.
func (k *heldRecord) begin(h *protocol.Holder) {
	k.h = h
	k.loop.machine = k.m()
	k.deadline.Begin(h.Deadline())
	if k.deadline.Parent == nil {
		k.loop.prepare() // the timer of the deadline takes no mutex
		k.deadlineTimer.Run = k.reachDeadline
		k.c.deadlines.Set(&k.deadlineTimer, h.Deadline())
	}
	k.lock = k.c.notifier.holds(k)
}

// m returns the machine to run: k.h, or the session's machine, which embeds k.h.
func (k *heldRecord) m() machine {
	if k.session != nil {
		return k.session.machine
	}
	return k.h
}

// Owner returns the owner name of the record.
func (k *heldRecord) Owner() string { return k.c.options.Owner }

// Label returns the label of the client.
func (k *heldRecord) Label() string { return k.c.options.Label }

// Timing returns its durations.
func (k *heldRecord) Timing() *protocol.Timing { return k.t }

// Context returns a context that ends with the right to act.
func (k *heldRecord) Context() context.Context { return k.ctx }

// Check returns nil while the holder may act, and afterwards why it may not.
func (k *heldRecord) Check() error {
	if why := k.deadline.Check(); why != notEnded {
		return k.endedError(why)
	}
	return nil
}

// Remaining returns the time until the deadline, 0 when the right has ended.
func (k *heldRecord) Remaining() time.Duration { return k.deadline.Remaining() }

// Ended reports whether the right has ended, as far as any call has found out.
func (k *heldRecord) Ended() bool { return k.deadline.Ended() != notEnded }

// do makes one step of the machine and carries out what it wants.
func (k *heldRecord) do(step func(now time.Duration) protocol.Action) {
	k.loop.do(step)
}

// neededBy is the instant by which the lease needs the answer of a call.
func (k *heldRecord) neededBy() time.Duration { return k.h.Deadline() }

// before reports to the machine what Check or a timer has already found. The caller
// holds the mutex.
func (k *heldRecord) before(now time.Duration) {
	if k.lease != nil {
		k.lease.reportProgress()
	}
	if k.deadline.Own() == endedExpired && !k.h.Expired() {
		k.loop.carry(now, k.m().Expire(now)) // Check, or a timer, has found the expiry first
	}
}

// stepped carries out what a step has led to.
func (k *heldRecord) stepped(now time.Duration, a protocol.Action) {
	if k.h.Expired() {
		k.deadline.End(endedExpired)
	} else {
		k.deadline.Extend(k.h.Deadline())
	}
	if a.Call != nil && a.Call.Kind == protocol.Release && k.lease != nil {
		k.lease.freeing = k.c.clock()
	}
	for _, n := range a.Notes {
		k.note(n, now)
	}
	k.answerWriters()
	if k.lease != nil {
		k.lease.closeReleased()
	} else {
		k.session.noted(a.Notes)
	}
}

// Stop tells the holder to stop. Heartbeats go on meanwhile.
func (k *heldRecord) Stop(cause error) {
	k.do(func(now time.Duration) protocol.Action {
		k.stopFor(cause)
		return k.m().Stop(now)
	})
}

// stopFor notes the cause of a stop, if nothing else has ended the right.
func (k *heldRecord) stopFor(cause error) {
	if k.h.Cause() == protocol.None {
		k.cause = cause
	}
}

// replied notifies waiters if a release may have been applied. NoteOver handles the
// certain case.
func (k *heldRecord) replied(_ time.Duration, call *protocol.Call, r protocol.Result) {
	if call.Kind == protocol.Release && r.Outcome == protocol.Unknown {
		k.c.notifier.notifies(k.lock)
	}
}

// notifies sends the waiters a message after the last call, if they may take the lock.
func (k *heldRecord) notifies() {
	by, _ := k.h.By()
	switch freed := k.h.Freed(); {
	case freed == protocol.Released, freed == protocol.Uncertain:
		k.c.notifier.notifies(k.lock)
	case freed == protocol.Gone && by.State != driver.Held && by.State != "":
		k.c.notifier.notifies(k.lock) // an operator has released it
	}
	k.c.notifier.leaves(k.lock)
	k.lock = nil
}

// earlyPerHeartbeat bounds how many heartbeats messages and hints can cause in one period:
// anyone who can read the store can forge messages, and a store may hint without a reason.
const earlyPerHeartbeat = 4

// hurries makes a heartbeat due soon: a message or a hint says that a request is in the
// record.
func (k *heldRecord) hurries() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.finished || k.t.Manual && k.lease != nil {
		return // the work sends its own heartbeats
	}
	at := k.c.leaseClock()
	if k.hurried > 0 {
		at = max(at, k.hurried+k.t.Heartbeat/earlyPerHeartbeat)
	}
	if k.early.Run == nil { // most leases never need it
		k.early.Run = k.hurry
	}
	k.c.beats.Set(&k.early, at)
}

// hurry sends that heartbeat.
func (k *heldRecord) hurry(time.Duration) {
	k.do(func(now time.Duration) protocol.Action {
		if k.h.Cause() != protocol.None {
			return k.m().Step(now)
		}
		k.hurried = now
		return k.m().Renew(now)
	})
}

// reachDeadline runs when the deadline, as it was last read, has come. It takes none of
// our mutexes.
func (k *heldRecord) reachDeadline(now time.Duration) {
	again, expired := k.deadline.Reach(now)
	switch {
	case expired:
		k.cancelFor(ErrExpired)
		k.loop.setAt(0) // that step tells the machine
	case again > 0:
		k.c.deadlines.Set(&k.deadlineTimer, again)
	}
}

// event returns an event with the fields of this record.
func (k *heldRecord) event() Event {
	e := Event{Owner: k.c.options.Owner}
	if k.lease == nil {
		e.Session = k.session.id
		return e
	}
	e.Lock, e.Token = k.key, k.lease.token
	if k.lease.under != nil {
		e.Session = k.lease.under.id
	}
	return e
}

func (k *heldRecord) note(n protocol.Note, now time.Duration) {
	e := k.event()
	if (n == protocol.NoteRenewed || n == protocol.NoteSafe) && k.h.Expired() {
		return // this heartbeat only keeps others away while the work drains
	}
	switch n {
	case protocol.NoteRenewed:
		e.Kind, e.Took, e.Remaining = EventRenewed, now-k.h.Sent(), k.h.Deadline()-now
		if k.deadline.Parent != nil {
			e.Took = 0 // a write of the lock's record: the session reports its own heartbeats
		}
	case protocol.NoteJeopardy:
		e.Kind, e.Err, e.Remaining = EventJeopardy, k.h.Err(), max(0, k.h.Deadline()-now)
	case protocol.NoteSafe:
		e.Kind, e.Remaining = EventSafe, k.h.Deadline()-now
	case protocol.NoteEnded:
		e.Kind, e.Err = k.noteEnded()
	case protocol.NoteQuiet:
		if k.h.Cause() != protocol.Stalled {
			k.deadline.End(endedStopTimeout)
			e.Kind, e.Err = EventStopTimeout, ErrStopTimeout
		}
		k.finish()
	case protocol.NoteOver:
		e.Kind, e.Held = EventReleased, now-k.since
		if freed := k.h.Freed(); freed != protocol.Released {
			e.Kind, e.Err = EventEnded, k.h.Err()
			if freed == protocol.Gone {
				k.deadline.End(endedSuperseded) // while the work drained
				e.Err = k.superseded()
			}
		}
		k.c.deadlines.Drop(&k.deadlineTimer)
		k.notifies()
		if k.lease != nil {
			e = k.lease.ended(e)
		} else {
			e = k.session.ended(e)
		}
		k.finish()
	}
	if e.Kind != "" {
		k.c.events.emit(e)
	}
}

// noteEnded cancels the context with the first cause that the machine knows.
func (k *heldRecord) noteEnded() (string, error) {
	kind := EventLost
	switch k.h.Cause() {
	case protocol.Expired:
		k.deadline.End(endedExpired)
		k.cause = ErrExpired
	case protocol.Superseded:
		k.deadline.End(endedSuperseded)
		k.cause = k.superseded()
	case protocol.Stalled:
		k.deadline.End(endedStalled)
		k.cause = ErrStalled
	case protocol.Asked:
		kind, k.cause = EventStopping, k.c.options.API.SteppedDown(k.h.Asked())
	default:
		kind = EventStopping
	}
	if yes, cause := k.followed(); yes {
		k.cause = cause
	} else {
		k.cancelFor(k.cause)
	}
	return kind, k.cause
}

// finish says that Close need not wait for the record any longer.
func (k *heldRecord) finish() {
	if !k.finished {
		k.finished = true
		k.c.deadlines.EndNap(napOf(*k.t))
		k.c.beats.EndNap(napOf(*k.t))
		k.c.beats.Drop(&k.early)
		if k.lease != nil {
			k.lease.unwatchRequests()
		} else {
			close(k.session.closed)
		}
		k.c.finishedRecord(k)
	}
}

// storeInPlace reports whether the store is still in place. If not, it ends what has
// begun.
func (k *heldRecord) storeInPlace() bool {
	if err := k.c.Store.Gone(); err != nil {
		k.replaced(err)
		return false
	}
	return true
}

// void ends the right to act because the store was replaced; replaced ends the rest.
func (k *heldRecord) void() { k.deadline.End(endedReplaced) }

func (k *heldRecord) replaced(err error) {
	k.void()
	k.do(func(now time.Duration) protocol.Action { return k.m().Replace(now, err) })
}

// Renew sends a heartbeat now, and waits for its confirmation.
func (k *heldRecord) Renew(ctx context.Context) error {
	return k.await(ctx, func(now time.Duration) (writeWait, protocol.Action) {
		return writeWait{sent: now}, k.m().Renew(now)
	})
}

// SetData writes data into the record, and waits until that is confirmed.
func (k *heldRecord) SetData(ctx context.Context, data []byte) error {
	data = append([]byte{}, data...)
	return k.await(ctx, func(now time.Duration) (writeWait, protocol.Action) {
		serial, a := k.m().SetData(now, data)
		return writeWait{data: serial}, a
	})
}

func (k *heldRecord) await(ctx context.Context, ask func(time.Duration) (writeWait, protocol.Action)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if why := k.deadline.Ended(); why != notEnded {
		return k.endedError(why)
	}
	w := writeWait{done: make(chan error, 1)}
	k.do(func(now time.Duration) protocol.Action {
		asked, a := ask(now)
		w.data, w.sent = asked.data, asked.sent
		k.waits = append(k.waits, w)
		return a
	})
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return uncertain(Done(ctx))
	case <-k.c.gone:
		return uncertain(ErrClosed)
	}
}

// answerWriters answers the callers whose write is confirmed, or can no longer be.
func (k *heldRecord) answerWriters() {
	if len(k.waits) == 0 {
		return
	}
	ended := k.h.Over() || k.h.Quiet() || k.h.Expired()
	kept := k.waits[:0]
	for _, w := range k.waits {
		switch {
		case w.data == 0 && k.deadline.Own() == endedExpired:
			// Check reported the expiry while the heartbeat was being confirmed: nothing is
			// renewed.
			w.done <- k.endedError(endedExpired)
		case k.h.DataKept() >= w.data && (w.sent == 0 || k.h.Sent() >= w.sent):
			w.done <- nil
		case ended:
			err := k.endedError(k.deadline.Own())
			if w.data > 0 && !k.h.Withdraw(w.data) {
				err = uncertain(err) // an attempt may have been applied, or may yet be
			}
			w.done <- err
		case w.data > 0 && errors.Is(k.h.Err(), errors.ErrUnsupported) && k.h.Withdraw(w.data):
			w.done <- k.h.Err() // the store will never write this data: the lease goes on without it
		default:
			kept = append(kept, w)
		}
	}
	clear(k.waits[len(kept):])
	k.waits = kept
}

// endedError returns why the right has ended, as an error.
func (k *heldRecord) endedError(why ending) error {
	switch why {
	case endedReplaced:
		return k.c.options.API.Replaced(k.c.Store.Gone())
	case endedReleased:
		return ErrReleased
	case endedSuperseded:
		return ErrSuperseded
	case endedStalled:
		return ErrStalled
	case endedStopTimeout:
		return ErrStopTimeout
	default:
		return ErrExpired
	}
}

// result returns how the record ended, once it is over.
func (k *heldRecord) result() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	freed := k.h.Freed()
	stopped := k.h.Cause() == protocol.Stopped || k.h.Cause() == protocol.Asked // on purpose
	switch {
	case k.h.Cause() == protocol.Stalled:
		return ErrStalled
	case k.h.Quiet() && stopped && k.h.Expired():
		return fmt.Errorf("%w: %w", ErrStopTimeout, ErrExpired)
	case k.h.Expired():
		return ErrExpired
	case freed == protocol.Gone:
		return k.superseded()
	case k.h.Quiet():
		return ErrStopTimeout
	case freed == protocol.Uncertain:
		return uncertain(k.h.Err())
	case freed == protocol.Kept && k.deadline.Parent != nil:
		return fmt.Errorf("%w; the lock becomes free when its session ends, or soon after another caller waits for it: %w", ErrNotReleased, k.h.Err())
	case freed == protocol.Kept:
		return fmt.Errorf("%w; its record expires by itself within %v: %w", ErrNotReleased, k.t.Lease, k.h.Err())
	}
	return nil
}

// freed reports whether the record is certainly no longer this holder's.
func (k *heldRecord) freed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	freed := k.h.Freed()
	return freed == protocol.Released || freed == protocol.Gone
}

func (k *heldRecord) superseded() error {
	by, found := k.h.By()
	if !found {
		return k.endedError(endedReplaced)
	}
	return k.c.options.API.Superseded(k.h.Record().Token, by)
}

// cancelFor cancels the context. For a session it does so in a goroutine: cancelling
// thousands of child contexts must not block heartbeats or timers.
func (k *heldRecord) cancelFor(cause error) {
	if k.lease != nil {
		k.cancel(cause)
	} else {
		k.c.calls.Go(func() { k.cancel(cause) })
	}
}

// followed reports whether the lock has ended with its session, and why. The session's
// context ends this one's: cancelling it here would wait for all the other contexts,
// under the mutex.
func (k *heldRecord) followed() (yes bool, cause error) {
	if k.lease != nil && k.lease.under != nil && k.lease.under.h.Cause() != protocol.None {
		return true, k.lease.under.cause
	}
	return false, nil
}

// asked is called when a message says that a request is in the record.
func (k *heldRecord) asked() {
	if k.lease == nil || k.lease.under == nil { // otherwise the request is in the session's record, and the session is notified
		k.hurries()
	}
}
