// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/tenuretest"
)

// An hour has six minutes in these tests, so that there are fewer heartbeats in it.
// Its age is written each hundredth of it, which is longer than a heartbeat period.
const (
	hour   = 6 * time.Minute
	minute = hour / 60
)

// periods are those of Every that the store has begun.
type periods struct {
	ledger struct {
		ID string
		N  int64
	}
	at []time.Duration // since the world was made
}

// note records when the store has begun a period.
func (s *world) note(w tenuretest.Write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, before := &s.periods, s.periods.ledger
	p.ledger.ID = ""
	if json.Unmarshal(w.Next.Data, &p.ledger) == nil && p.ledger.ID == before.ID && p.ledger.N == before.N+1 {
		p.at = append(p.at, time.Since(s.born))
	}
}

// begun returns when the store has begun the periods.
func (s *world) begun() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.periods.at)
}

// spaced fails the test unless periods were begun at least that far apart.
func (s *world) spaced(least time.Duration) {
	s.t.Helper()
	at := s.begun()
	for i := 1; i < len(at); i++ {
		if d := at[i] - at[i-1]; d < least {
			s.t.Errorf("period %d was begun %v after the one before, at %v: at least %v", i+1, d, at[i], least)
		}
	}
}

// lives runs Every in the background until stop, which waits for it.
func (h *host) lives(period time.Duration, o *once.EveryOptions, work once.Work) (stop func()) {
	ctx, cancel := context.WithCancel(h.s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- once.Every(ctx, h.Client.Client, name, period, o, h.s.work(work)) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, tenure.ErrLost) {
			h.s.t.Errorf("%s: %v", h.Options().Owner, err)
		}
	})
}

func (h *host) showEvery() once.EveryStatus {
	h.s.t.Helper()
	return testutil.Must(once.ShowEvery(h.s.t.Context(), h.Client.Client, name))(h.s.t)
}

func near(at, want, slack time.Duration) bool { return at >= want && at <= want+slack }

// Work runs each period, first a period after the beginning, and the ledger shows it.
func TestEvery(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		var told []once.Run
		stop := a.lives(hour, &once.EveryOptions{OnRun: func(r once.Run, err error) {
			told = append(told, r)
			if (err != nil) != (r.Slot == 2) {
				t.Errorf("%+v, %v", r, err)
			}
		}}, func(_ context.Context, turn *once.Turn) error {
			time.Sleep(minute)
			if turn.Slot() == 2 {
				return errWork
			}
			return nil
		})
		time.Sleep(time.Second) // a leads
		stopB := b.lives(hour, nil, nil)
		time.Sleep(5*hour + 10*minute)
		synctest.Wait()
		at := s.begun()
		if len(at) != 5 {
			t.Fatalf("begun at %v", at)
		}
		for i, at := range at {
			if want := time.Duration(i+1) * hour; !near(at, want, time.Second) {
				t.Errorf("period %d was begun at %v", i+1, at)
			}
		}
		st := b.showEvery()
		if !st.Kept || st.Number != 5 || st.Period != hour || !near(st.Age, 10*minute-hour/100, hour/100) || !st.Held || st.Owner != "a" {
			t.Errorf("%+v", st)
		}
		if len(st.Runs) != 5 || st.Runs[0].Slot != 5 || st.Runs[0].State != once.StateDone || st.Runs[0].Took != minute ||
			st.Runs[3].State != once.StateFailed || st.Runs[3].Error != errWork.Error() {
			t.Errorf("%+v", st.Runs)
		}
		if len(told) != 5 || told[4].Slot != 5 {
			t.Errorf("told %+v", told)
		}
		stopB()
		stop()
		if s.count(5) != 1 {
			t.Errorf("%v", s.starts)
		}
		got, err := json.Marshal(b.showEvery())
		if err != nil || !strings.Contains(string(got), `"number":5`) || !strings.Contains(string(got), `"period_seconds":360`) {
			t.Errorf("%s, %v", got, err)
		}
	})
}

