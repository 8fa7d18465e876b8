// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/text"
)

const opOnce = "run once"

// call is one acquire of [Once] with its work.
type call struct {
	client  *tenure.Client
	name    string
	slot    int64
	options Options
	work    Work

	held   bool // the lock was granted: what follows is no refusal by its holder
	lease  *tenure.Lease
	ledger ledger // as the store has it, or is to have it
	stop   context.CancelCauseFunc
	result Result
}

// run takes the lock and runs the slots under it.
func (c *call) run(ctx context.Context) error {
	ctx, c.stop = context.WithCancelCause(ctx)
	defer c.stop(nil)
	o := &tenure.AcquireOptions{UnlessAlive: !c.options.Wait, History: c.options.History, StoreTimeout: c.options.StoreTimeout}
	return c.client.Run(ctx, LockName(c.name), o, c.hold)
}

// hold begins the slots, runs the work of each, and writes down how they ended.
func (c *call) hold(ctx context.Context, lease *tenure.Lease) error {
	c.held, c.lease = true, lease
	slots, err := c.open(ctx)
	if err != nil {
		// Released here, the term does not count as failed.
		_ = lease.Release(context.WithoutCancel(ctx))
		return wrap(opOnce, c.name, err)
	}
	var errs []error // of the work for each slot
	for i, at := range slots {
		e := entry{Slot: at.Last, Token: lease.Token(), Owner: lease.Owner()}
		if i == 0 {
			e.Missed = c.result.MissedCount
		}
		e, err := c.begin(ctx, e, at.First)
		if err != nil {
			for _, at := range slots[i : len(slots)-1] {
				c.result.Missed, c.result.MissedCount = append(c.result.Missed, at.Last), c.result.MissedCount+1
			}
			return errors.Join(append(errs, wrap(opOnce, c.name, err))...)
		}
		last := i == len(slots)-1
		e, err = c.do(ctx, e, last)
		c.ledger = c.ledger.end(e)
		errs = append(errs, err)
		if last {
			c.result.Run = e.run(0)
		} else {
			c.result.Caught = append(c.result.Caught, e.run(0))
		}
	}
	err = c.release(ctx, errs[len(errs)-1])
	c.result.Recorded = err == nil
	switch {
	case err == nil, errors.Is(err, tenure.ErrLost), errors.Is(err, tenure.ErrStopTimeout): // Client.Run reports that
	default:
		errs = append(errs, fmt.Errorf("slot %d has ended, but its end may not be in the ledger: %w", c.slot, err))
	}
	return errors.Join(errs...)
}

// open reads the ledger, and returns the slots to run. Each is the end of the span that
// counts as begun with it.
func (c *call) open(ctx context.Context) ([]span, error) {
	data, err := dataOf(ctx, c.client, c.lease)
	if err == nil {
		c.ledger, err = parseOnce(data, c.lease.Token())
	}
	if err == nil {
		err = c.ledger.refuseSchedule(c.options.Schedule, c.slot, 0)
	}
	if err == nil {
		err = c.ledger.refuse(c.slot, &c.options, 0)
	}
	if err != nil {
		return nil, err
	}
	newest, ok := c.ledger.newest()
	lost := ok && newest.open() && newest.Slot != c.slot
	if lost {
		r := newest.run(0)
		c.result.Unfinished = &r
	}
	if ok && newest.Slot > c.slot && newest.State != StateReset && newest.State != StateChanged {
		r := newest.run(0)
		c.result.Later = &r
	}
	slots, err := c.missed()
	if err != nil {
		return nil, err
	}
	this := span{c.slot, c.slot}
	switch last, below := c.ledger.Begun.below(c.slot); {
	case !c.options.OutOfOrder:
		this.First = math.MinInt64
	case c.options.Between == nil || c.ledger.Begun.has(c.slot):
	case len(slots) > 0:
		this.First = slots[len(slots)-1].Last + 1
	case below:
		this.First = last + 1
	}
	if lost && c.options.Redo && len(slots) < c.options.CatchUp && newest.Slot < c.slot && c.ledger.Begun.has(newest.Slot) {
		slots = slices.Insert(slots, 0, span{newest.Slot, newest.Slot})
	}
	n := max(0, len(slots)-c.options.CatchUp)
	for _, at := range slots[:n] {
		c.result.Missed = append(c.result.Missed, at.Last)
	}
	c.result.MissedCount += n
	return append(slots[n:len(slots):len(slots)], this), nil
}

