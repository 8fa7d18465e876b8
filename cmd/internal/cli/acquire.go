// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tenurelock/tenure"
)

// patience says how long to wait for a lock, and for the store.
type patience struct {
	wait  *time.Duration // nil: for ever; 0: not at all
	store time.Duration  // see tenure.AcquireOptions.StoreTimeout
	// unlessAlive gives up at the first sign of life of the holder.
	unlessAlive bool
	held        int // the exit status of not getting the lock

	election      bool // it is to hear of requests at once
	priority      int
	priorityPause time.Duration
}

// errWaited is the cause of a context that --wait has ended.
var errWaited = errors.New("waited long enough")

// acquire takes the lock. The error is a failure, or a signaled.
func (s *session) acquire(parent context.Context, p patience) (*tenure.Lease, error) {
	ctx, stop := s.signals.cancel(parent)
	defer stop()
	if p.wait != nil && *p.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, *p.wait, errWaited)
		defer cancel()
	}
	announced := make(chan struct{})
	announceCtx, silence := context.WithCancel(ctx)
	go func() {
		defer close(announced)
		s.announce(announceCtx)
	}()
	lease, err := s.take(ctx, p)
	silence()
	<-announced
	if sig := (signaled{}); errors.As(context.Cause(ctx), &sig) {
		// Also when the lock came at the same moment: nothing has begun.
		if lease != nil {
			_ = lease.Release(context.WithoutCancel(ctx)) // nothing was done under it
		}
		return nil, sig
	}
	if err != nil {
		return nil, s.refusal(ctx, p, err)
	}
	return lease, nil
}

func (s *session) take(ctx context.Context, p patience) (*tenure.Lease, error) {
	o := &tenure.AcquireOptions{
		StoreTimeout: p.store, UnlessAlive: p.unlessAlive,
		History: true, Attentive: p.election, Priority: p.priority, PriorityPause: p.priorityPause,
	}
	for {
		var lease *tenure.Lease
		var err error
		if p.wait != nil && *p.wait == 0 {
			lease, err = s.client.TryAcquire(ctx, s.lock, o)
		} else {
			lease, err = s.client.Acquire(ctx, s.lock, o)
		}
		if errors.Is(err, tenure.ErrExpired) {
			continue // this process was stopped while it took the lock
		}
		return lease, err
	}
}

// refusal tells a lock that is held from a store that cannot be reached.
func (s *session) refusal(ctx context.Context, p patience, err error) error {
	var held *tenure.HeldError
	switch {
	case errors.As(err, &held) && p.unlessAlive:
		return s.notAcquired(p, fmt.Sprintf("held by %s, which has shown that it lives", holderText(held.Owner, held.Token)))
	case errors.As(err, &held) && held.Reserved:
		return s.notAcquired(p, held.Error())
	case errors.As(err, &held):
		return s.notAcquired(p, fmt.Sprintf("held by %s", holderText(held.Owner, held.Token)))
	case errors.Is(context.Cause(ctx), errWaited):
		if e := s.storeError.Load(); e != nil {
			return storeFailed(fmt.Errorf("no answer within %v: %w", *p.wait, *e))
		}
		return s.notAcquired(p, fmt.Sprintf("not acquired within %v", *p.wait))
	}
	return storeFailed(err)
}

// notAcquired is ordinary: with --quiet the exit status alone tells.
func (s *session) notAcquired(p patience, why string) error {
	if s.console.quiet {
		return ended(p.held)
	}
	return failed(p.held, fmt.Errorf("%q: %s", s.lock, why))
}

// announce says who holds the lock while it is waited for.
func (s *session) announce(ctx context.Context) {
	defer s.console.clear()
	begun := time.Now()
	timer := time.NewTimer(announceAfter)
	defer timer.Stop()
	var told uint64
	due, held := false, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			due = true
		case <-s.waiting:
			held = true
		}
		if !due || !held || s.console.quiet || s.console.json {
			continue
		}
		// The look also brings the time that is left up to date.
		st, err := s.client.Status(ctx, s.lock)
		if err == nil && st.Held && (s.console.terminal || st.Token != told) {
			told = st.Token
			s.console.show("%s", waitingText(s.lock, st, s.console.terminal, time.Since(begun)))
		}
		if s.console.terminal {
			timer.Reset(max(time.Second, s.client.Options().RefreshPeriod))
		}
	}
}

func waitingText(lock string, st tenure.Status, live bool, waited time.Duration) string {
	text := fmt.Sprintf("waiting for %q", lock)
	if live {
		text += fmt.Sprintf(" for %v", waited.Round(time.Second))
	}
	text += fmt.Sprintf(": held by %s since %s", holderText(st.Owner, st.Token), clockText(st.Since))
	if st.Unchanged > 2*st.Heartbeat && st.Heartbeat > 0 {
		return text + fmt.Sprintf(", no sign of life for %v, free in %v at the latest if it is dead", round(st.Unchanged), round(st.FreeIn))
	}
	return text + fmt.Sprintf(", free %v after its last sign of life", round(st.Lease))
}

// clockText shows an instant to people: the time of day, and the date if it is
// another one.
func clockText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	t = t.Local()
	if t.Format(time.DateOnly) == time.Now().Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

func formatToken(token uint64) string { return strconv.FormatUint(token, 10) }
