// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tasks_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/tasks"
)

const (
	period = 10 * time.Minute
	// written is how old the age of a period in the store can be.
	written = period / 100
)

// runs are the runs of a periodic task, of all replicas.
type runs struct {
	s *stage

	mu   sync.Mutex
	list []begun
	busy int
}

type begun struct {
	slot  int64
	owner string
	at    time.Time
}

// add adds the task to a replica. Each run takes that long, if it is not stopped, and
// then returns the error.
func (n *runs) add(r *replica, takes time.Duration, err error) {
	r.plain = true
	r.Every("tick", period, nil, func(ctx context.Context, turn *once.Turn) error {
		r.enter("leading", "tick")
		defer r.leave("leading")
		n.mu.Lock()
		n.list = append(n.list, begun{turn.Slot(), r.owner, time.Now()})
		if n.busy++; n.busy > 1 {
			n.s.t.Errorf("%d runs at once", n.busy)
		}
		n.mu.Unlock()
		defer func() {
			n.mu.Lock()
			n.busy--
			n.mu.Unlock()
		}()
		if e := turn.Check(); e != nil {
			n.s.t.Error(e)
		}
		select {
		case <-ctx.Done():
			<-time.After(drain)
			return ctx.Err()
		case <-time.After(takes):
			return err
		}
	})
}

// gaps returns the times between the runs, and fails the test if a period was doubled or
// skipped, or began too early.
func (n *runs) gaps(want int) (gaps []time.Duration) {
	n.s.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.list) != want {
		n.s.t.Fatalf("%d runs, want %d: %+v", len(n.list), want, n.list)
	}
	for i, b := range n.list {
		if b.slot != int64(i+1) {
			n.s.t.Errorf("run %d is of period %d", i+1, b.slot)
		}
		if i == 0 {
			continue
		}
		gap := b.at.Sub(n.list[i-1].at)
		if gaps = append(gaps, gap); gap < period {
			n.s.t.Errorf("run %d begins %v after the one before", i+1, gap)
		}
	}
	return gaps
}

// TestEveryOverAChangeOfTheLeader: in the middle of a period, in order and by a crash,
// neither doubles a run nor begins the period anew.
func TestEveryOverAChangeOfTheLeader(t *testing.T) {
	for name, tt := range map[string]struct {
		crash bool
		late  time.Duration // the period that a change falls into, at most
	}{
		"in order":   {late: 3 * time.Second},
		"by a crash": {crash: true, late: 2*lease + written + 5*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				n := &runs{s: s}
				ctx, stop := context.WithCancel(t.Context())
				a := s.replica("a")
				n.add(a, time.Second, nil)
				first := a.run(ctx)
				time.Sleep(time.Second)
				ctxB, stopB := context.WithCancel(t.Context())
				b := s.replica("b")
				n.add(b, time.Second, nil)
				second := b.run(ctxB)
				time.Sleep(2*period + period/2)
				if tt.crash {
					a.faults.SetBlackHole(true)
				}
				stop()
				time.Sleep(3 * period)
				if st, err := once.ShowEvery(t.Context(), b.client, tasks.EveryName(election, "tick")); err != nil || st.Number != 5 || st.Owner != "b" || st.Runs[4].Owner != "a" {
					t.Errorf("the ledger is %+v, %v", st, err)
				}
				stopB()
				a.faults.SetBlackHole(false)
				(<-second).check(t, nil)
				if res := <-first; !tt.crash {
					res.check(t, nil)
				}
				gaps := n.gaps(5)
				if n.list[1].owner != "a" || n.list[2].owner != "b" {
					t.Errorf("runs %+v", n.list)
				}
				for i, gap := range gaps {
					most := period + time.Second
					if i == 1 {
						most = period + tt.late
					}
					if gap > most {
						t.Errorf("the period after run %d took %v, want %v at most", i+1, gap, most)
					}
				}
			})
		})
	}
}

// TestEveryThatOverrunsItsPeriod: the next run begins when it has returned, alone, and no
// run makes up for the periods that it took.
func TestEveryThatOverrunsItsPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		n := &runs{s: s}
		r := s.replica("a")
		n.add(r, 2*period+period/2, nil)
		ctx, stop := context.WithTimeout(t.Context(), 9*period)
		defer stop()
		(<-r.run(ctx)).check(t, nil)
		for i, gap := range n.gaps(4) { // after 1, 3.5, 6 and 8.5 periods
			if late := gap - 2*period - period/2; late < 0 || late > time.Second {
				t.Errorf("the run after run %d begins %v after its return", i+1, late)
			}
		}
	})
}