// missed returns the slots between the last one begun before this slot, and this slot.
// Slots that Between does not list are only counted.
func (c *call) missed() ([]span, error) {
	last, ok := c.ledger.Begun.below(c.slot)
	if !ok || last == math.MinInt64 || c.options.Between == nil || c.ledger.Begun.has(c.slot) {
		return nil, nil
	}
	between, more := c.options.Between(last, c.slot)
	if err := checkBetween(between, more, last, c.slot); err != nil {
		return nil, err
	}
	c.result.MissedCount = more
	var slots []span
	for i, slot := range between {
		first := slot
		switch {
		case !c.options.OutOfOrder:
			first = math.MinInt64
		case i > 0 || more == 0:
			first = last + 1
		}
		slots = append(slots, span{first, slot})
		last = slot
	}
	return slots, nil
}

// checkBetween checks the results of the caller's Between.
func checkBetween(between []int64, more int, last, slot int64) error {
	if more < 0 || more > 0 && len(between) == 0 {
		return fmt.Errorf("option Between: %d more slots after a list of %d: list the newest slots and count only the others", more, len(between))
	}
	for _, s := range between {
		if s <= last || s >= slot {
			return fmt.Errorf("option Between: slot %d is out of order: list rising slots between %d and %d, without these two", s, last, slot)
		}
		last = s
	}
	return nil
}

// dataOf returns the data that the lock had when the lease was granted.
func dataOf(ctx context.Context, client *tenure.Client, lease *tenure.Lease) ([]byte, error) {
	if p, ok := lease.Previous(); ok {
		return p.Data, nil
	}
	if lease.Token() == 1 {
		return nil, nil // no holder can have left any
	}
	st, err := client.Status(ctx, lease.Name())
	return st.Data, err
}

// begin has the store confirm that the slot is begun, and all from the first one on. If it returns an error, the
// work must not begin, and the lock is released, or expires.
func (c *call) begin(ctx context.Context, e entry, first int64) (entry, error) {
	if err := mayBegin(ctx, c.lease); err != nil {
		return e, fmt.Errorf("slot %d was not begun: %w", e.Slot, errors.Join(err, c.release(ctx, nil)))
	}
	e.Begun = time.Now().UnixMilli()
	before := c.ledger
	c.ledger = before.begin(e, first)
	if s := c.options.Schedule; s != nil {
		c.ledger.Schedule = s.known(e.Slot)
	}
	err := c.lease.SetData(ctx, c.ledger.bytes())
	if err == nil {
		err = mayBegin(ctx, c.lease)
	}
	if err == nil {
		c.result.Closed = c.closed(before, span{first, e.Slot})
		return e, nil
	}
	if c.lease.Check() == nil {
		// The lease is good, and the work has not begun: the mark is taken back.
		c.ledger = before
		if c.release(ctx, nil) == nil {
			return e, fmt.Errorf("slot %d was not begun: %w", e.Slot, err)
		}
	}
	return e, &NotRunError{Slot: e.Slot, Err: err}
}

// closed returns the floor if the mark of a span has raised it over a gap.
func (c *call) closed(before ledger, s span) *int64 {
	if floor, ok := c.ledger.Begun.floor(); ok && c.options.OutOfOrder && before.Begun.with(s).givenUp(floor) {
		return &floor
	}
	return c.result.Closed
}

// mayBegin returns why work must not begin, nil if it may.
func mayBegin(ctx context.Context, lease *tenure.Lease) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return lease.Check()
}

// release releases the lock, and writes the ledger in the same write. If no slot was
// begun, no ledger is written: the store may not support data.
func (c *call) release(ctx context.Context, failed error) error {
	o := &tenure.ReleaseOptions{Data: []byte{}, Failed: failed}
	if len(c.ledger.Runs) > 0 {
		o.Data = c.ledger.bytes()
	}
	return c.lease.ReleaseWith(context.WithoutCancel(ctx), o)
}

// earlyEnd keeps the end that work reports before it returns apart from its outcome.
type earlyEnd struct {
	mu       sync.Mutex // held while the end is written
	returned bool
}

func (e *earlyEnd) over() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.returned = true
}

// do runs the work for a slot that is begun, and returns how it ended.
func (c *call) do(ctx context.Context, e entry, last bool) (entry, error) {
	ctx, end := c.bound(ctx, last)
	defer end()
	p := pace{client: c.client, lease: c.lease, slot: e.Slot, retries: c.options.Retries, delay: c.options.RetryDelay}
	early := p.tells(e, func(ctx context.Context, ended entry) error {
		c.ledger = c.ledger.end(ended)
		return c.lease.SetData(ctx, c.ledger.bytes())
	})
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit
			early.over()
			c.ledger = c.ledger.end(p.ended(e, p.attempts, errPanicked))
			_ = c.release(ctx, errPanicked)
		}
	}()
	err := p.run(ctx, c.work)
	early.over()
	returned = true
	return p.ended(e, p.attempts, err), err
}