// The age is written each 36 s, a hundredth of the period, and not more often; also over a
// claim, which a slow clock comes near in ever smaller steps.
func TestEveryWritesTheAge(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, _, _ *host) {
		a := s.host("slow")
		a.SetRate(0.92)
		defer a.lives(hour, nil, nil)()
		for _, minutes := range []int{50, 20} {
			a.Faults().ResetLog()
			time.Sleep(time.Duration(minutes) * minute)
			if n := a.Faults().Count(faultstore.OpSetData); n < 100*minutes/60*85/100 || n > 100*minutes/60+5 {
				t.Errorf("%d writes in %d minutes", n, minutes)
			}
		}
	})
}

// A process that ends in order leaves the age, and the next one goes on from it. So
// it is after a step-down.
func TestEveryGoesOn(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		stop := a.lives(hour, nil, nil)
		time.Sleep(40 * minute)
		stop()
		time.Sleep(10 * minute) // no process is alive, and none counts
		defer a.lives(hour, nil, nil)()
		time.Sleep(21 * minute)
		if at := s.begun(); len(at) != 1 || !near(at[0], hour+10*minute, 2*time.Second) {
			t.Fatalf("begun at %v", at)
		}
		defer b.lives(hour, nil, nil)()
		time.Sleep(29 * minute)
		why := &tenure.StepDownOptions{Reason: "a deployment"}
		if err := b.StepDown(t.Context(), once.EveryLockName(name), why); err != nil {
			t.Fatal(err)
		}
		time.Sleep(35 * minute)
		if at := s.begun(); len(at) != 2 || !near(at[1]-at[0], hour, 10*time.Second) {
			t.Fatalf("begun at %v", at)
		}
		if r := b.showEvery().Runs[0]; r.Owner != "b" {
			t.Errorf("%+v", r)
		}
	})
}

// After a crash at most the time since the last write is lost, and the lease that
// others wait is not: they have measured it.
func TestEveryAfterACrash(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		defer a.lives(hour, nil, nil)()
		time.Sleep(time.Second) // a leads
		defer b.lives(hour, nil, nil)()
		time.Sleep(90 * minute)
		a.Partition()
		time.Sleep(35 * minute)
		if at := s.begun(); len(at) != 2 || !near(at[1]-at[0], hour, 5*time.Second) {
			t.Fatalf("begun at %v", at)
		}
	})
}

// Leaders that crash before they have written an age do not stop the time: a process
// that waits measures it. Nor is it measured twice.
func TestEveryWaitingCounts(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, _, _ *host) {
		const period = 10 * hour // written each 36 s
		waits := s.host("waits")
		for i := range 8 {
			h := s.host(fmt.Sprintf("h%d", i))
			stop := h.lives(period, nil, nil)
			defer stop()
			time.Sleep(time.Second)
			if i == 0 {
				defer waits.lives(period, nil, nil)()
			}
			time.Sleep(4 * minute)
			if st := h.showEvery(); st.Owner == "waits" {
				break // it has won, and goes on alone
			}
			h.Partition()
		}
		time.Sleep(period)
		if at := s.begun(); len(at) != 1 || !near(at[0], period, 20*time.Second) {
			t.Errorf("begun at %v, of period %v", at, period)
		}
	})
}

// Clocks that are too fast or too slow, and a wall clock that is stepped: periods are
// at least P/(1+ρ) apart in true time.
func TestEverySpacingOverClocks(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, _, _ *host) {
		fast, slow := s.host("fast"), s.host("slow")
		fast.SetRate(1.09)
		slow.SetRate(0.92)
		defer fast.lives(hour, nil, nil)()
		defer slow.lives(hour, nil, nil)()
		for range 40 {
			time.Sleep(17 * minute)
			fast.Step(25 * minute) // what only a holder may count
			slow.Step(3 * minute)
		}
		s.spaced(hour * 100 / 109)
		if n := len(s.begun()); n < 8 {
			t.Errorf("%d periods in 11 hours", n)
		}
	})
}

