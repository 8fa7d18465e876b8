// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
)

// timekeeper is one call of [Every].
type timekeeper struct {
	client  *tenure.Client
	name    string
	period  time.Duration
	options EveryOptions
	work    Work

	mu   sync.Mutex
	seen since // what this process knows of the newest period that it has read of
}

// run campaigns, and watches the ledger while another process leads.
func (k *timekeeper) run(ctx context.Context) error {
	election := k.client.Election(EveryLockName(k.name), nil)
	unwatch := k.watch(ctx, election)
	defer func() { unwatch() }()
	return election.Run(ctx, func(bound context.Context, lease *tenure.Lease) error {
		unwatch()
		defer func() { unwatch = k.watch(ctx, election) }()
		return k.lead(bound, lease)
	})
}

// watch notes the age of each period when it is first read: a process that waits
// measures time too, so that leaders which crash again and again do not stop it. It
// ends with ctx, or by stop, which waits for it.
func (k *timekeeper) watch(ctx context.Context, election *tenure.Election) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		var first periods // as the newest period was first read
		for leader, err := range election.Observe(ctx) {
			received := elapsed(k.client)
			if err != nil || leader.None() {
				continue
			}
			if l, err := parseEvery(leader.Data, leader.Token); err == nil && l.ID != "" {
				if l.ID != first.ID || l.N != first.N {
					first = l
				}
				if l.Age == first.Age {
					// The leader may not have the answer to its claim yet. It begins the work
					// when it has, before its lease ends.
					received += k.client.Options().LeaseDuration
				}
				k.note(l.noted(received))
			}
		}
	})
	return func() {
		cancel()
		watching.Wait()
	}
}

// note returns what is known of the period of s, and keeps it.
func (k *timekeeper) note(s since) since {
	k.mu.Lock()
	defer k.mu.Unlock()
	s = s.older(k.seen)
	k.seen = s.newer(k.seen)
	return s
}

// lead keeps time, and runs the work, for as long as this process leads.
func (k *timekeeper) lead(ctx context.Context, lease *tenure.Lease) error {
	data, err := dataOf(ctx, k.client, lease)
	if err != nil {
		return err
	}
	received := elapsed(k.client) // after the answer: all that came before counts as nothing
	l, err := parseEvery(data, lease.Token())
	if err != nil {
		return wrap(opEvery, k.name, err)
	}
	t := &term{timekeeper: k, lease: lease, written: received}
	if l.ID == "" {
		l = newPeriods()
		t.written -= t.interval() // at once, so that others count from here on
	}
	l.Period = k.period.Milliseconds()
	t.ledger, t.since = l, k.note(l.noted(received))
	return t.keep(ctx)
}

// term is the time for which this process leads.
type term struct {
	*timekeeper
	lease *tenure.Lease
	since since // of the period under way

	// unsure says that it is unknown whether the current period was begun. The write that
	// begins it may still arrive, so its age cannot be counted here.
	unsure bool

	mu      sync.Mutex // for the ledger: the age is written while the work runs
	ledger  periods
	written time.Duration // when the age was, by the client's clock
}

// keep writes the age, and begins periods, until the lease ends.
func (t *term) keep(ctx context.Context) error {
	for {
		now := elapsed(t.client)
		age := t.since.now(now)
		var err error
		switch {
		case age >= t.period:
			err = t.begin(ctx, age)
		case now-t.written >= t.interval():
			err = t.write(ctx)
		default:
			err = pause(ctx, t.brief(min(t.period-age, t.written+t.interval()-now)))
		}
		if errors.Is(err, errors.ErrUnsupported) {
			_ = t.lease.Release(context.WithoutCancel(ctx)) // this store does not support data: no ledger is left there
			return err
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx) // even if another error followed from it
		}
		if err != nil {
			t.leave(ctx)
			return err
		}
		t.lease.Progress()
	}
}

// interval is how often the age is written.
func (t *term) interval() time.Duration {
	return max(t.client.Options().HeartbeatPeriod, t.period/100)
}

// brief returns how long keep may wait: it must report progress, if the client asks for
// it.
func (t *term) brief(wait time.Duration) time.Duration {
	if p := t.client.Options().ProgressTimeout; p > 0 {
		return min(wait, p/3)
	}
	return wait
}

