// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// LeaseHolder is a lock that this client holds.
type LeaseHolder struct {
	heldRecord
	// Of is the API's lease that embeds this one.
	Of any

	id       string
	token    uint64
	former   *driver.Term   // the previous term
	data     []byte         // the data that the previous term left
	under    *SessionHolder // keeps the lock alive; nil if the lock has its own lease
	capacity int            // how many pieces of work the holder does at once

	progress atomic.Int64  // on the holder's clock: the last call of Progress
	freeing  time.Duration // on the contender's clock: before the latest release was sent
	ownMu    sync.Mutex    // mu of a lock with its own lease

	meter    *busyMeter    // nil before the first work; guarded by mu
	unwatch  func()        // ends the watch for requests; guarded by mu
	released chan struct{} // made by a release: closed when no call is sent any more, or only the session's closing remains
}

// newLease returns the granted lease, and false if the client is closed, so that the
// lease must be released again.
func (c *Client) newLease(g protocol.Grant, o AcquireOptions) (_ *LeaseHolder, open bool) {
	l := c.leaseOf(g, o)
	l.prepare(context.Background(), &l.ownMu, nil)
	h := protocol.NewHolder(o.Timing, &c.env, g)
	l.mu.Lock()
	open = l.begin(h)
	l.mu.Unlock()
	l.do(l.h.Step)
	if o.WatchRequests && !o.Timing.Manual {
		l.watchRequests()
	}
	return l, l.storeInPlace() && open
}

// newLease returns the lease granted under the session, and false if the session has
// ended meanwhile, so that no caller may have the lease.
func (s *SessionHolder) newLease(g protocol.Grant, o AcquireOptions) (_ *LeaseHolder, open bool) {
	l := s.c.leaseOf(g, o)
	l.under = s
	ctx := s.ctx
	if !s.isOpen() {
		ctx = context.Background() // the session's context may be busy cancelling all others
	}
	l.prepare(ctx, s.mu, &s.deadline)
	s.mu.Lock()
	h := protocol.NewUnderSession(s.t, &s.c.env, g, s.machine)
	began := l.begin(h)
	s.leases[h] = l
	open = s.machine.Open(s.c.leaseClock())
	s.mu.Unlock()
	l.do(l.h.Step)
	return l, l.storeInPlace() && began && open
}

func (c *Client) leaseOf(g protocol.Grant, o AcquireOptions) *LeaseHolder {
	l := c.options.API.NewLease()
	// A part of the beat needs no memory of its own.
	l.id, l.token, l.capacity = g.Record.Beat[:len(g.ID)], g.Record.Token, o.Capacity
	l.c, l.t, l.key, l.since, l.lease = c, o.Timing, g.Record.Key, c.leaseClock(), l
	switch l.former = g.Record.Prev; {
	case l.former == nil:
	case g.Former.Key != "":
		l.data = g.Former.Data
	case o.Want.Data == nil:
		l.data = g.Record.Data
	}
	return l
}

type leaseKey struct{}

// prepare sets the lease up before its machine is stepped.
func (l *LeaseHolder) prepare(ctx context.Context, mu *sync.Mutex, parent *leaseDeadline) {
	l.heldRecord.prepare(context.WithValue(ctx, leaseKey{}, l), mu, parent)
	if l.under != nil {
		l.loop.wake = l.under.loop.wake
	}
}

// begin begins to run the machine, and registers the lease with the client, which may
// stop it from then on. It returns false if the client is closed. The caller holds the
// mutex.
func (l *LeaseHolder) begin(h *protocol.Holder) (open bool) {
	l.heldRecord.begin(h)
	return l.c.beganRecord(&l.heldRecord) == nil
}

// reportProgress reports the progress of the work to the machine. The caller holds the
// mutex.
func (l *LeaseHolder) reportProgress() {
	if p := l.progress.Load(); p > 0 {
		l.h.Progress(time.Duration(p))
	}
}

// closeReleased closes l.released when no call is sent any more, or only the session must
// be closed.
func (l *LeaseHolder) closeReleased() {
	if l.released != nil && (l.h.Over() || l.h.SessionRemains()) {
		closeOnce(l.released)
	}
}

// ended is called when no call is sent any more, with the event that reports it. It returns
// the event to emit.
func (l *LeaseHolder) ended(e Event) Event {
	e.Busy = l.meter.total(l.c.clock())
	if e.Kind == EventReleased {
		end, failed := l.h.End()
		if e.End = string(end); failed != nil {
			e.Err = errors.New(failed.Reason)
		}
	}
	if l.meter != nil {
		l.c.readTimers.Drop(&l.meter.report)
	}
	if l.under != nil {
		delete(l.under.leases, l.h)
	}
	if rec := l.h.Record(); rec.State != driver.Held {
		l.c.observeRelease(rec, l.freeing) // the record in the reply to the release
	} else {
		l.c.Released(l.key)
	}
	return e
}