// The store takes its time with the claim of a period: the next one is counted from
// when the answer came, and so by others, who read of it.
func TestEveryCountsFromTheAnswer(t *testing.T) {
	for _, before := range []time.Duration{0, 900 * time.Millisecond} {
		onHosts(t, func(t *testing.T, s *world, a, b *host) {
			for _, h := range []*host{a, b} {
				h.Faults().Inject(faultstore.Rule{
					Match: func(c faultstore.Call) bool { return c.Op.IsWrite() },
					Decide: func(c faultstore.Call) faultstore.Fault {
						if numberOf(c.Next.Data) > numberOf(c.Prev.Data) { // on its way there, the first of two times
							return faultstore.Slow(before*time.Duration(numberOf(c.Next.Data)%2), 0)
						}
						return faultstore.Fault{}
					},
				})
			}
			defer a.lives(hour, nil, nil)()
			time.Sleep(time.Second)
			defer b.lives(hour, nil, nil)()
			time.Sleep(5*hour + 10*minute)
			s.spaced(hour)
			if n := len(s.begun()); n != 5 {
				t.Errorf("%d periods in 5 hours", n)
			}
		})
	}
}

// The work of a period begins when its claim is confirmed, which others may have read long
// before: they do not begin the next one earlier than a period after the work.
func TestEverySpacesTheWork(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		claimed := time.Duration(0)
		a.Faults().Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return c.Op.IsWrite() && numberOf(c.Next.Data) == 1 },
			Decide: func(faultstore.Call) faultstore.Fault {
				if claimed == 0 {
					claimed = time.Since(s.born)
				}
				if time.Since(s.born) < claimed+8*time.Second {
					return faultstore.LoseReplyHang() // applied, and others read it
				}
				return faultstore.Fault{}
			},
		})
		var at []time.Duration
		work := func(context.Context, *once.Turn) error {
			at = append(at, time.Since(s.born))
			return nil
		}
		stop := a.lives(hour, nil, work)
		time.Sleep(time.Second) // a leads
		defer b.lives(hour, nil, work)()
		time.Sleep(hour + 50*minute)
		stop()
		time.Sleep(hour)
		if len(at) < 2 || at[1]-at[0] < hour {
			t.Errorf("work at %v, begun at %v: less than %v apart", at, s.begun(), hour)
		}
	})
}

func numberOf(data []byte) int64 {
	var l struct{ N int64 }
	if json.Unmarshal(data, &l) != nil {
		return -1
	}
	return l.N
}

// The age of a period does not count for another period, nor for the same number in
// another ledger.
func TestEveryAfterADeletion(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		stop := a.lives(hour, nil, nil)
		time.Sleep(time.Second) // a leads
		defer b.lives(hour, nil, nil)()
		time.Sleep(50 * minute) // b waits, and has measured for all that time
		stopped := make(chan bool)
		rec, err := s.Store().Get(t.Context(), once.EveryLockName(name), driver.Strong)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Store().Delete(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		deleted := time.Since(s.born)
		go func() { stop(); close(stopped) }()
		time.Sleep(3 * hour)
		<-stopped
		if at := s.begun(); len(at) < 2 || at[0] < deleted+hour {
			t.Errorf("deleted at %v, begun at %v", deleted, at)
		}
		s.spaced(hour)
	})
}

// A reset begins a new ledger.
func TestResetEvery(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		stop := a.lives(hour, nil, nil)
		time.Sleep(50 * minute)
		if err := once.ResetEvery(t.Context(), b.Client.Client, name, "a test"); !errors.Is(err, once.ErrRunning) {
			t.Error(err)
		}
		stop()
		if err := once.ResetEvery(t.Context(), b.Client.Client, name, "a test"); err != nil {
			t.Fatal(err)
		}
		history, err := a.History(t.Context(), once.EveryLockName(name))
		if err != nil || history[0].Request == nil || !strings.Contains(history[0].Request.Reason, "a test") {
			t.Errorf("history %+v, %v", history, err)
		}
		reset := time.Since(s.born)
		defer a.lives(hour, nil, nil)()
		time.Sleep(2 * hour)
		if at := s.begun(); len(at) == 0 || at[0] < reset+hour {
			t.Errorf("reset at %v, begun at %v", reset, at)
		}
	})
}

