// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/text"
)

// Lease is the time-bounded right of a holder to a lock.
//
// All methods may be called concurrently. Only Renew, SetData, Release and
// ReleaseWith wait for a heartbeat that is under way.
type Lease struct{ held engine.LeaseHolder }

// FromContext returns the lease that ctx belongs to. [Lease.Bind], [Client.Run] or
// [Election.Run] made ctx, or a parent of it.
func FromContext(ctx context.Context) (*Lease, bool) {
	l, ok := engine.LeaseOf(ctx).(*Lease)
	return l, ok
}

// Name returns the name of the lock.
func (l *Lease) Name() string { return l.held.Key() }

// Token returns the fencing token. Every change of holder raises it by one, and it
// never decreases. Send it to the resource, which must reject a token lower than the
// highest that it has seen.
func (l *Lease) Token() uint64 { return l.held.Token() }

// ID returns the unique ID of this lease: a string of letters and digits that no other
// acquire has, whatever its owner and token. It stays the same while the lease is
// renewed. A process that observes the end of the holder's process names the lease by its
// ID: see admin.ReleaseCrashed.
func (l *Lease) ID() string { return l.held.ID() }

// Owner returns the name under which the lock is held.
func (l *Lease) Owner() string { return l.held.Owner() }

// Timing returns the durations of the lease: those of its options, of its session, or of
// the client.
func (l *Lease) Timing() Timing {
	t := l.held.Timing()
	return Timing{
		LeaseDuration: t.Lease, HeartbeatPeriod: t.Heartbeat, RefreshPeriod: t.Refresh, Grace: t.Grace,
		RequestTimeout: t.RequestTimeout, StopTimeout: t.StopTimeout, ProgressTimeout: t.Progress,
	}
}

// Context returns a context that ends with the right to act: it is cancelled at the deadline, on
// a loss, and when the holder must stop. context.Cause says why: an error that matches [ErrLost],
// or [ErrReleased], or [ErrClosed], a [*StepDownError], or the cause of the context passed
// to [Client.Run].
func (l *Lease) Context() context.Context { return l.held.Context() }

// Bind returns a context with the values and the cancellation of ctx that also
// ends with the lease, as [Lease.Context] does. stop frees its resources.
func (l *Lease) Bind(ctx context.Context) (bound context.Context, stop context.CancelFunc) {
	return l.held.Bind(ctx)
}

// Check returns nil while the holder may act. After that it returns why the holder may
// not act any more: an error that matches [ErrLost], or [ErrReleased], or
// [ErrStopTimeout]. It only reads a clock: it is exact even if timers are late, it
// never blocks, and once it has failed it fails for ever.
//
// Call it before every side effect. The process can still be paused between the
// check and the effect: a resource that must never be overwritten has to check the
// token as well.
//
// While work drains after it was told to stop, Check still returns nil, so that the
// work can write a last checkpoint.
func (l *Lease) Check() error {
	return l.wrapped("check", l.held.Check())
}

// Remaining returns the time until the deadline, 0 when the right to act has
// ended.
func (l *Lease) Remaining() time.Duration { return l.held.Remaining() }

// Progress reports progress of the work. It matters only with
// [Options.ProgressTimeout].
func (l *Lease) Progress() { l.held.Progress() }

// Renew sends a heartbeat now, and waits until a heartbeat sent after the call is
// confirmed. It retries until ctx or the lease ends. For a lock under a session it
// sends the session's heartbeat.
func (l *Lease) Renew(ctx context.Context) error {
	if s := l.Session(); s != nil && !l.held.Ended() {
		return s.Renew(ctx)
	}
	return l.wrapped("renew", l.held.Renew(ctx))
}

// SetData writes data into the record, where others and the next holder can read it,
// and waits for the confirmation. It also renews the lease. Of several concurrent calls
// the last one wins.
//
// After an error that matches [ErrUncertain], the data may be in the record, or may
// still get there. An error that matches [errors.ErrUnsupported] says that the store
// never writes such data: the lease goes on with the old data.
func (l *Lease) SetData(ctx context.Context, data []byte) error {
	err := checkData(data)
	if err == nil {
		err = l.held.SetData(ctx, data)
	}
	return l.wrapped("set data", err)
}

// wrapped returns err as the error of an operation on the lock, nil for nil.
func (l *Lease) wrapped(op string, err error) error {
	if err == nil {
		return nil
	}
	return wrap(op, l.Name(), err)
}

