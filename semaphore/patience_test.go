// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/semaphore"
)

// A store that refuses for a moment, as a file does that another process has locked, is
// asked again by every call, whichever read meets it.
func TestAMomentWithoutTheStore(t *testing.T) {
	calls := map[string]func(context.Context, *process) error{
		"slots": func(ctx context.Context, p *process) error {
			_, _, err := p.Slots(ctx)
			return err
		},
		"try": func(ctx context.Context, p *process) error {
			l, err := p.TryAcquire(ctx, nil)
			if err != nil {
				return err
			}
			return l.Release(ctx)
		},
		"try, full": func(ctx context.Context, p *process) error {
			l, err := p.TryAcquire(ctx, nil)
			if err != nil {
				return err
			}
			_, err = p.TryAcquire(ctx, nil)
			var full *semaphore.FullError
			if !errors.As(err, &full) {
				return errors.Join(errors.New("not full"), err)
			}
			return l.Release(ctx)
		},
		"acquire": func(ctx context.Context, p *process) error {
			l, err := p.Acquire(ctx, nil)
			if err != nil {
				return err
			}
			return l.Release(ctx)
		},
		"resize": func(ctx context.Context, p *process) error {
			return p.Resize(ctx, 1, &semaphore.ResizeOptions{Wait: true})
		},
	}
	for what, call := range calls {
		t.Run(what, func(t *testing.T) {
			onWorld(t, 1, func(t *testing.T, s *world) {
				first := s.process("first", 1)
				first.release(first.hold(t.Context()))
				for skip := range 6 {
					p := s.process(fmt.Sprint("p", skip), 1)
					p.client.Faults().Inject(faultstore.Rule{
						Ops: []faultstore.Op{faultstore.OpGet}, Skip: skip, Count: 3, Fault: faultstore.Refuse(),
					})
					begun := time.Now()
					if err := call(t.Context(), p); err != nil {
						t.Errorf("read %d refused: %v", skip, err)
					}
					if took := time.Since(begun); took > 4*time.Second {
						t.Errorf("read %d refused: it took %v", skip, took)
					}
				}
			})
		})
	}
}

// A store that stays away ends a call that does not wait, after three request
// timeouts, or after what the call says; and it is not asked without a pause.
func TestTryWithoutTheStore(t *testing.T) {
	onWorld(t, 1, func(t *testing.T, s *world) {
		p := s.process("p", 1)
		p.release(p.hold(t.Context()))
		request := p.client.Options().RequestTimeout
		p.client.Faults().Inject(faultstore.Rule{Fault: faultstore.Refuse()})
		for _, c := range []struct {
			timeout time.Duration
			want    time.Duration
		}{{0, 3 * request}, {time.Minute, time.Minute}} {
			p.client.Faults().ResetLog()
			begun := time.Now()
			_, err := p.TryAcquire(t.Context(), &tenure.AcquireOptions{StoreTimeout: c.timeout})
			took := time.Since(begun)
			if !errors.Is(err, faultstore.ErrInjected) || took < c.want || took > 2*c.want {
				t.Errorf("%v after %v, want it after %v", err, took, c.want)
			}
			if n, most := p.client.Faults().Count(), int(took/(refresh/10)); n > most {
				t.Errorf("%d requests in %v", n, took)
			}
		}
		p.client.Faults().ResetLog()
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		_, err := p.Acquire(ctx, &tenure.AcquireOptions{StoreTimeout: -1})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if n := p.client.Faults().Count(); n > 10*int(time.Minute/refresh) {
			t.Errorf("a waiter sends %d requests in a minute to a store that refuses them", n)
		}
	})
}

// No waiter depends on the line: it gets its slot where the record of the line cannot be
// had, for longer than the store may be away.
func TestNoWaiterDependsOnTheLine(t *testing.T) {
	for what, fault := range map[string]faultstore.Fault{"no answer": faultstore.BlackHole(), "errors": faultstore.Refuse()} {
		t.Run(what, func(t *testing.T) {
			onWorld(t, 1, func(t *testing.T, s *world) {
				first, p := s.process("first", 1), s.process("p", 1)
				held := first.hold(t.Context())
				p.client.Faults().Inject(faultstore.Rule{Key: name + ":line", Fault: fault})
				const work = 3 * lease
				begun := time.Now()
				time.AfterFunc(work, func() { first.release(held) })
				p.release(p.hold(t.Context()))
				if took := time.Since(begun) - work; took < 0 || took > 6*refresh {
					t.Errorf("the slot was taken %v after it was free", took)
				}
			})
		})
	}
}

// What a store calls permanent is an incident for a process that it has answered
// before: who waits for a slot goes on, and gets it when the incident has passed.
func TestIncidentEndsNoWaiter(t *testing.T) {
	denied := driver.NotApplied(driver.Permanent(errors.New("denied")))
	for skip := range 6 {
		onWorld(t, 1, func(t *testing.T, s *world) {
			first, p := s.process("first", 1), s.process("p", 1)
			held := first.hold(t.Context())
			got := make(chan error, 1)
			go func() {
				l, err := p.Acquire(t.Context(), nil)
				if err == nil {
					err = l.Release(t.Context())
				}
				got <- err
			}()
			time.Sleep(3 * refresh)
			p.client.Faults().Inject(faultstore.Rule{Skip: skip, Count: 5, Fault: faultstore.Fault{Effect: faultstore.Refused, Err: denied}})
			time.Sleep(3 * refresh)
			first.release(held)
			time.Sleep(lease)
			select {
			case err := <-got:
				if err != nil {
					t.Errorf("call %d refused: %v", skip, err)
				}
			default:
				t.Errorf("call %d refused: the slot has no holder", skip)
			}
		})
	}
}