// pause waits, by a clock that may be slower or faster than the client's: the caller
// checks again.
func pause(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(max(wait, time.Millisecond))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// write writes the age of now.
func (t *term) write(ctx context.Context) error {
	t.mu.Lock()
	now := elapsed(t.client)
	t.ledger, t.written = t.ledger.aged(t.since, now), now
	data := t.ledger.bytes()
	t.mu.Unlock()
	return t.lease.SetData(ctx, data)
}

// leave releases the lock with the age of now, so that a process which ends in order
// loses nothing. If the store has not confirmed the period under way, it may be this
// write that begins it: then the age is what it was to begin with.
func (t *term) leave(ctx context.Context) {
	if t.lease.Check() != nil {
		return
	}
	l := t.ledger
	if !t.unsure {
		l = l.aged(t.since, elapsed(t.client))
	}
	_ = t.lease.ReleaseWith(context.WithoutCancel(ctx), &tenure.ReleaseOptions{Data: l.bytes()})
}

// begin begins the next period, and runs the work when that is confirmed.
func (t *term) begin(ctx context.Context, age time.Duration) error {
	if err := mayBegin(ctx, t.lease); err != nil {
		return err
	}
	e := entry{Slot: t.ledger.N + 1, Token: t.lease.Token(), Owner: t.lease.Owner(), Begun: time.Now().UnixMilli()}
	next := t.ledger.claimed(age, t.period, t.options.CatchUp, e)
	err := t.lease.SetData(ctx, next.bytes())
	confirmed := elapsed(t.client) // after the answer: the opposite of a lease
	t.ledger, t.since, t.written = next, next.noted(confirmed), confirmed
	t.unsure = err != nil
	if err == nil {
		err = mayBegin(ctx, t.lease)
	}
	if err != nil {
		// It is not taken back: another process may have read of this period, and
		// measures its age from there.
		err = &NotRunError{Slot: e.Slot, Err: err}
		t.told(e.run(0), err)
		return err
	}
	t.note(t.since)
	return t.run(ctx, e)
}

// run runs the work of a period, and writes the age meanwhile.
func (t *term) run(ctx context.Context, e entry) error {
	work, end := t.bound(ctx)
	p := pace{client: t.client, lease: t.lease, slot: e.Slot, retries: t.options.Retries, delay: t.options.RetryDelay}
	early := p.tells(e, func(ctx context.Context, ended entry) error {
		t.mu.Lock()
		t.ledger = t.ledger.end(ended)
		t.mu.Unlock()
		return t.write(ctx)
	})
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit
			early.over()
			end()
			t.ledger = t.ledger.end(p.ended(e, p.attempts, errPanicked))
			t.leave(ctx)
		}
	}()
	err := p.run(work, t.work)
	early.over()
	returned = true
	end()
	e = p.ended(e, p.attempts, err)
	t.ledger = t.ledger.end(e)
	t.told(e.run(0), err)
	if ctx.Err() != nil {
		return nil // the release writes it
	}
	return t.write(ctx)
}

// bound returns the context of the work, and has the age written until end is
// called. If work does not return in time, its lease is asked to stop.
func (t *term) bound(ctx context.Context) (work context.Context, end func()) {
	writing, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for pause(writing, t.interval()) == nil && t.write(writing) == nil {
		}
	})
	work, cancel := context.WithCancelCause(ctx)
	var up, late *time.Timer
	if d := t.options.Timeout; d > 0 {
		up = time.AfterFunc(d, func() { cancel(ErrTimeout) })
		late = time.AfterFunc(d+t.client.Options().StopTimeout, func() {
			_ = t.lease.StepDown(&tenure.StepDownOptions{Reason: "the work did not return when its time was up"})
		})
	}
	return work, func() {
		if up != nil {
			up.Stop()
			late.Stop()
		}
		cancel(nil)
		stop()
		wg.Wait()
	}
}

// told reports a run to the caller.
func (k *timekeeper) told(r Run, err error) {
	if k.options.OnRun != nil {
		k.options.OnRun(r, err)
	}
}

// elapsed returns how much time has certainly passed on the client's clock, since its own
// origin: it counts suspends, but no step of the wall clock.
func elapsed(client *tenure.Client) time.Duration { return client.Options().Clock.Contender() }