// StepDown ends the lease as a request would: see [Client.StepDown]. It cancels the
// context with a [*StepDownError] and returns. Heartbeats go on while the work drains, for
// [Options.StopTimeout] at most. Release then releases or reserves the lock as the options
// say. StepDown costs no request of its own. The first end of a lease counts: a lease that
// must stop already, or has ended, is not handed over.
//
// The next owner or label is not notified: it takes the lock if it is waiting for it. If
// it does not, the others wait until the reservation expires. A holder that knows that the
// next owner is gone steps down without naming one: Release then leaves the lock free,
// even if the holder was asked to hand over before, or is asked after its right to act has
// ended.
func (l *Lease) StepDown(options *StepDownOptions) error {
	op, q, err := options.request("hand over")
	switch {
	case err != nil:
	case q.To == l.Owner():
		err = refused("%q already holds the lock, under token %d", q.To, l.Token())
	case q.ToLabel != "" && q.ToLabel == l.held.Label():
		err = refused("%q already holds the lock, under token %d, and has label %q", l.Owner(), l.Token(), q.ToLabel)
	default:
		err = l.held.MakeWay(q)
	}
	return l.wrapped(op, err)
}

// Previous returns how the previous term ended, and the data that it left, so that
// unfinished work can be repeated. It returns false without a previous term.
func (l *Lease) Previous() (Term, bool) {
	former, data := l.held.Former()
	if former == nil {
		return Term{}, false
	}
	t := publicTerm(former)
	t.Data = bytes.Clone(data)
	return t, true
}

// Run takes the lock, runs work while it is held, waits for it to return, and
// releases the lock. It is the right default.
//
// The context of work carries ctx's values, and ends with ctx, with the lease,
// and with the client; see [Lease.Context]. When it ends, work must return. Heartbeats
// go on meanwhile, for [Options.StopTimeout] at most.
//
// Run returns what work returns. If the lease was lost before that, or work
// outlasted its heartbeats, the error matches [ErrLost] or [ErrStopTimeout]
// too. If the holder was asked to step down, and work returned an error, it
// matches [ErrSteppedDown]. If the lock was not acquired, work was not run; see [Client.Acquire].
// If work panics, Run releases the lock and the panic continues.
//
// If work returns an error, or panics, without having been asked to stop, the term ends
// as [EndFailed], with the error's text as the reason.
func (c *Client) Run(ctx context.Context, name string, options *AcquireOptions, work func(context.Context, *Lease) error) error {
	if err := checkWork("run", name, work == nil); err != nil {
		return err
	}
	return run(ctx, name, options, work, c.Acquire)
}

// TryRun is [Client.Run] for work to be skipped while another process holds the lock:
// it does not wait for a holder. The error is then a [*HeldError], which matches
// [ErrHeld], and work was not run; see [Client.TryAcquire].
func (c *Client) TryRun(ctx context.Context, name string, options *AcquireOptions, work func(context.Context, *Lease) error) error {
	if err := checkWork("try run", name, work == nil); err != nil {
		return err
	}
	return run(ctx, name, options, work, c.TryAcquire)
}

func run(ctx context.Context, name string, options *AcquireOptions, work func(context.Context, *Lease) error,
	acquire func(context.Context, string, *AcquireOptions) (*Lease, error),
) error {
	l, err := acquire(ctx, name, options)
	if err != nil {
		return err
	}
	return l.hold(ctx, work)
}

// hold runs work under the lease, and releases it.
func (l *Lease) hold(ctx context.Context, work func(context.Context, *Lease) error) error {
	lost, err := l.run(ctx, work)
	if lost != nil && (err != nil || !errors.Is(lost, ErrSteppedDown)) {
		return lostWith(&Error{"run", l.Name(), lost}, err)
	}
	return err
}

// run runs work under the lease and releases it. If the lease was lost, or a request
// ended it, before work had returned, lost says how; err is the error of work.
func (l *Lease) run(ctx context.Context, work func(context.Context, *Lease) error) (lost, err error) {
	bound, stop := l.Bind(ctx)
	defer stop()
	unhook := context.AfterFunc(ctx, func() { l.held.Stop(context.Cause(ctx)) })
	defer unhook()

	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit
			_ = l.ReleaseWith(context.WithoutCancel(ctx), l.failure(ctx, errBroken))
		}
	}()
	err = work(bound, l)
	returned = true

	lost = l.ReleaseWith(context.WithoutCancel(ctx), l.failure(ctx, err))
	if errors.Is(lost, ErrLost) || errors.Is(lost, ErrStopTimeout) {
		return errors.Unwrap(lost), err
	}
	if cause := context.Cause(l.Context()); errors.Is(cause, ErrSteppedDown) {
		return cause, err
	}
	return nil, err // released, or expiring by itself: the lease covered the work
}

// errBroken is the failure of work that has not returned.
var errBroken = errors.New("the work panicked, or ended its goroutine")