// bound returns the context of the work for a slot. When its time is up, and there
// is nothing more to run, the lease is asked to stop; otherwise when the work has not
// returned for the time in which it must.
func (c *call) bound(ctx context.Context, last bool) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if c.options.Timeout == 0 {
		return ctx, func() { cancel(nil) }
	}
	up := time.AfterFunc(c.options.Timeout, func() { cancel(ErrTimeout) })
	patience := c.client.Options().StopTimeout
	if last {
		patience = 0
	}
	late := time.AfterFunc(c.options.Timeout+patience, func() {
		cancel(ErrTimeout)
		c.stop(ErrTimeout)
	})
	return ctx, func() {
		up.Stop()
		late.Stop()
		cancel(nil)
	}
}

// refusal is called when another holder has the lock. It returns why the slot is not
// run, or nil if the lock is free, and the slot not begun.
func (c *call) refusal(ctx context.Context, err error) error {
	held := &tenure.HeldError{}
	errors.As(err, &held)
	st, l, err := look(ctx, c.client, c.name)
	switch {
	case errors.Is(err, tenure.ErrUnreadable):
		return err
	case err != nil:
		return &RunningError{Slot: c.slot, Held: held} // what is known
	}
	if err = l.refuseSchedule(c.options.Schedule, c.slot, alive(st)); err != nil {
		return err
	}
	err = l.refuse(c.slot, &c.options, alive(st))
	if done, ok := errors.AsType[*DoneError](err); err != nil && (!ok || done.Run.State != StateRunning) {
		return err
	}
	if running := runningOf(st, l.Runs, held); running != nil {
		running.Slot = c.slot
		return running
	}
	return nil
}

// runningOf returns the holder at work, nil if the lock is free.
func runningOf(st tenure.Status, runs []entry, held *tenure.HeldError) *RunningError {
	if st.State != tenure.StateHeld && st.State != tenure.StateReserved {
		return nil
	}
	e := &RunningError{Held: &tenure.HeldError{
		Owner: st.Owner, Token: st.Token, FreeIn: st.FreeIn, Own: held.Own && held.Token == st.Token,
		Reserved: st.State == tenure.StateReserved,
	}}
	if len(runs) > 0 {
		if last := runs[len(runs)-1]; last.Token == st.Token && (last.open() || last.Left != "") {
			e.Run = last.run(st.Token)
		}
	}
	return e
}

var errPanicked = errors.New("the work panicked")

// pace runs work, again if it fails and is to be retried, and measures it.
type pace struct {
	client  *tenure.Client
	lease   *tenure.Lease
	slot    int64
	retries int
	delay   time.Duration
	end     func(ctx context.Context, attempt int, err error, left string) error // of Turn.Ended

	begun    time.Duration // on the client's clock
	attempts int
}

// tells has write put an end into the ledger that work reports before it returns.
func (p *pace) tells(e entry, write func(ctx context.Context, ended entry) error) *earlyEnd {
	early := &earlyEnd{}
	p.end = func(ctx context.Context, attempt int, err error, left string) error {
		early.mu.Lock()
		defer early.mu.Unlock()
		if early.returned {
			return nil
		}
		ended := p.ended(e, attempt, err)
		ended.Left = cut(text.Line(left))
		return write(ctx, ended)
	}
	return early
}

func (p *pace) run(ctx context.Context, work Work) error {
	p.begun = elapsed(p.client)
	for delay := p.delay; ; delay = min(2*delay, max(maxRetryDelay, p.delay)) {
		p.attempts++
		err := work(ctx, &Turn{lease: p.lease, slot: p.slot, attempt: p.attempts, end: p.end})
		if err == nil {
			return nil
		}
		if p.attempts > p.retries || !p.pause(ctx, delay) {
			if errors.Is(context.Cause(ctx), ErrTimeout) && !errors.Is(err, ErrTimeout) {
				err = fmt.Errorf("%w: %w", ErrTimeout, err)
			}
			return err
		}
	}
}

// pause waits before another attempt. It returns false if there must be none.
func (p *pace) pause(ctx context.Context, delay time.Duration) bool {
	if pause(ctx, delay-rand.N(delay/4+1)) != nil {
		return false
	}
	p.lease.Progress()
	return p.lease.Check() == nil && ctx.Err() == nil
}

// ended returns the entry of a run whose work has ended.
func (p *pace) ended(e entry, attempts int, err error) entry {
	e.Ended, e.Took = time.Now().UnixMilli(), (elapsed(p.client) - p.begun).Milliseconds()
	e.Attempts, e.State = attempts, StateDone
	if err == nil {
		return e
	}
	e.State, e.Error = StateFailed, textOf(err)
	if exit, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err); ok {
		e.Exit = exit.ExitCode()
	}
	return e
}