// Work that takes longer than a period is not run beside itself. With CatchUp what it
// has overrun is made up for; without, it is not.
func TestEveryOverrun(t *testing.T) {
	for catchUp, want := range map[int][]time.Duration{
		0: {60, 210, 270, 330, 390, 450},
		1: {60, 210, 210, 270, 330, 390},
		2: {60, 210, 210, 240, 300, 360},
		9: {60, 210, 210, 240, 300, 360},
	} {
		t.Run(fmt.Sprintf("catch up %d", catchUp), func(t *testing.T) {
			onHosts(t, func(t *testing.T, s *world, a, _ *host) {
				defer a.lives(hour, &once.EveryOptions{CatchUp: catchUp}, func(_ context.Context, turn *once.Turn) error {
					if turn.Slot() == 1 {
						time.Sleep(150 * minute)
					}
					return nil
				})()
				time.Sleep(7 * hour)
				time.Sleep(45 * minute)
				at := s.begun()
				for i, want := range want {
					if i < len(at) && !near(at[i], want*minute, 2*time.Second) || i >= len(at) {
						t.Fatalf("begun at %v, want %d minutes", at, want)
					}
				}
			})
		})
	}
}

// CatchUp bounds what is made up for: in any time there are no more runs than there
// would have been, and CatchUp + 1.
func TestEveryCatchUpIsBounded(t *testing.T) {
	enginetest.MakeVerify(t)
	for _, catchUp := range []int{0, 1, 3} {
		onHosts(t, func(t *testing.T, s *world, _, _ *host) {
			a := s.host("fast")
			a.SetRate(1.09)
			random := rand.New(rand.NewPCG(7, uint64(catchUp)))
			defer a.lives(hour, &once.EveryOptions{CatchUp: catchUp}, func(context.Context, *once.Turn) error {
				if random.IntN(4) == 0 {
					time.Sleep(time.Duration(random.Int64N(int64(5 * hour))))
				}
				return nil
			})()
			time.Sleep(30 * hour)
			at := s.begun()
			for i := range at {
				for j := i; j < len(at); j++ {
					if most := int(float64(at[j]-at[i])*1.09/float64(hour)) + catchUp + 1; j-i+1 > most {
						t.Fatalf("catch up %d: %d periods from %v to %v: %d at most", catchUp, j-i+1, at[i], at[j], most)
					}
				}
			}
			if len(at) < 10 {
				t.Errorf("%d periods", len(at))
			}
		})
	}
}

// The claim is not confirmed: the work does not begin, the caller gets an error, and no
// other process runs that period.
func TestEveryClaimUnconfirmed(t *testing.T) {
	for _, applied := range []bool{false, true} {
		onHosts(t, func(t *testing.T, s *world, a, b *host) {
			claimed := false
			a.Faults().Inject(faultstore.Rule{Decide: func(c faultstore.Call) faultstore.Fault {
				switch {
				case claimed:
					return faultstore.BlackHole()
				case numberOf(c.Next.Data) == 1:
					claimed = true
					if applied {
						return faultstore.LoseReplyHang()
					}
					return faultstore.BlackHole()
				}
				return faultstore.Fault{}
			}})
			var told error
			stopA := a.lives(hour, &once.EveryOptions{OnRun: func(_ once.Run, err error) { told = err }}, nil)
			time.Sleep(time.Second)
			defer b.lives(hour, nil, nil)()
			time.Sleep(hour + 2*lease)
			synctest.Wait()
			if !errors.Is(told, once.ErrNotRun) || !errors.Is(told, tenure.ErrLost) {
				t.Errorf("told %v", told)
			}
			if n := s.count(1); n == 1 == applied {
				t.Errorf("applied %v: period 1 was run %d times", applied, n)
			}
			time.Sleep(hour)
			if n := s.count(2); n != 1 {
				t.Errorf("period 2 was run %d times", n)
			}
			s.spaced(hour)
			stopA()
		})
	}
}

