// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/slots"
)

// ResizeOptions say what happens to the holders of removed slots. Nil means that they
// keep them until they release them, and that Resize does not wait for that.
type ResizeOptions struct {
	// Wait has Resize return only when the removed slots are free. From then on no more
	// than the new number hold.
	Wait bool
	// StepDown asks the holders to stop, as [tenure.Client.StepDown] does, and
	// waits as Wait does. A holder learns of it with its next heartbeat, or at
	// once with [tenure.AcquireOptions.WatchRequests].
	StepDown bool
	// Reason is kept in the history of the slots. If empty, it says what was changed.
	Reason string
}

// Resize sets the number of slots, for all processes. It is in the store when
// Resize returns, also with an error that matches [ErrDraining].
//
// With more slots, waiters get in with their next poll, which is within a
// refresh period. With fewer, no slot from that number on is granted any more;
// its holder keeps it, unless options say otherwise. Meanwhile there are at most
// the old number of holders.
//
// ctx bounds all of it. An error that matches [tenure.ErrUncertain] says that
// the number may be changed, or not.
func (s *Semaphore) Resize(ctx context.Context, slots int, options *ResizeOptions) error {
	var o ResizeOptions
	if options != nil {
		o = *options
	}
	if err := s.resize(ctx, slots, o); err != nil {
		return &tenure.Error{Op: "resize", Key: s.name, Err: err}
	}
	return nil
}

func (s *Semaphore) resize(ctx context.Context, n int, o ResizeOptions) error {
	if err := checkSlots(n); err != nil {
		return err
	}
	before := 0
	z, err := s.size.Change(ctx, func(z size, _ bool) (size, error) {
		before = z.Slots
		// Slots that were removed earlier may still have holders; no process has taken one
		// since that number was stored.
		highest := max(n, z.Slots)
		for _, k := range s.certain(ctx, s.lookAll(ctx, z.Slots, z.Highest)) {
			if slots.AtWork(k.status) || k.err != nil {
				highest = max(highest, k.slot+1)
			}
		}
		return size{Slots: n, Highest: highest}, nil
	})
	if err != nil {
		return err
	}
	s.view.hint()
	if z.Highest == n || !o.Wait && !o.StepDown {
		return nil
	}
	if o.Reason == "" {
		o.Reason = fmt.Sprintf("resized from %d to %d slots", before, n)
	}
	return s.drain(ctx, n, z.Highest, o)
}

// drain waits until a range of slots is free.
func (s *Semaphore) drain(ctx context.Context, from, to int, o ResizeOptions) error {
	if o.StepDown {
		s.ask(ctx, from, to, o.Reason)
	}
	left := make([]int, 0, to-from)
	for slot := from; slot < to; slot++ {
		left = append(left, slot)
	}
	for {
		for n := 0; n < len(left); n += atOnce {
			for _, k := range s.certain(ctx, s.look(ctx, slices.Clone(left[n:min(len(left), n+atOnce)]))) {
				if k.err == nil && !slots.AtWork(k.status) {
					left[slices.Index(left, k.slot)] = -1
				}
			}
		}
		left = slices.DeleteFunc(left, func(slot int) bool { return slot < 0 })
		z, ok, err := s.size.Read(ctx)
		if ok {
			// Another resize may have raised it again.
			left = slices.DeleteFunc(left, func(slot int) bool { return slot < z.Slots })
		}
		if len(left) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return &DrainingError{Slots: left, Err: engine.Done(ctx)}
		}
		if errors.Is(err, tenure.ErrClosed) {
			return &DrainingError{Slots: left, Err: err}
		}
		slots.Pause(ctx, s.client.Options().RefreshPeriod)
	}
}

// ask asks the holders of the slots to step down. The looks at the slots show whether
// they do; drain also waits for a holder that cannot be asked.
func (s *Semaphore) ask(ctx context.Context, from, to int, reason string) {
	var wg sync.WaitGroup
	for slot := from; slot < to; slot++ {
		wg.Go(func() {
			_ = s.client.StepDown(ctx, LockName(s.name, slot), &tenure.StepDownOptions{Reason: reason})
		})
	}
	wg.Wait()
}