// TestEveryRunIsNotRepeated: a run whose leader is lost is over, and the next leader
// begins the next period.
func TestEveryRunIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		n := &runs{s: s}
		ctx, stop := context.WithTimeout(t.Context(), 3*period)
		defer stop()
		a, b := s.replica("a"), s.replica("b")
		n.add(a, time.Minute, nil)
		n.add(b, time.Second, nil)
		first := a.run(ctx)
		time.Sleep(time.Second)
		second := b.run(ctx)
		time.Sleep(period + 10*time.Second)
		a.faults.SetBlackHole(true) // in the middle of its run
		time.Sleep(period / 2)
		a.faults.SetBlackHole(false)
		(<-second).check(t, nil)
		<-first
		if n.gaps(2); n.list[0].owner != "a" || n.list[1].owner != "b" {
			t.Errorf("runs %+v", n.list)
		}
		st, err := once.ShowEvery(t.Context(), b.client, tasks.EveryName(election, "tick"))
		if err != nil || len(st.Runs) != 2 || st.Runs[1].State != once.StateUnknown || st.Runs[0].State != once.StateDone {
			t.Errorf("the ledger is %+v, %v", st, err)
		}
	})
}

// TestEveryIsStoppedBeforeTheRelease: the run is told, and awaited, before the lock of the
// group is released. The stage checks that.
func TestEveryIsStoppedBeforeTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		n := &runs{s: s}
		r := s.replica("a")
		n.add(r, time.Hour, nil)
		ctx, stop := context.WithTimeout(t.Context(), period+time.Minute)
		defer stop()
		begin := time.Now()
		(<-r.run(ctx)).check(t, nil)
		if took := time.Since(begin); took < period+time.Minute+drain || took > period+time.Minute+time.Second {
			t.Errorf("it stopped after %v", took)
		}
		n.gaps(1)
	})
}

// TestEveryRunThatFails: an error ends nothing, and is told; ErrStop and a panic stop the
// group.
func TestEveryRunThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		r := s.replica("a")
		var told []error
		r.Every("tick", period, &once.EveryOptions{OnRun: func(_ once.Run, err error) { told = append(told, err) }},
			func(_ context.Context, turn *once.Turn) error {
				if turn.Slot() < 3 {
					return errTask
				}
				return stops()
			})
		begin := time.Now()
		ctx, stop := context.WithTimeout(t.Context(), 10*period)
		defer stop()
		(<-r.run(ctx)).check(t, nil)
		if took := time.Since(begin).Round(time.Minute); took != 3*period || len(told) != 3 || !errors.Is(told[0], errTask) || told[2] != nil {
			t.Errorf("it stopped after %v; told %v", took, told)
		}
		rec, err := r.client.History(t.Context(), election)
		if err != nil || len(rec) != 1 || rec[0].End != tenure.EndReleased {
			t.Errorf("history %+v, %v", rec, err)
		}

		bad := s.replica("b")
		bad.Every("tick", period, nil, func(context.Context, *once.Turn) error { return panics() })
		res := <-bad.run(ctx)
		var p *tasks.PanicError
		if err, _ := res.panicked.(error); !errors.As(err, &p) || p.Task != "tick" {
			t.Errorf("got %+v", res)
		}
		rec, err = r.client.History(t.Context(), election)
		if err != nil || len(rec) != 2 || rec[0].End != tenure.EndFailed {
			t.Errorf("history %+v, %v", rec, err)
		}
	})
}

// stepped is a clock whose wall clock was set forward: a holder counts that, and a
// contender does not.
type stepped struct {
	tenure.Clock
	by atomic.Int64
}

func (c *stepped) Holder() time.Duration { return c.Clock.Holder() + time.Duration(c.by.Load()) }

// TestEveryBeginsNoRunWithoutTheLead: the lease of the group is over, though the ledger's
// lock is good, and the context of the task does not say so yet.
func TestEveryBeginsNoRunWithoutTheLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults, clock := faultstore.New(memstore.New(), nil), &stepped{Clock: tenure.MonotonicClock()}
		client, err := tenure.New(faults.Driver(), &tenure.Options{Owner: "a", Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		defer faults.Close()
		defer client.Close(context.WithoutCancel(t.Context()))
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
		ended := make(chan error, 1)
		go func() { ended <- group.Run(ctx) }()
		time.Sleep(period - 7*time.Second)
		remove := faults.Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return c.Key == election && c.Op == faultstore.OpHeartbeat },
			Fault: faultstore.Refuse(),
		})
		// With the write that begins the period, the one lease is over; more is left of the other.
		faults.Inject(faultstore.Rule{
			Ops: []faultstore.Op{faultstore.OpSetData},
			Key: once.EveryLockName(tasks.EveryName(election, "tick")),
			Match: func(c faultstore.Call) bool {
				return !bytes.Contains(c.Prev.Data, []byte(`"n":1`)) && bytes.Contains(c.Next.Data, []byte(`"n":1`))
			},
			Decide: func(faultstore.Call) faultstore.Fault {
				clock.by.Store(int64(lead.Load().Remaining()))
				return faultstore.Fault{}
			},
		})
		time.Sleep(time.Minute + 7*time.Second)
		remove()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(at) != 1 || at[0] < 2*period || !lost {
			t.Errorf("it ran after %v; the first period was begun without the lead: %v", at, lost)
		}
	})
}

// TestEveryIsChecked: what is wrong with a period is an error of Run, and nothing is asked
// of the store.
func TestEveryIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
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
		if calls := r.faults.Log(); len(calls) > 0 {
			t.Errorf("the store was asked: %+v", calls)
		}
	})
}
