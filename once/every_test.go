// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/once"
)

// An hour has six minutes in these tests, so that there are fewer heartbeats in it.
// Its age is written each hundredth of it, which is longer than a heartbeat period.
const (
	hour   = 6 * time.Minute
	minute = hour / 60
)

// claims notes when the store has begun each period, in true time.
type claims struct {
	driver.Store
	c *claimed
}

type claimed struct {
	mu   sync.Mutex
	id   string
	n    int64
	at   []time.Time
	data int // writes of a ledger
}

func (s claims) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	s.c.mu.Lock() // the order of writes is that of the notes
	defer s.c.mu.Unlock()
	rec, err := s.Store.Swap(ctx, prev, next)
	var l struct {
		ID string `json:"id"`
		N  int64  `json:"n"`
	}
	if err == nil && json.Unmarshal(next.Data, &l) == nil {
		if string(prev.Data) != string(next.Data) {
			s.c.data++
		}
		if l.ID == s.c.id && l.N == s.c.n+1 {
			s.c.at = append(s.c.at, time.Now())
		}
		s.c.id, s.c.n = l.ID, l.N
	}
	return rec, err
}

// everyStage is a stage with one name whose periods are noted.
type everyStage struct {
	*stage
	claimed
}

func newEveryStage(t *testing.T) *everyStage {
	return &everyStage{stage: newStage(t)}
}

func (s *everyStage) host(owner string, rate float64, edit ...func(*tenure.Options)) *host {
	h := s.newHost(owner, rate, edit...)
	s.t.Cleanup(h.close)
	return h
}

func (s *everyStage) newHost(owner string, rate float64, edit ...func(*tenure.Options)) *host {
	s.t.Helper()
	h := s.stage.newHost(owner, rate, edit...)
	_ = h.client.Close(s.t.Context()) // it stands on another store
	h.faults = faultstore.New(claims{s.records.Open(), &s.claimed}, nil)
	o := &tenure.Options{Owner: owner, Clock: h.clock}
	for _, e := range edit {
		e(o)
	}
	var err error
	if h.client, err = tenure.New(h.faults.Driver(), o); err != nil {
		s.t.Fatal(err)
	}
	return h
}

// begun returns when the periods were begun, since the stage was made.
func (s *everyStage) begun() []time.Duration {
	s.claimed.mu.Lock()
	defer s.claimed.mu.Unlock()
	var at []time.Duration
	for _, t := range s.at {
		at = append(at, t.Sub(s.born))
	}
	return at
}

// spaced fails the test unless periods were begun at least that far apart.
func (s *everyStage) spaced(least time.Duration) {
	s.t.Helper()
	at := s.begun()
	for i := 1; i < len(at); i++ {
		if d := at[i] - at[i-1]; d < least {
			s.t.Errorf("period %d was begun %v after the one before, at %v: at least %v", i+1, d, at[i], least)
		}
	}
}

// every runs Every until the end of ctx, and counts what it runs.
func (h *host) every(ctx context.Context, period time.Duration, o *once.EveryOptions, work once.Work) error {
	return once.Every(ctx, h.client, name, period, o, func(ctx context.Context, turn *once.Turn) error {
		if turn.Attempt() == 1 {
			h.s.began(turn.Slot())
		}
		if err := turn.Check(); err != nil {
			h.s.t.Errorf("%s begins period %d: %v", h.owner, turn.Slot(), err)
		}
		if work == nil {
			return nil
		}
		return work(ctx, turn)
	})
}

// lives runs Every in the background until stop, which waits for it.
func (h *host) lives(period time.Duration, o *once.EveryOptions, work once.Work) (stop func()) {
	ctx, cancel := context.WithCancel(h.s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.every(ctx, period, o, work) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, tenure.ErrLost) {
			h.s.t.Errorf("%s: %v", h.owner, err)
		}
	})
}

func (h *host) showEvery() once.EveryStatus {
	h.s.t.Helper()
	st, err := once.ShowEvery(h.s.t.Context(), h.client, name)
	if err != nil {
		h.s.t.Fatal(err)
	}
	return st
}

func near(at, want, slack time.Duration) bool { return at >= want && at <= want+slack }