// LeaseOf returns the API's lease that ctx belongs to, or nil.
func LeaseOf(ctx context.Context) any {
	if l, ok := ctx.Value(leaseKey{}).(*LeaseHolder); ok {
		return l.Of
	}
	return nil
}

// Bind returns a context that has the values of ctx, and ends with ctx or the lease.
func (l *LeaseHolder) Bind(ctx context.Context) (bound context.Context, stop context.CancelFunc) {
	bound, cancel := context.WithCancelCause(context.WithValue(ctx, leaseKey{}, l))
	unhook := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	if l.ctx.Err() != nil {
		cancel(context.Cause(l.ctx)) // at once
	}
	return bound, func() {
		unhook()
		cancel(context.Canceled)
	}
}

// Key returns the name of the lock.
func (l *LeaseHolder) Key() string { return l.key }

// Token returns the fencing token.
func (l *LeaseHolder) Token() uint64 { return l.token }

// ID returns the unique ID of the lease.
func (l *LeaseHolder) ID() string { return l.id }

// Under returns the session that keeps the lock alive, nil if the lock has its own
// lease.
func (l *LeaseHolder) Under() *SessionHolder { return l.under }

// Former returns the previous term and the data that it left, or nil.
func (l *LeaseHolder) Former() (*driver.Term, []byte) { return l.former, l.data }

// Progress reports progress of the work.
func (l *LeaseHolder) Progress() { l.progress.Store(int64(l.c.leaseClock())) }

// MakeWay ends the lease as a request would.
func (l *LeaseHolder) MakeWay(q driver.Request) error {
	if why := l.deadline.Ended(); why != notEnded {
		return l.endedError(why)
	}
	q.By, q.At = l.c.options.Owner, time.Now()
	l.do(func(now time.Duration) protocol.Action { return l.h.HandOver(now, q) })
	return nil
}

// Busy returns how long the holder was at work, and how long it has held the lease.
func (l *LeaseHolder) Busy() (busy, held time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.meter.total(l.c.clock()), l.c.leaseClock() - l.since
}

// BusyShare returns the share of its capacity that the holder has recently been at
// work.
func (l *LeaseHolder) BusyShare() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.meter.share(l.c.clock())
}

// busyPeriodLeases is the meter's period in lease durations: a minute by
// default.
const busyPeriodLeases = 4

// Work counts n more pieces of work; n may be negative.
func (l *LeaseHolder) Work(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.c.clock()
	if l.meter == nil { // a holder that never uses Do gets no events
		granted := now - (l.c.leaseClock() - l.since)
		l.meter = &busyMeter{capacity: max(1, l.capacity), at: now, from: meterReading{at: granted}, to: meterReading{at: now}}
		l.meter.report.Run = l.reportBusy
		l.c.readTimers.Set(&l.meter.report, now+busyPeriodLeases*l.t.Lease)
	}
	l.meter.count(now)
	l.meter.running += n
}

// reportBusy runs at the end of a period.
func (l *LeaseHolder) reportBusy(now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.h.Over() {
		return
	}
	busy, whole, share := l.meter.period(now)
	l.c.events.emit(Event{Kind: EventBusy, Lock: l.key, Owner: l.c.options.Owner, Token: l.token, Busy: busy, Held: whole, Share: share})
	l.c.readTimers.Set(&l.meter.report, now+busyPeriodLeases*l.t.Lease)
}

