// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tasks_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/tasks"
)

const period = 10 * time.Minute

// TestEveryOverAChangeOfTheLeader: in the middle of a period, in order and by a crash,
// the next leader goes on with the number of the period, and repeats no run.
func TestEveryOverAChangeOfTheLeader(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprintf("crash %v", crash), func(t *testing.T) {
			onWorld(t, func(t *testing.T, s *world) {
				start := func(owner string) (*replica, <-chan error, context.CancelFunc) {
					r := s.replica(owner)
					r.quiet = true
					r.Every("tick", period, nil, func(_ context.Context, turn *once.Turn) error {
						defer r.enter("leading", "tick")()
						s.note("%s%d", owner, turn.Slot())
						return turn.Check()
					})
					ctx, stop := context.WithCancel(t.Context())
					ended := r.run(ctx)
					time.Sleep(time.Second)
					return r, ended, stop
				}
				a, first, stop := start("a")
				b, second, stopB := start("b")
				time.Sleep(2*period + period/2)
				if crash {
					a.client.Partition()
				}
				stop()
				time.Sleep(3 * period)
				st, err := once.ShowEvery(t.Context(), b.client.Client, tasks.EveryName(election, "tick"))
				if err != nil || st.Number != 5 || st.Owner != "b" || st.Runs[4].Owner != "a" {
					t.Errorf("the ledger is %+v, %v", st, err)
				}
				stopB()
				a.client.Heal()
				testutil.Want(t, <-second, nil)
				<-first //nolint:errcheck // it was cut off: whatever it returns
				if story := strings.ReplaceAll(s.story(), "release, ", ""); !strings.HasPrefix(story, "a1, a2, b3, b4, b5") {
					t.Errorf("runs %s", story)
				}
			})
		})
	}
}

// TestEveryIsStoppedBeforeTheRelease: the run is told, and awaited, before the lock of the
// group is released.
func TestEveryIsStoppedBeforeTheRelease(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		r := s.replica("a")
		r.Every("tick", period, nil, func(ctx context.Context, _ *once.Turn) error {
			return r.act(ctx, "leading", "run", act{})
		})
		ctx, stop := context.WithTimeout(t.Context(), period+time.Minute)
		defer stop()
		testutil.Want(t, <-r.run(ctx), nil)
		s.expect("tick, -run, run., release, release")
	})
}

// TestEveryRunThatFails: an error ends nothing, and is told; ErrStop and a panic stop the
// group.
func TestEveryRunThatFails(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		r := s.replica("a")
		var told []error
		r.Every("tick", period, &once.EveryOptions{OnRun: func(_ once.Run, err error) { told = append(told, err) }},
			func(_ context.Context, turn *once.Turn) error {
				if turn.Slot() < 3 {
					return errTask
				}
				return fmt.Errorf("done: %w", tasks.ErrStop)
			})
		begin := time.Now()
		ctx, stop := context.WithTimeout(t.Context(), 10*period)
		defer stop()
		testutil.Want(t, <-r.run(ctx), nil)
		if took := time.Since(begin).Round(time.Minute); took != 3*period || len(told) != 3 || !errors.Is(told[0], errTask) || told[2] != nil {
			t.Errorf("it stopped after %v; told %v", took, told)
		}
		rec, err := r.client.History(t.Context(), election)
		if err != nil || len(rec) != 1 || rec[0].End != tenure.EndReleased {
			t.Errorf("history %+v, %v", rec, err)
		}

		bad := s.replica("b")
		bad.Every("tick", period, nil, func(context.Context, *once.Turn) error { panic(errTask) })
		var p panicked
		if err := <-bad.run(ctx); !errors.As(err, &p) || p.Task != "tick" {
			t.Errorf("ended with %v", err)
		}
		rec, err = r.client.History(t.Context(), election)
		if err != nil || len(rec) != 2 || rec[0].End != tenure.EndFailed {
			t.Errorf("history %+v, %v", rec, err)
		}
	})
}

// TestEveryBeginsNoRunWithoutTheLead: the lease of the group is over, though the ledger's
// lock is good, and the context of the task does not say so yet.
func TestEveryBeginsNoRunWithoutTheLead(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		client := s.Client("a")
		group := tasks.New(client.Election(election, nil), nil)
		var lead atomic.Pointer[tenure.Lease]
		group.Leading("lead", func(ctx context.Context, l *tenure.Lease) error {
			lead.Store(l)
			<-ctx.Done()
			return ctx.Err()
		})
		var at []time.Duration
		begin, lost := time.Now(), false
		group.Every("tick", period, &once.EveryOptions{
			OnRun: func(r once.Run, err error) { lost = lost || r.Slot == 1 && errors.Is(err, tenure.ErrLost) },
		}, func(context.Context, *once.Turn) error {
			at = append(at, time.Since(begin))
			if err := lead.Load().Check(); err != nil {
				t.Errorf("it runs, and does not lead: %v", err)
			}
			return nil
		})
		ctx, stop := context.WithTimeout(t.Context(), 2*period+time.Minute)
		defer stop()
		ended := testutil.Go(func() error { return group.Run(ctx) })
		time.Sleep(period - 7*time.Second)
		remove := client.Faults().Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return c.Key == election && c.Op == faultstore.OpHeartbeat },
			Fault: faultstore.Refuse(),
		})
		// With the write that begins the period, the one lease is over; more is left of the other.
		client.Faults().Inject(faultstore.Rule{
			Ops: []faultstore.Op{faultstore.OpSetData},
			Key: once.EveryLockName(tasks.EveryName(election, "tick")),
			Match: func(c faultstore.Call) bool {
				return !bytes.Contains(c.Prev.Data, []byte(`"n":1`)) && bytes.Contains(c.Next.Data, []byte(`"n":1`))
			},
			Decide: func(faultstore.Call) faultstore.Fault {
				client.Step(lead.Load().Remaining())
				return faultstore.Fault{}
			},
		})
		time.Sleep(time.Minute + 7*time.Second)
		remove()
		testutil.Want(t, <-ended, nil)
		if len(at) != 1 || at[0] < 2*period || !lost {
			t.Errorf("it ran after %v; the first period was begun without the lead: %v", at, lost)
		}
	})
}

// TestEveryIsChecked: what is wrong with a period is an error of Run, and nothing is asked
// of the store.
func TestEveryIsChecked(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		r := s.replica("a")
		run := func(context.Context, *once.Turn) error { return nil }
		r.Every("short", time.Second, nil, run)
		r.Every("late", period, &once.EveryOptions{CatchUp: -1}, run)
		r.Every("", period, nil, run)
		r.Every("nothing", period, nil, nil)
		r.Every("good", period, nil, run)
		err := r.Run(t.Context())
		for _, text := range []string{
			`task "short": `, "period 1s must be at least twice the heartbeat period, 3s", `task "late": `, "a task has no name", `task "nothing" has no function`,
		} {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("got %v, want %q", err, text)
			}
		}
		if err != nil && strings.Contains(err.Error(), "good") {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Minute)
		if calls := r.client.Faults().Log(); len(calls) > 0 {
			t.Errorf("the store was asked: %+v", calls)
		}
	})
}