// Work runs each period, first a period after the beginning, and the ledger shows it.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEveryStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
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

// The age is written each 36 s, a hundredth of the period, and not more often.
func TestEveryWritesTheAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEveryStage(t)
		a := s.host("a", 0.92)
		defer a.lives(hour, nil, nil)()
		time.Sleep(50 * minute)
		s.claimed.mu.Lock()
		n := s.data
		s.claimed.mu.Unlock()
		if n < 100*50/60*85/100 || n > 100*50/60+2 {
			t.Errorf("%d writes in 50 minutes", n)
		}
		time.Sleep(20 * minute) // over a claim, which a slow clock comes near in ever smaller steps
		s.claimed.mu.Lock()
		defer s.claimed.mu.Unlock()
		if n = s.data - n; n > 100*20/60+5 {
			t.Errorf("%d writes in 20 minutes, over a claim", n)
		}
	})
}

// A process that ends in order leaves the age, and the next one goes on from it. So
// it is after a step-down.
func TestEveryGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEveryStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		stop := a.lives(hour, nil, nil)
		time.Sleep(40 * minute)
		stop()
		time.Sleep(10 * minute) // nobody is alive, and nobody counts
		defer a.lives(hour, nil, nil)()
		time.Sleep(21 * minute)
		if at := s.begun(); len(at) != 1 || !near(at[0], hour+10*minute, 2*time.Second) {
			t.Fatalf("begun at %v", at)
		}
		defer b.lives(hour, nil, nil)()
		time.Sleep(29 * minute)
		if err := b.client.StepDown(t.Context(), once.EveryLockName(name), "a deployment"); err != nil {
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
	synctest.Test(t, func(t *testing.T) {
		s := newEveryStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		defer a.lives(hour, nil, nil)()
		time.Sleep(time.Second) // a leads
		defer b.lives(hour, nil, nil)()
		time.Sleep(90 * minute)
		a.crash()
		time.Sleep(35 * minute)
		if at := s.begun(); len(at) != 2 || !near(at[1]-at[0], hour, 5*time.Second) {
			t.Fatalf("begun at %v", at)
		}
	})
}