// watchRequests asks the store to hint when a request is written into the record, if
// the store can watch. A hint makes a heartbeat due at once. Without a hint the holder
// finds the request with its next heartbeat.
func (l *LeaseHolder) watchRequests() {
	c := l.c
	if c.watcher == nil {
		return
	}
	c.sendUnanswered(func(ctx context.Context) error {
		unwatch, err := c.watch(ctx, l.key, l.hurries)
		if err != nil {
			return err // heartbeats go on without it
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.unwatch = unwatch; l.finished {
			l.unwatchRequests()
		}
		return nil
	})
}

// unwatchRequests ends the watch. The caller holds l.mu.
func (l *LeaseHolder) unwatchRequests() {
	if l.unwatch == nil {
		return
	}
	l.c.unwatch(l.unwatch)
	l.unwatch = nil
}

// Release ends the lease and waits until the release has ended, or ctx ends. It stores data,
// and failed as the failure of the work, unless they are nil.
func (l *LeaseHolder) Release(ctx context.Context, data []byte, failed *driver.Request) error {
	first := l.leave(data, failed)
	err := l.AwaitEnd(ctx)
	switch {
	case err != nil || data == nil:
		return err
	case !first:
		return fmt.Errorf("%w before, without this data", ErrReleased)
	}
	return l.lacksData()
}

// AwaitEnd waits until the release has ended, and returns how.
func (l *LeaseHolder) AwaitEnd(ctx context.Context) error {
	ended := ctx.Done()
	if ctx.Err() != nil {
		ended = nil
	}
	select {
	case <-l.released:
	case <-ended:
		if errors.Is(context.Cause(ctx), ErrReleased) {
			// ctx is the lease's own, which this release has ended.
			return l.AwaitEnd(context.WithoutCancel(ctx))
		}
		return uncertain(Done(ctx))
	case <-l.c.gone:
		select {
		case <-l.released:
		default:
			if err := l.result(); err != nil {
				return err
			}
			return uncertain(ErrClosed)
		}
	}
	return l.result()
}

// lacksData returns an error unless the data of a release are known to be stored.
func (l *LeaseHolder) lacksData() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch serial, missing := l.h.DataMissing(); {
	case !missing:
		return nil
	case l.h.DataRisked(serial):
		return uncertain(errDataUnknown) // a write with the data got no answer
	}
	return fmt.Errorf("the end of the session released the lock, without storing this data")
}

var errDataUnknown = errors.New("the lock is released, but the data may not have been stored")

// Free begins the release.
func (l *LeaseHolder) Free() { l.leave(nil, nil) }

// leave begins the release, with data and the failure of the work. It returns false
// if the release had begun before.
func (l *LeaseHolder) leave(data []byte, failed *driver.Request) (first bool) {
	l.workReturned(func(now time.Duration) (a protocol.Action) {
		first, a = l.h.Leave(now, data, failed)
		return a
	})
	return first
}

// discard releases a lease that no caller waits for any more.
func (l *LeaseHolder) discard() {
	l.workReturned(func(now time.Duration) protocol.Action { return l.h.GiveUp(now) })
}

// workReturned reports to the machine that the work has returned.
func (l *LeaseHolder) workReturned(leave func(now time.Duration) protocol.Action) {
	if p := l.under; p != nil {
		p.releaseMu.Lock()
		defer p.releaseMu.Unlock()
	}
	l.deadline.End(endedReleased)
	l.do(func(now time.Duration) protocol.Action {
		l.stopFor(ErrReleased)
		if l.released == nil {
			l.released = make(chan struct{})
		}
		return leave(now)
	})
}

// record writes the history before the work begins: see [protocol.HistoryWriter].
func (l *LeaseHolder) record(ctx context.Context, past []driver.Term) error {
	if len(past) == 0 || l.c.options.HistoryLimit < 0 {
		return nil
	}
	l.c.putHistory(ctx, l.key, past)
	if errors.Is(l.Check(), ErrLost) {
		// The process was paused meanwhile. The work has not begun.
		l.Free()
		return ErrExpired
	}
	return nil
}

// busyMeter adds up the time at work. A nil busyMeter shows zero.
type busyMeter struct {
	capacity int
	running  int
	at       time.Duration // busy is counted until then
	busy     time.Duration
	from     meterReading // the beginning of the last whole period
	to       meterReading // and its end
	report   timer        // of how busy the holder is, on the contender's clock
}

// meterReading is the state of the meter at an instant.
type meterReading struct{ at, busy time.Duration }

// count adds the time since its last call.
func (m *busyMeter) count(now time.Duration) {
	m.busy += time.Duration(m.running) * max(0, now-m.at)
	m.at = max(m.at, now)
}

// total returns the total time at work until now.
func (m *busyMeter) total(now time.Duration) time.Duration {
	if m == nil {
		return 0
	}
	m.count(now)
	return m.busy
}

// share returns the share of the capacity at work in this period and the previous one.
func (m *busyMeter) share(now time.Duration) float64 {
	if m == nil {
		return 0
	}
	m.count(now)
	return m.shareOf(m.busy-m.from.busy, m.at-m.from.at)
}

// period ends a period, and returns its figures.
func (m *busyMeter) period(now time.Duration) (busy, whole time.Duration, share float64) {
	m.count(now)
	m.from, m.to = m.to, meterReading{m.at, m.busy}
	busy, whole = m.to.busy-m.from.busy, m.to.at-m.from.at
	return busy, whole, m.shareOf(busy, whole)
}

func (m *busyMeter) shareOf(busy, whole time.Duration) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(busy) / float64(whole) / float64(m.capacity)
}