// failure returns the release options for the error of work: that the work has failed,
// unless it was asked to stop before. Its own context, the lease, and the client,
// through the lease, can stop the work.
func (l *Lease) failure(ctx context.Context, err error) *ReleaseOptions {
	if err == nil || ctx.Err() != nil || l.Context().Err() != nil || l.Check() != nil {
		return nil
	}
	return &ReleaseOptions{Failed: err}
}

// Do runs work if at least need of the lease remains, and returns its error.
// Otherwise it returns an error that matches [ErrTooLate], or the error of Check, and
// does nothing. The context of the work comes from Bind.
//
// The time that work takes counts as busy: see [Lease.Busy] and
// [Lease.BusyShare].
func (l *Lease) Do(ctx context.Context, need time.Duration, work func(context.Context) error) error {
	if err := l.Check(); err != nil {
		return err
	}
	if left := l.Remaining(); left < need {
		return wrap("do", l.Name(), refused("%w: %v left, %v needed", ErrTooLate, left.Round(time.Millisecond), need))
	}
	bound, stop := l.Bind(ctx)
	defer stop()
	l.held.Work(+1)
	defer l.held.Work(-1)
	return work(bound)
}

// Busy returns how long the holder was at work in Do, and how long it has held the
// lease. Work under way counts until now, and parallel work adds up.
func (l *Lease) Busy() (busy, held time.Duration) { return l.held.Busy() }

// BusyShare returns the share of its capacity that the holder was recently at work in
// Do: in the last whole period of four lease durations, and since then; 1 is all of it.
// [AcquireOptions.Capacity] says how many pieces of work the holder can do at once.
//
// Use it for capacity planning: a leader that is busy for 70 % of its time has only 30
// % left to grow, and to catch up after a takeover. [EventBusy] reports it after each
// period.
func (l *Lease) BusyShare() float64 { return l.held.BusyShare() }

const defaultHealthFailures = 3

// health runs the health checks of a leader while it works.
type health struct {
	name     string // of the election
	ask      func(context.Context, *Lease) error
	period   time.Duration
	failures int // in a row, that end the term
}

// beside returns work that runs the checks in parallel.
func (h health) beside(lease time.Duration, work func(context.Context, *Lease) error) (func(context.Context, *Lease) error, error) {
	switch {
	case h.period < 0 || h.failures < 0:
		return nil, refused("health period %v and health failures %d must not be negative", h.period, h.failures)
	case h.ask == nil:
		return work, nil
	}
	if h.period == 0 {
		h.period = lease
	}
	if h.failures == 0 {
		h.failures = defaultHealthFailures
	}
	return func(ctx context.Context, l *Lease) error {
		working, stop := context.WithCancelCause(ctx)
		var sick error
		checked := make(chan struct{})
		go func() {
			defer close(checked)
			sick = h.check(working, l)
			stop(sick)
		}()
		end := func() {
			stop(nil)
			<-checked
		}
		defer end() // after a panic as well
		err := work(working, l)
		if end(); sick != nil && ctx.Err() == nil {
			return lostWith(&Error{"lead", h.name, sick}, endOf(working, err))
		}
		return err
	}, nil
}

// check checks the health of a leader until ctx ends. It returns why the leader is
// unhealthy, or nil.
func (h health) check(ctx context.Context, l *Lease) error {
	ticks := time.NewTicker(h.period)
	defer ticks.Stop()
	for failed := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
		asking, end := context.WithTimeout(ctx, h.period)
		err := h.ask(asking, l)
		end()
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			failed = 0
			continue
		}
		if failed++; failed >= h.failures {
			return refused("%w %d times in a row: %w", ErrUnhealthy, failed, err)
		}
	}
}

// Release ends the lease: it cancels the context with [ErrReleased], makes Check fail,
// and releases the record, so that others need not wait. Call it only after the work
// has returned. It waits for the store's answer: for one lease duration, and for the
// request that is under way then. A context that is already done at the call is
// ignored, so that a deferred Release works. A context that ends meanwhile ends the
// waiting, and the release goes on in the background.
//
// The result is nil if the lease was good until now. Otherwise it matches
//
//   - [ErrLost] if the lease had been lost before the work was done
//   - [ErrStopTimeout] if the work outlasted its heartbeats
//   - [ErrUncertain] if no answer came: the record is released, or expires by itself
//   - [ErrNotReleased] if the store has refused the release all the time
//
// Even with ErrLost and ErrStopTimeout, Release releases what it can. Releasing again
// returns the same.
//
// When the session of the lock is closing, Release does not wait: the lock is free
// when the session is closed.
func (l *Lease) Release(ctx context.Context) error { return l.ReleaseWith(ctx, nil) }