// A time-out ends the work, an error ends nothing, and a panic goes on.
func TestEveryWorkFails(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		o := &once.EveryOptions{Timeout: minute, Retries: 1}
		var panicked any
		ended := make(chan bool)
		go func() {
			defer close(ended)
			defer func() { panicked = recover() }()
			_ = once.Every(t.Context(), a.Client.Client, name, hour, o, func(ctx context.Context, turn *once.Turn) error {
				switch turn.Slot() {
				case 1:
					return errWork
				case 2:
					<-ctx.Done()
					return context.Cause(ctx)
				}
				panic("ouch")
			})
		}()
		time.Sleep(3*hour + 10*minute)
		<-ended
		st := b.showEvery()
		if panicked != "ouch" || st.Held || len(st.Runs) != 3 {
			t.Fatalf("%v, %+v", panicked, st)
		}
		for i, says := range []string{"panic", "time", errWork.Error()} {
			if r := st.Runs[i]; r.State != once.StateFailed || !strings.Contains(r.Error, says) {
				t.Errorf("%+v, want %q", r, says)
			}
		}
		if st.Runs[2].Attempts != 2 || st.Runs[1].Took != minute {
			t.Errorf("%+v", st.Runs)
		}
	})
}

// The wait between two runs shows progress.
func TestEveryWithAProgressTimeout(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, _, _ *host) {
		a := s.host("watched", func(o *tenure.Options) { o.ProgressTimeout = 20 * time.Second })
		defer a.lives(10*hour, nil, nil)()
		time.Sleep(10*hour + minute)
		if st := a.showEvery(); len(st.Runs) != 1 || st.Token != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// Invalid arguments are reported before any request; and data that are not a ledger end
// it.
func TestEveryRefuses(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, _ *host) {
		manual := s.host("manual", func(o *tenure.Options) { o.ManualHeartbeat = true })
		work := func(context.Context, *once.Turn) error { return nil }
		for _, c := range []struct {
			client *tenure.Client
			period time.Duration
			o      *once.EveryOptions
			work   once.Work
			says   string
		}{
			{a.Client.Client, 2*beat - 1, nil, work, "at least twice the heartbeat period, 3s"},
			{a.Client.Client, 100 * 366 * 24 * time.Hour, nil, work, "at most"},
			{a.Client.Client, hour, nil, nil, "work is nil"},
			{a.Client.Client, hour, &once.EveryOptions{CatchUp: -1}, work, "catch up -1"},
			{a.Client.Client, hour, &once.EveryOptions{Timeout: -1}, work, "timeout"},
			{manual.Client.Client, hour, nil, work, "Manual"},
			{nil, hour, nil, work, "client is nil"},
		} {
			if err := once.Every(t.Context(), c.client, name, c.period, c.o, c.work); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		}
		if n := a.Faults().Count(); n != 0 {
			t.Errorf("%d requests", n)
		}
		const data = `{"ledger":"once/1"}` // FuzzEveryLedger has others
		err := a.Run(t.Context(), once.EveryLockName(name), &tenure.AcquireOptions{Data: []byte(data)}, func(context.Context, *tenure.Lease) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if err := once.Every(t.Context(), a.Client.Client, name, hour, nil, work); !errors.Is(err, tenure.ErrUnreadable) {
			t.Error(err)
		}
		if st, err := a.Status(t.Context(), once.EveryLockName(name)); err != nil || string(st.Data) != data {
			t.Errorf("it was written over: %s, %v", st.Data, err)
		}
		if _, err := once.ShowEvery(t.Context(), a.Client.Client, name); !errors.Is(err, tenure.ErrUnreadable) {
			t.Error(err)
		}
		if err := once.ResetEvery(t.Context(), a.Client.Client, name, "fixed"); err != nil {
			t.Error(err)
		}
	})
}