// Leaders that crash before they have written an age do not stop the time: a process
// that waits measures it. Nor is it measured twice.
func TestEveryWaitingCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEveryStage(t)
		const period = 10 * hour // written each 36 s
		waits := s.host("waits", 1)
		for i := range 8 {
			h := s.host(fmt.Sprintf("h%d", i), 1)
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
			h.crash()
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
	synctest.Test(t, func(t *testing.T) {
		s := newEveryStage(t)
		fast, slow := s.host("fast", 1.09), s.host("slow", 0.92)
		defer fast.lives(hour, nil, nil)()
		defer slow.lives(hour, nil, nil)()
		for range 40 {
			time.Sleep(17 * minute)
			fast.clock.step(25 * minute) // what a holder counts, and nobody else may
			slow.clock.step(3 * minute)
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
	for _, before := range []time.Duration{0, 1400 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			s := newEveryStage(t)
			a, b := s.host("a", 1), s.host("b", 1)
			for _, h := range []*host{a, b} {
				h.faults.Inject(faultstore.Rule{
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
			time.Sleep(10*hour + 10*minute)
			s.spaced(hour)
			if n := len(s.begun()); n != 10 {
				t.Errorf("%d periods in 10 hours", n)
			}
		})
	}
}

func numberOf(data []byte) int64 {
	var l struct{ N int64 }
	if json.Unmarshal(data, &l) != nil {
		return -1
	}
	return l.N
}

// What a process knows of a period says nothing of another period, nor of the same
// number in another ledger.
func TestEveryAfterADeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEveryStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		stop := a.lives(hour, nil, nil)
		time.Sleep(time.Second) // a leads
		defer b.lives(hour, nil, nil)()
		time.Sleep(50 * minute) // b waits, and has measured for all that time
		stopped := make(chan bool)
		rec, err := s.records.Get(t.Context(), once.EveryLockName(name), driver.Strong)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.records.Delete(t.Context(), rec); err != nil {
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

// A reset begins anew.
func TestResetEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEveryStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		stop := a.lives(hour, nil, nil)
		time.Sleep(50 * minute)
		if err := once.ResetEvery(t.Context(), b.client, name, "a test"); !errors.Is(err, once.ErrRunning) {
			t.Error(err)
		}
		stop()
		if err := once.ResetEvery(t.Context(), b.client, name, "a test"); err != nil {
			t.Fatal(err)
		}
		history, err := a.client.History(t.Context(), once.EveryLockName(name))
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
			synctest.Test(t, func(t *testing.T) {
				s := newEveryStage(t)
				a := s.host("a", 1)
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
	for _, catchUp := range []int{0, 1, 3} {
		synctest.Test(t, func(t *testing.T) {
			s := newEveryStage(t)
			a := s.host("a", 1.09)
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

// The claim is not confirmed: the work does not begin, the caller is told, and no
// other process runs that period.
func TestEveryClaimUnconfirmed(t *testing.T) {
	for _, applied := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newEveryStage(t)
			a, b := s.host("a", 1), s.host("b", 1)
			claimed := false
			a.faults.Inject(faultstore.Rule{Decide: func(c faultstore.Call) faultstore.Fault {
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
	synctest.Test(t, func(t *testing.T) {
		s := newEveryStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		o := &once.EveryOptions{Timeout: minute, Retries: 1}
		var panicked any
		ended := make(chan bool)
		go func() {
			defer close(ended)
			defer func() { panicked = recover() }()
			_ = a.every(t.Context(), hour, o, func(ctx context.Context, turn *once.Turn) error {
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

// Work that does not return when its time is up loses the lease, and others go on.
func TestEveryWorkThatDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEveryStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		stop := a.lives(hour, &once.EveryOptions{Timeout: minute}, func(context.Context, *once.Turn) error {
			time.Sleep(20 * hour)
			return nil
		})
		time.Sleep(time.Second)
		defer b.lives(hour, nil, nil)()
		time.Sleep(2*hour + minute)
		if at := s.begun(); len(at) != 2 || s.count(2) != 1 {
			t.Errorf("begun at %v", at)
		}
		time.Sleep(20 * hour)
		stop()
	})
}

// The wait between two runs shows progress.
func TestEveryWithAProgressTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEveryStage(t)
		a := s.host("a", 1, func(o *tenure.Options) { o.ProgressTimeout = 20 * time.Second })
		defer a.lives(10*hour, nil, nil)()
		time.Sleep(10*hour + minute)
		if st := a.showEvery(); len(st.Runs) != 1 || st.Token != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// What is wrong is named before anything is sent; and data that are no ledger end it.
func TestEveryRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEveryStage(t)
		a := s.host("a", 1)
		manual := s.host("manual", 1, func(o *tenure.Options) { o.Heartbeat = tenure.Manual })
		work := func(context.Context, *once.Turn) error { return nil }
		for _, c := range []struct {
			client *tenure.Client
			period time.Duration
			o      *once.EveryOptions
			work   once.Work
			says   string
		}{
			{a.client, 2*beat - 1, nil, work, "at least twice the heartbeat period, 3s"},
			{a.client, 100 * 366 * 24 * time.Hour, nil, work, "at most"},
			{a.client, hour, nil, nil, "work is nil"},
			{a.client, hour, &once.EveryOptions{CatchUp: -1}, work, "catch up -1"},
			{a.client, hour, &once.EveryOptions{Timeout: -1}, work, "timeout"},
			{manual.client, hour, nil, work, "Manual"},
			{nil, hour, nil, work, "client is nil"},
		} {
			if err := once.Every(t.Context(), c.client, name, c.period, c.o, c.work); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		}
		if n := a.faults.Count(); n != 0 {
			t.Errorf("%d requests", n)
		}
		for _, data := range []string{"x", "{}", `{"ledger":"every/1","n":1}`, `{"ledger":"every/1","id":"x","n":-1}`, `{"ledger":"every/1","id":"x","age":-1}`, `{"ledger":"once/1"}`} {
			err := a.client.Run(t.Context(), once.EveryLockName(name), &tenure.AcquireOptions{Data: []byte(data)}, func(context.Context, *tenure.Lease) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			if err := once.Every(t.Context(), a.client, name, hour, nil, work); !errors.Is(err, tenure.ErrUnreadable) {
				t.Errorf("%s: %v", data, err)
			}
			if st, err := a.client.Status(t.Context(), once.EveryLockName(name)); err != nil || string(st.Data) != data {
				t.Errorf("%s was written over: %s, %v", data, st.Data, err)
			}
			if _, err := once.ShowEvery(t.Context(), a.client, name); !errors.Is(err, tenure.ErrUnreadable) {
				t.Errorf("%s: %v", data, err)
			}
		}
		if err := once.ResetEvery(t.Context(), a.client, name, "mended"); err != nil {
			t.Error(err)
		}
	})
}

// Three hosts with clocks that are wrong by 8 %, killed, cut off, slow and stepped at
// random: periods are never too near, and as long as somebody is alive they come.
func TestEveryThroughFaults(t *testing.T) {
	seeds := 10
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { everyThroughFaults(t, uint64(seed)) })
		})
	}
}

func everyThroughFaults(t *testing.T, seed uint64) {
	const period = 2 * time.Minute
	s := newEveryStage(t)
	s.unordered = true // a run may begin after a later period was begun elsewhere: the claims are what is ordered
	long := 6 * time.Hour
	if testing.Short() {
		long = 2 * time.Hour
	}
	until := time.Now().Add(long)
	var all sync.WaitGroup
	for i, rate := range []float64{1.08, 0.92, 1} {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		var turn sync.Mutex // the work draws too
		some := func(d time.Duration) time.Duration {
			turn.Lock()
			defer turn.Unlock()
			return time.Duration(random.Int64N(int64(d)))
		}
		all.Go(func() {
			for until.After(time.Now()) {
				h := s.newHost(fmt.Sprintf("host-%d", i), rate)
				slow := rand.New(rand.NewPCG(seed, uint64(i)+100))
				var mu sync.Mutex
				h.faults.Inject(faultstore.Rule{Decide: func(faultstore.Call) faultstore.Fault {
					mu.Lock()
					defer mu.Unlock()
					switch slow.IntN(20) {
					case 0:
						return faultstore.LoseReply()
					case 1:
						return faultstore.LateAfterError(time.Duration(slow.Int64N(int64(20 * time.Second))))
					}
					return faultstore.Slow(time.Duration(slow.Int64N(int64(700*time.Millisecond))), time.Duration(slow.Int64N(int64(700*time.Millisecond))))
				}})
				stop := h.lives(period, nil, func(ctx context.Context, turn *once.Turn) error {
					return takes(some(20*time.Second))(ctx, turn)
				})
				for range 3 {
					time.Sleep(some(10 * time.Minute))
					switch some(3) {
					case 0:
						h.faults.SetBlackHole(true)
						time.Sleep(some(time.Minute))
						h.faults.SetBlackHole(false)
					case 1:
						h.clock.step(some(5 * time.Minute))
					}
				}
				h.crash()
				stop()
				h.discard()
				time.Sleep(some(10 * time.Minute))
			}
		})
	}
	all.Wait()
	s.spaced(period * 100 / 108)
	at := s.begun()
	if least := int(long/period) / 3; len(at) < least {
		t.Errorf("%d periods in %v", len(at), long)
	}
	for n, times := range s.starts {
		if times > 1 {
			t.Errorf("period %d was run %d times", n, times)
		}
	}
	var longest time.Duration
	for i := 1; i < len(at); i++ {
		longest = max(longest, at[i]-at[i-1])
	}
	t.Logf("%d periods begun, %d run; the longest took %v", len(at), len(s.starts), longest)
}

// Work of a period that has ended, and waits for what it has left behind, is not said to run:
// the ledger has its end, also after the age is written anew.
func TestEveryEndedBeforeItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEveryStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		ctx, stop := context.WithCancel(t.Context())
		var kept *once.Turn
		var ran sync.WaitGroup
		ran.Go(func() {
			_ = once.Every(ctx, a.client, "job", hour, nil, func(ctx context.Context, turn *once.Turn) error {
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
			st, err := once.ShowEvery(t.Context(), b.client, "job")
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