// ReleaseOptions say what else a release records. Nil means nothing.
type ReleaseOptions struct {
	// Data is written into the record in the same write as the release, for the next
	// holder. If nil, the data stay as they are; to clear them, use an empty slice that is
	// not nil.
	Data []byte

	// Failed says that the work has failed. If not nil, the term ends as
	// [EndFailed] instead of EndReleased, with the error's text as the reason:
	// [Lease.Previous] of the next holder and the history show it. Unprintable characters
	// are left out of the text, and the text is cut to 1,024 bytes.
	//
	// Any other end of the term takes precedence: a lost lease, work that did not stop in
	// time, or a request to step down or to hand over that the holder knows of. After such
	// a request the term ends as requested, the lock is reserved for the next owner or
	// label, and the requester gets its answer. Failed is then not recorded.
	Failed error
}

// ReleaseWith is like [Lease.Release], and records data and whether the work has
// failed in the same write.
//
// Only the first release of a lease counts. A later one writes no data, and returns an
// error that matches [ErrReleased]. If the data are too large, ReleaseWith returns an
// error and releases nothing. If the result is nil, the data are in the record. If it
// matches [ErrUncertain] or ErrLost, they may be.
//
// Under a session, ReleaseWith writes the record of the lock itself. A plain
// Release under a session that is closing costs no write.
func (l *Lease) ReleaseWith(ctx context.Context, options *ReleaseOptions) error {
	const op = "release"
	var data []byte
	var failed *driver.Request
	if options != nil {
		if err := checkData(options.Data); err != nil {
			return wrap(op, l.Name(), err)
		}
		if options.Data != nil {
			data = append([]byte{}, options.Data...)
		}
		if options.Failed != nil {
			failed = &driver.Request{By: l.Owner(), Reason: text.Failure(options.Failed.Error()), At: time.Now()}
		}
	}
	return l.wrapped(op, l.held.Release(ctx, data, failed))
}

// The result of Run combines how a term ended with what the work returned, and the work
// often returns how the term ended: the cause of its context, or the error of Check.

// lostWith joins the errors of a lost lease and of its work. The work's error is left
// out if it says no more than the loss.
func lostWith(lost *Error, work error) error {
	if work != nil && repeats(work, lost.Err) {
		return lost
	}
	return errors.Join(lost, work)
}

// repeats reports whether err says no more than lost, as another caller got it.
func repeats(err, lost error) bool {
	for {
		told, ok := err.(*Error) //nolint:errorlint // what is around it says more
		if !ok {
			break
		}
		err = told.Err
	}
	if same(err, lost) {
		return true
	}
	for _, kind := range []error{ErrSuperseded, ErrSteppedDown} { // two values of one event
		if leaf(err) && errors.Is(err, kind) && errors.Is(lost, kind) {
			return true
		}
	}
	return leaf(err) && errors.Is(lost, err)
}

// endOf returns nil if err only says that ctx has ended, or is one of the other errors
// by which a campaign ends in order, whatever text wraps them. Otherwise it returns
// err: an error that also wraps another one is not dropped.
func endOf(ctx context.Context, err error, others ...error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	ends := append([]error{ctx.Err(), context.Cause(ctx), context.Canceled}, others...)
	if madeOf(err, ends) {
		return nil
	}
	return err
}

// madeOf reports whether everything that err wraps is one of the ends.
func madeOf(err error, ends []error) bool {
	for _, end := range ends {
		if same(err, end) {
			return true
		}
	}
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
	case interface{ Unwrap() []error }:
		all := e.Unwrap()
		for _, inner := range all {
			if !madeOf(inner, ends) {
				return false
			}
		}
		return len(all) > 0
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return madeOf(inner, ends)
		}
	}
	for _, end := range ends {
		if end != nil && errors.Is(err, end) {
			return true
		}
	}
	return false
}

// leaf reports whether err wraps nothing.
func leaf(err error) bool {
	switch e := err.(type) { //nolint:errorlint // what it wraps is what is asked
	case interface{ Unwrap() []error }:
		return false
	case interface{ Unwrap() error }:
		return e.Unwrap() == nil
	}
	return true
}

// same reports whether both are the same value.
func same(a, b error) bool {
	return a != nil && b != nil && reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b //nolint:errorlint // this one
}

// checkWork returns an error if the work is missing, unless the name is invalid, which
// is reported first.
func checkWork(op, name string, missing bool) error {
	if missing && checkName(name) == nil {
		return wrap(op, name, errNoWork)
	}
	return nil
}

var errNoWork = errors.New("the work is nil: hand in a function")