// Work of a period that has ended, and waits for what it has left behind, is not said to run:
// the ledger has its end, also after the age is written again.
func TestEveryEndedBeforeItReturns(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		ctx, stop := context.WithCancel(t.Context())
		var kept *once.Turn
		var ran sync.WaitGroup
		ran.Go(func() {
			_ = once.Every(ctx, a.Client.Client, "job", hour, nil, func(ctx context.Context, turn *once.Turn) error {
				if kept != nil {
					return nil
				}
				kept = turn
				_ = takes(10*time.Second)(ctx, turn)
				if err := turn.Ended(ctx, exit(3), "13112 (sleep)"); err != nil {
					t.Error(err)
				}
				return takes(hour/2)(ctx, turn)
			})
		})
		last := func() once.Run {
			t.Helper()
			st, err := once.ShowEvery(t.Context(), b.Client.Client, "job")
			if err != nil || len(st.Runs) == 0 {
				t.Fatalf("%+v, %v", st, err)
			}
			return st.Runs[0]
		}
		time.Sleep(hour + hour/4)
		if r := last(); r.State != once.StateFailed || r.Exit != 3 || r.Took != 10*time.Second || r.Left != "13112 (sleep)" || r.Attempts != 1 {
			t.Errorf("while it waits: %+v", r)
		}
		time.Sleep(hour / 2)
		if r := last(); r.State != once.StateDone || r.Left != "" || r.Took != hour/2+10*time.Second {
			t.Errorf("when it has returned: %+v", r)
		}
		if err := kept.Ended(t.Context(), nil, "nothing"); err != nil || last().Left != "" {
			t.Errorf("after the end: %v, %+v", err, last())
		}
		stop()
		ran.Wait()
	})
}

// claimsOf matches the writes that begin a period.
func claimsOf(c faultstore.Call) bool {
	return c.Op.IsWrite() && numberOf(c.Next.Data) > max(0, numberOf(c.Prev.Data))
}

// The lease ends between the claim, which is confirmed late, and the work.
func TestEveryClaimConfirmedTooLate(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, _ *host) {
		a.Faults().Inject(faultstore.Rule{
			Match: claimsOf,
			Decide: func(faultstore.Call) faultstore.Fault {
				a.Step(lease) // a pause that shows in the wall clock alone
				return faultstore.Fault{}
			},
			Count: 1,
		})
		var told error
		defer a.lives(hour, &once.EveryOptions{OnRun: func(_ once.Run, err error) { told = err }}, nil)()
		time.Sleep(hour + minute)
		synctest.Wait()
		if !errors.Is(told, once.ErrNotRun) || s.count(1) != 0 {
			t.Errorf("told %v, begun %d times", told, s.count(1))
		}
	})
}

// The lease ends before the claim: no period begins, and none is reported.
func TestEveryWithoutALeaseBeginsNothing(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, _ *host) {
		var told []error
		defer a.lives(hour, &once.EveryOptions{OnRun: func(_ once.Run, err error) { told = append(told, err) }}, nil)()
		time.Sleep(hour - 10*time.Millisecond)
		a.Step(lease)
		time.Sleep(minute)
		synctest.Wait()
		if len(told) != 1 || told[0] != nil || s.count(1) != 1 {
			t.Errorf("told %v, begun %d times", told, s.count(1))
		}
	})
}

// The context ends while a claim is under way: the period counts as begun, no process
// runs it, and the next one is the next one.
func TestEveryGivenUpDuringAClaim(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		a.Faults().Inject(faultstore.Rule{Match: claimsOf, Fault: faultstore.Slow(0, time.Second), Count: 1})
		var told error
		stop := a.lives(hour, &once.EveryOptions{OnRun: func(_ once.Run, err error) { told = err }}, nil)
		time.Sleep(hour + 500*time.Millisecond)
		stop()
		if st := b.showEvery(); !errors.Is(told, once.ErrNotRun) || st.Number != 1 || st.Runs[0].State != once.StateUnknown {
			t.Errorf("told %v, %+v", told, st)
		}
		defer b.lives(hour, nil, nil)()
		time.Sleep(hour + minute)
		if s.count(1) != 0 || s.count(2) != 1 {
			t.Errorf("%v", s.starts)
		}
		s.spaced(hour)
	})
}

// Time goes on while the work runs, also for a process that comes when its leader has
// crashed. How the run ended is in the ledger as soon as it has.
func TestEveryAgesWhileItWorks(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		stop := a.lives(hour, nil, func(ctx context.Context, turn *once.Turn) error {
			if turn.Slot() == 1 {
				return takes(9*time.Second)(ctx, turn)
			}
			return takes(50*minute)(ctx, turn)
		})
		defer stop()
		time.Sleep(hour + 9500*time.Millisecond) // before the age is written again
		if r := b.showEvery().Runs[0]; r.State != once.StateDone || r.Took != 9*time.Second {
			t.Errorf("%+v", r)
		}
		time.Sleep(hour)
		if r := b.showEvery().Runs[0]; r.State != once.StateRunning || r.Slot != 2 {
			t.Errorf("%+v", r)
		}
		time.Sleep(40 * minute)
		a.Partition()
		defer b.lives(hour, nil, nil)()
		time.Sleep(30 * minute)
		if at := s.begun(); len(at) != 3 || !near(at[2]-at[1], hour, hour/50+2*lease) {
			t.Errorf("begun at %v", at)
		}
	})
}

// A claim of the lock that was applied and not answered makes no new ledger.
func TestEveryBehindALostReply(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		stop := a.lives(hour, nil, nil)
		time.Sleep(hour + 30*minute)
		stop()
		b.loseClaims()
		defer b.lives(hour, nil, nil)()
		time.Sleep(35 * minute)
		if at := s.begun(); len(at) != 2 || !near(at[1]-at[0], hour, minute) || s.count(2) != 1 {
			t.Errorf("begun at %v, %v", at, s.starts)
		}
	})
}

// A name without a ledger has no number; and a reset needs a reason.
func TestShowEveryOfNothing(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, _ *host) {
		st := a.showEvery()
		text, err := json.Marshal(st)
		if st.Kept || err != nil || strings.Contains(string(text), "number") {
			t.Errorf("%s, %v", text, err)
		}
		if err := once.ResetEvery(t.Context(), a.Client.Client, name, ""); err == nil || !strings.Contains(err.Error(), "reason") {
			t.Error(err)
		}
		if n := a.Faults().Count(); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

// A leader is stopped while the claim of a period does not get through, and its
// callback takes long. The release begins the period then, at no age.
func TestEveryEndsWithAnUnconfirmedClaim(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		const took = lease / 3 // of the callback; the heartbeats of a do not get through meanwhile
		heal := a.Faults().Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return numberOf(c.Next.Data) == 1 },
			Fault: faultstore.BlackHole(),
		})
		var told error
		stop := a.lives(hour, &once.EveryOptions{OnRun: func(_ once.Run, err error) {
			told = err
			time.Sleep(took)
			heal()
		}}, nil)
		time.Sleep(hour + time.Second) // the claim is under way
		if n := len(s.begun()); n != 0 {
			t.Fatalf("%d periods begun, though no claim gets through", n)
		}
		stop()
		synctest.Wait()
		_ = as[*once.NotRunError](t, told)
		at := s.begun()
		if len(at) != 1 {
			t.Fatalf("begun at %v, want one period, by the release", at)
		}
		if age := b.showEvery().Age; age != 0 {
			t.Errorf("the period was begun at the age %v", age)
		}
		defer b.lives(hour, nil, nil)()
		time.Sleep(2 * hour)
		if at = s.begun(); len(at) < 2 {
			t.Errorf("begun at %v", at)
		}
		s.spaced(hour)
	})
}
