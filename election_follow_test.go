// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
)

// observes observes an election until its context ends, despite errors.
func observes(m *machine, ctx context.Context, name string) {
	for _, err := range m.Election(name, nil).Observe(ctx) {
		_ = err // it goes on
	}
}

// watch observes an election until its context ends.
func watch(ctx context.Context, e *tenure.Election) (seen <-chan string, done <-chan error) {
	c := make(chan string, 1000)
	return c, testutil.Go(func() (last error) {
		for l, err := range e.Observe(ctx) {
			switch last = err; {
			case err != nil:
				c <- "error"
			case l.None():
				c <- "nobody"
			default:
				c <- fmt.Sprint(l.Owner, l.Token)
			}
		}
		return last
	})
}

func TestObserveYieldsEveryChangeAndNobody(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, o := w.Client("a"), w.Client("b"), w.Client("observer")
		ctx, stop := context.WithCancel(t.Context())
		seen, done := watch(ctx, o.Election("x", nil))
		expect := func(least, most time.Duration, state string) {
			t.Helper()
			start := time.Now()
			if got := <-seen; got != state {
				t.Errorf("observed %s, want %s", got, state)
			}
			if took := time.Since(start); took < least || took > most {
				t.Errorf("%s was seen after %v", state, took)
			}
		}
		expect(0, 0, "nobody") // never taken
		la := a.MustAcquire("x", nil)
		expect(0, refresh+refresh/8, "a1")
		time.Sleep(lease)
		mustRelease(a, la)
		expect(0, 0, "nobody") // there is a watch
		lb := b.MustAcquire("x", nil)
		expect(0, refresh+refresh/8, "b2")
		time.Sleep(lease)
		testutil.Want(t, lb.SetData(t.Context(), []byte("moved")), nil)
		expect(0, byLooks, "b2")
		time.Sleep(lease)
		b.Partition()
		expect(lease-heartbeat, lease+refresh, "nobody")
		mustTake(a, mustOpen(a, nil), "x")
		expect(0, refresh+refresh/8, "a3")
		time.Sleep(3 * lease)
		a.Partition()
		expect(lease-heartbeat-refresh, lease+refresh, "nobody")
		stop()
		testutil.Want(t, testutil.Within(t, 0, 0, func() error { return <-done }), nil) // it ends in silence
		if len(seen) != 0 {
			t.Errorf("observed %s besides", <-seen)
		}
	})
}

// A slow observer skips terms and delays no process.
func TestSlowObserverSkipsTerms(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, o := w.Client("a"), w.Client("observer")
		var tokens []uint64
		observer := testutil.Go(func() error {
			for l, err := range o.Election("x", nil).Observe(t.Context()) {
				if err != nil {
					return err
				}
				tokens = append(tokens, l.Token)
				time.Sleep(100 * time.Second)
				if l.Token >= 40 {
					return nil
				}
			}
			return nil
		})
		start := time.Now()
		for range 45 {
			l := a.MustAcquire("x", nil)
			time.Sleep(10 * time.Second)
			mustRelease(a, l)
		}
		if took := time.Since(start); took != 450*time.Second {
			t.Errorf("the terms took %v", took)
		}
		l := a.MustAcquire("x", nil)
		testutil.Want(t, <-observer, nil)
		if len(tokens) > 10 || tokens[len(tokens)-1] < 40 {
			t.Errorf("observed %v", tokens)
		}
		testutil.Want(t, l.Check(), nil)
	})
}

// An observer that comes back does not yield a state from long ago.
func TestObserveWaitsForALookOfItsOwnTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Client("a").MustAcquire("x", nil)
		e := w.Client("observer").Election("x", nil)
		_, err := e.Leader(t.Context())
		testutil.Want(t, err, nil)
		time.Sleep(10 * lease)
		for l, err := range e.Observe(t.Context()) {
			testutil.Want(t, err, nil)
			if l.Owner != "a" {
				t.Errorf("observed %+v first", l)
			}
			break
		}
	})
}

// An error of the store is yielded once, and observing goes on.
func TestObserveYieldsAnErrorOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		alone bool
		fault faultstore.Fault
		is    error
	}{
		"alone":             {true, faultstore.LoseRequest(), faultstore.ErrInjected},
		"beside a campaign": {false, faultstore.LoseRequest(), faultstore.ErrInjected},
		"a bad answer":      {true, badAnswers["not applied"], errDenied},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a, o := w.Client("a"), w.Client("observer")
			la := a.MustAcquire("x", nil)
			if !tt.alone {
				go func() { _, _ = o.Acquire(t.Context(), "x", nil) }()
			}
			ctx, stop := context.WithCancel(t.Context())
			seen, done := watch(ctx, o.Election("x", nil))
			time.Sleep(lease)
			for range 2 {
				o.Inject(faultstore.OpGet, 0, 3, tt.fault)
				time.Sleep(lease)
			}
			testutil.Want(t, la.Check(), nil)
			stop()
			testutil.Want(t, <-done, tt.is)
			var got []string
			for len(seen) > 0 {
				got = append(got, <-seen)
			}
			if fmt.Sprint(got) != "[a1 error error]" { // twice, and none for the context's end
				t.Errorf("observed %v", got)
			}
		})
	}
}

// Observers of one process share the polls.
func TestObserversShareLooks(t *testing.T) {
	looks := func(observers int) (n int) {
		inWorld(t, func(t *testing.T, w *world) {
			w.Client("a").MustAcquire("x", nil)
			o := w.Client("observer")
			o.BoundReads(12 + observers)
			for range observers {
				_, _ = watch(t.Context(), o.Election("x", nil))
			}
			time.Sleep(time.Second) // each begins with a read of its own
			before := o.Faults().Count(faultstore.OpGet)
			time.Sleep(20 * lease)
			n = o.Faults().Count(faultstore.OpGet) - before
		})
		return n
	}
	if one, fifty := looks(1), looks(50); fifty > one+one/4+2 { // jitter
		t.Errorf("50 observers cost %d looks, 1 costs %d", fifty, one)
	}
}

// observed records what an observer yields.
type observed struct {
	mu      sync.Mutex
	leaders []tenure.Leader
}

func (o *observed) run(ctx context.Context, e *tenure.Election) {
	for l, err := range e.Observe(ctx) {
		if err == nil {
			o.mu.Lock()
			o.leaders = append(o.leaders, l)
			o.mu.Unlock()
		}
	}
}

func (o *observed) owners() (all []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.leaders {
		all = append(all, l.Owner)
	}
	return all
}

// One failed poll does not hide a living leader.
func TestObserverOutlivesAFailedLook(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b", hourly)
		a.MustAcquire("x", nil)
		var o observed
		go o.run(t.Context(), b.Election("x", nil))
		time.Sleep(2 * time.Second)
		b.Inject(faultstore.OpGet, 0, 1, faultstore.Refuse())
		time.Sleep(30 * time.Minute)
		if got := o.owners(); len(got) != 1 || got[0] != "a" {
			t.Errorf("observed %q", got)
		}
	})
}

// No watch reports that a free lock is taken.
func TestObserverSeesNewLeaderWithinALease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c := w.Client("a"), w.Client("b", hourly), w.Client("c")
		l := a.MustAcquire("x", nil)
		var o observed
		go o.run(t.Context(), b.Election("x", nil))
		time.Sleep(time.Second)
		mustRelease(a, l)
		time.Sleep(time.Millisecond)
		c.MustAcquire("x", nil)
		time.Sleep(lease)
		if got := o.owners(); len(got) == 0 || got[len(got)-1] != "c" {
			t.Errorf("observed %q", got)
		}
	})
}

// A slow reply that a faster read has overtaken does not bring back an old leader.
func TestObserverDoesNotGoBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c := w.Client("a"), w.Client("b"), w.Client("c")
		l := a.MustAcquire("x", nil)
		var o observed
		go o.run(t.Context(), b.Election("x", nil))
		time.Sleep(heartbeat)
		b.Inject(faultstore.OpGet, 0, 1, faultstore.Slow(0, time.Second))
		n := b.Faults().Count(faultstore.OpGet)
		for b.Faults().Count(faultstore.OpGet) == n {
			time.Sleep(10 * time.Millisecond)
		}
		mustRelease(a, l)
		c.MustAcquire("x", nil)
		_, err := b.Status(t.Context(), "x")
		testutil.Want(t, err, nil)
		time.Sleep(heartbeat)
		owners := o.owners()
		o.mu.Lock()
		defer o.mu.Unlock()
		last := uint64(0)
		for _, l := range o.leaders {
			if l.Token < last && !l.None() {
				t.Errorf("token %d after %d", l.Token, last)
			}
			last = max(last, l.Token)
		}
		if last != 2 {
			t.Errorf("observed %q", owners)
		}
	})
}

func TestEachObserverGetsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newWorld(t).Client("b")
		b.Faults().Inject(faultstore.Rule{Fault: faultstore.LoseRequest()})
		for i := range 2 {
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			for _, err := range b.Election("x", nil).Observe(ctx) {
				if errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("observer %d: a minute of silence, with a store that fails", i)
				}
				break
			}
			stop()
		}
	})
}

// readings counts how often a clock is read.
type readings struct {
	tenure.Clock
	n      atomic.Int64
	enough func() // called at the thousandth
}

func (c *readings) Contender() time.Duration {
	if c.n.Add(1) == 1000 {
		c.enough()
	}
	return c.Clock.Contender()
}

// An observer that does not know yet whether the session of a lock is alive waits for
// the read of the session, without a busy loop.
func TestObserverAwaitsTheLookAtASession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a")
		s := mustOpen(a, nil)
		l := mustTake(a, s, "x")
		ctx, stop := context.WithTimeout(t.Context(), requestTimeout)
		defer stop()
		clock := &readings{Clock: tenure.MonotonicClock(), enough: stop}
		b := w.Client("b", func(o *tenure.Options) { o.Clock = clock })
		b.Faults().Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return c.Key == driver.SessionKey(s.ID()) },
			Fault: faultstore.Slow(0, requestTimeout/2),
		})
		tried := testutil.Go(func() error {
			time.Sleep(requestTimeout / 4)
			_, err := b.TryAcquire(ctx, "x", nil) // it sees the lock, and the observer is told
			return err
		})
		for leader, err := range b.Election("x", nil).Observe(ctx) {
			if err == nil && leader.Token != l.Token() {
				t.Errorf("observed %+v", leader)
			}
		}
		if n := clock.n.Load(); n > 100 {
			t.Errorf("the clock was read %d times", n)
		}
		testutil.Want(t, <-tried, tenure.ErrHeld)
		testutil.Want(t, l.Release(t.Context()), nil)
		testutil.Want(t, s.Close(t.Context()), nil)
	})
}

// After a hint an observer reads strongly, however stale cheap reads are.
func TestObserverSeesWhatItWasHintedAt(t *testing.T) {
	for ago := 1; ago <= 3; ago++ {
		inWorld(t, func(t *testing.T, w *world) {
			a, b := w.Client("a"), w.Client("b")
			l := a.MustAcquire("x", nil)
			seen := make(chan tenure.Leader, 10)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			go func() {
				for who, err := range b.Election("x", nil).Observe(ctx) {
					if err == nil {
						seen <- who
					}
				}
			}()
			if who := <-seen; who.Owner != "a" {
				t.Fatalf("%+v leads", who)
			}
			time.Sleep(2 * heartbeat)
			stale(b, 0, 0, ago)
			mustRelease(a, l)
			start := time.Now()
			if who := <-seen; who.Owner != "" || time.Since(start) > requestTimeout {
				t.Errorf("%d writes behind: %+v is seen %v after the release", ago, who, time.Since(start))
			}
		})
	}
}

// swept returns an observer that has read a session as alive whose process then died,
// and whose record another client has swept. The store still shows its lock as held.
func swept(t *testing.T) (w *world, c *machine) {
	t.Helper()
	w = newWorld(t)
	a, b, c := w.Client("a"), w.Client("b"), w.Client("c")
	s := mustOpen(a, nil)
	mustTake(a, s, "x")
	if st, err := c.Status(t.Context(), "x"); err != nil || !st.Held {
		t.Fatalf("before: %+v, %v", st, err)
	}
	a.Partition()
	if n, err := admin.Sweep(t.Context(), b.Client); n != 1 || err != nil {
		t.Fatalf("swept %d, %v", n, err)
	}
	c.Faults().ResetLog()
	return w, c
}

// Another client has swept a session that an observer knows. The observer finds that
// out by a strong read, and does not poll without a pause.
func TestObserverOfASweptSession(t *testing.T) {
	for name, observe := range map[string]func(*testing.T, context.Context, *machine){
		"observe": func(_ *testing.T, ctx context.Context, c *machine) {
			for _, err := range c.Election("x", nil).Observe(ctx) {
				_ = err // it goes on
			}
		},
		"step down": func(t *testing.T, ctx context.Context, c *machine) {
			testutil.Want(t, c.StepDown(ctx, "x", because("test")), tenure.ErrNotHeld)
			<-ctx.Done()
		},
		"transfer": func(t *testing.T, ctx context.Context, c *machine) {
			testutil.Want(t, c.StepDown(ctx, "x", &tenure.StepDownOptions{To: "d", Reason: "test"}), tenure.ErrNotHeld)
			<-ctx.Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, c := swept(t)
				// A request takes a while; otherwise virtual time would not pass.
				c.Inject(faultstore.OpGet, 0, 0, faultstore.Slow(0, time.Millisecond))
				ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
				defer stop()
				observe(t, ctx, c)
				if n := c.Faults().Count(faultstore.OpGet); n > 30 {
					t.Errorf("%d reads in 10 s", n)
				}
			})
		})
	}
}

const coolDown = 2 * time.Second // and 2 leases at most, by default

// labelled says which version of the software a machine runs.
func labelled(label string) func(*tenure.Options) {
	return func(o *tenure.Options) { o.Label = label }
}

// fails has the machine lead once, with work that fails; it returns how long the
// machine waited.
func fails(m *machine, o *tenure.ElectionOptions) time.Duration {
	m.World().T().Helper()
	return leads(m, o, errWork)
}

// leads has the machine lead once, with that result.
func leads(m *machine, o *tenure.ElectionOptions, result error) (waited time.Duration) {
	t := m.World().T()
	t.Helper()
	begun := time.Now()
	err := m.Election("x", o).Run(t.Context(), func(context.Context, *tenure.Lease) error {
		waited = time.Since(begun)
		time.Sleep(time.Second)
		return result
	})
	if err != result { //nolint:errorlint // what work returns, as it is
		t.Errorf("got %v, want %v", err, result)
	}
	return waited
}

// near fails the test unless a candidate waited for want, or up to a poll longer.
func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if got < want || got > want+100*time.Millisecond {
		t.Errorf("%s waited for %v, want %v", what, got, want)
	}
}

func TestCoolDownDoublesUpToItsMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a", labelled("v2"))
		o := &tenure.ElectionOptions{CoolDown: coolDown}
		for i, want := range []time.Duration{0, 2, 4, 8, 16, 30, 30} {
			near(t, "term "+string(rune('1'+i)), fails(m, o), want*time.Second)
		}
		o.CoolDownMax = 3 * time.Second
		near(t, "one with a lower most", fails(m, o), 3*time.Second)
		near(t, "one without a cool-down", fails(m, nil), 0)
	})
}

// TestCoolDownIsForFailuresOfTheOwnLabel: and for no other end of a term.
func TestCoolDownIsForFailuresOfTheOwnLabel(t *testing.T) {
	o := &tenure.ElectionOptions{CoolDown: coolDown}
	for name, tt := range map[string]struct {
		before func(w *world, own, other *machine)
		want   time.Duration
	}{
		"nothing": {func(*world, *machine, *machine) {}, 0},
		"another label has failed": {func(_ *world, _, other *machine) {
			for range 5 {
				fails(other, nil)
			}
		}, 0},
		"it has failed before another one did": {func(_ *world, own, other *machine) {
			fails(own, nil)
			fails(own, nil)
			for range 5 {
				fails(other, nil)
			}
		}, 2 * coolDown},
		"another label has led well since": {func(_ *world, own, other *machine) {
			fails(own, nil)
			for range 4 {
				leads(other, nil, nil)
			}
		}, coolDown},
		"it has led well since": {func(_ *world, own, _ *machine) {
			for range 3 {
				fails(own, nil)
			}
			leads(own, nil, nil)
		}, 0},
		"it has failed once since it led well": {func(_ *world, own, _ *machine) {
			fails(own, nil)
			fails(own, nil)
			leads(own, nil, nil)
			fails(own, nil)
		}, coolDown},
		"it has failed longer ago than counts": {func(_ *world, own, other *machine) {
			fails(own, nil)
			for range 16 {
				leads(other, nil, nil)
			}
		}, 0},
		"its work has stalled": {func(w *world, own, _ *machine) {
			slow := &tenure.AcquireOptions{History: true, Timing: tenure.Timing{ProgressTimeout: time.Second}}
			stalls := func(ctx context.Context, _ *tenure.Lease) error { <-ctx.Done(); return nil }
			testutil.Want(w.T(), own.Run(w.T().Context(), "x", slow, stalls), tenure.ErrStalled)
		}, coolDown},
		"it was asked to step down": {func(w *world, own, other *machine) {
			done := testutil.Go(func() error {
				fails := func(ctx context.Context, _ *tenure.Lease) error { <-ctx.Done(); return errWork }
				return own.Run(w.T().Context(), "x", &tenure.AcquireOptions{History: true}, fails)
			})
			time.Sleep(time.Second)
			testutil.Want(w.T(), other.StepDown(w.T().Context(), "x", because("maintenance")), nil)
			testutil.Want(w.T(), <-done, errWork)
		}, 0},
		"its process has crashed": {func(w *world, own, _ *machine) {
			for _, name := range []string{"c1", "c2"} {
				dead := w.Client(name, labelled(own.Options().Label))
				dead.MustAcquire("x", &tenure.AcquireOptions{History: true})
				dead.Partition()
			}
			time.Sleep(2 * lease)
		}, lease}, // which any contender waits for
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			own, other := w.Client("own", labelled("v2")), w.Client("other", labelled("v1"))
			tt.before(w, own, other)
			near(t, "it", fails(own, o), tt.want)
		})
	}
}

// TestCoolDownWithoutAHistory: an unreadable history delays a candidate no longer than
// a readable one could.
func TestCoolDownWithoutAHistory(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.Client("a", labelled("v2"))
		for range 4 {
			fails(m, nil)
		}
		remove := m.Faults().Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool {
				return c.Op == faultstore.OpGet && strings.HasPrefix(c.Key, driver.OwnPrefix)
			},
			Fault: faultstore.Refuse(),
		})
		waited := fails(m, &tenure.ElectionOptions{CoolDown: coolDown})
		if remove(); waited < 2*lease || waited > 2*lease+3*time.Second {
			t.Errorf("it waited for %v, want two leases", waited)
		}
	})
}

// TestCoolDownBeginsAgain: when a term has ended that the candidate has not seen, between two polls.
func TestCoolDownBeginsAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		own, other := w.Client("own", labelled("v2")), w.Client("other", labelled("v1"))
		own.Inject(faultstore.OpWatch, 0, 0, faultstore.Refuse())
		o := &tenure.ElectionOptions{CoolDown: 8 * time.Second}
		fails(own, o)
		time.AfterFunc(5*time.Second, func() { mustRelease(other, other.MustAcquire("x", recorded)) })
		if waited := fails(own, o); waited < 13*time.Second || waited > 13*time.Second+2*refresh {
			t.Errorf("it waited for %v, want 8 s after the other term, which ended after 5 s", waited)
		}
	})
}

// TestCoolDownCosts: one read before the claim, and the history only if the record does
// not settle the count.
func TestCoolDownCosts(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.Client("a", labelled("v2"))
		o := &tenure.ElectionOptions{CoolDown: coolDown}
		past := func() (n int) {
			for _, c := range m.Faults().Log() {
				if c.Op == faultstore.OpGet && strings.HasPrefix(c.Key, driver.OwnPrefix) {
					n++
				}
			}
			return n
		}
		n := m.Faults().Count(faultstore.OpGet)
		leads(m, o, nil)
		if more := m.Faults().Count(faultstore.OpGet) - n; more != 1 {
			t.Errorf("%d reads before the first term, want 1", more)
		}
		for range 3 {
			leads(m, o, nil)
		}
		if n := past(); n != 0 {
			t.Errorf("%d reads of the history, and the record settles the count", n)
		}
	})
}

// TestCoolDownAsksNobodyToMakeWay: a version that has failed does not ask the current
// leader to hand over, whatever its priority. It takes a hand-over to it at once.
func TestCoolDownAsksNobodyToMakeWay(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	inWorld(t, func(t *testing.T, w *world) {
		o := &tenure.ElectionOptions{CoolDown: coolDown, Priority: 2}
		bad, good := w.Client("new", labelled("v2")), w.Client("old", labelled("v1"))
		fails(bad, o)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		leads := make(chan string, 8)
		campaign := func(m *machine, priority int) <-chan error {
			o := *o
			o.Priority = priority
			return testutil.Go(func() error {
				return m.Election("x", &o).Run(ctx, func(ctx context.Context, l *tenure.Lease) error {
					leads <- m.Options().Label
					<-ctx.Done()
					return nil
				})
			})
		}
		goods := campaign(good, 1)
		if label := <-leads; label != "v1" {
			t.Fatalf("%s leads", label)
		}
		bads := campaign(bad, 2)
		time.Sleep(time.Hour)
		select {
		case label := <-leads:
			t.Fatalf("%s has asked for the lead", label)
		default:
		}
		begun := time.Now()
		testutil.Want(t, good.StepDown(t.Context(), "x", &tenure.StepDownOptions{To: "new", Reason: "try it again"}), nil)
		if label := <-leads; label != "v2" || time.Since(begun) > heartbeat+refresh {
			t.Errorf("%s leads %v after a hand-over to v2", label, time.Since(begun))
		}
		stop()
		testutil.Want(t, <-goods, nil)
		testutil.Want(t, <-bads, nil)
	})
}

func TestCoolDownIsChecked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for i, tt := range []struct {
			label string
			o     tenure.ElectionOptions
			want  string
		}{
			{"", tenure.ElectionOptions{CoolDown: coolDown}, "cool-down 2s without a label: set Options.Label to the version of the software"},
			{"v", tenure.ElectionOptions{CoolDown: -1}, "cool-down -1ns and maximum 30s must both be from 0 to"},
			{"v", tenure.ElectionOptions{CoolDown: time.Minute}, "cool-down 1m0s exceeds its maximum 30s: lower the one or raise the other"},
			{"v", tenure.ElectionOptions{CoolDownMax: time.Minute}, "cool-down maximum 1m0s without a cool-down: set both or neither"},
		} {
			err := w.Client(fmt.Sprint("a", i), labelled(tt.label)).Election("x", &tt.o).Run(t.Context(), noWork)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		}
	})
}

// TestStandbysOfABadVersionStepAside: standbys of the bad version wait when its leader
// fails, and each counts that failure before it takes the lock, so that the good version
// leads next.
func TestStandbysOfABadVersionStepAside(t *testing.T) {
	for _, watched := range []bool{true, false} {
		for _, under := range []bool{false, true} {
			inWorldRun(t, fmt.Sprintf("watched %v, under a session %v", watched, under), func(t *testing.T, w *world) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				leads := make(chan string, 100)
				var all sync.WaitGroup
				join := func(owner, label string, lasts time.Duration, result error) {
					m := w.Client(owner, labelled(label))
					if !watched {
						m.Inject(faultstore.OpWatch, 0, 0, faultstore.Refuse())
					}
					o := &tenure.ElectionOptions{CoolDown: 2 * coolDown}
					election := m.Election("x", o)
					if under {
						election = mustOpen(m, nil).Election("x", o)
					}
					all.Go(func() {
						for ctx.Err() == nil { // a supervisor starts it again
							_ = election.Run(ctx, func(ctx context.Context, _ *tenure.Lease) error {
								leads <- label
								select {
								case <-ctx.Done():
								case <-time.After(lasts):
								}
								return result
							})
						}
					})
					time.Sleep(time.Second)
				}
				for i := range 4 {
					join(fmt.Sprint("bad", i), "v2", 20*time.Second, errWork)
				}
				join("good", "v1", time.Hour, nil)
				time.Sleep(3 * lease)
				stop()
				all.Wait()
				close(leads)
				var got []string
				for label := range leads {
					got = append(got, label)
				}
				if !slices.Equal(got, []string{"v2", "v1"}) {
					t.Errorf("leaders %v, want a bad one and the good one", got)
				}
			})
		}
	}
}

// TestCoolDownWaitsAsAnAcquireDoes: within the same bounds, with the same errors and events.
func TestCoolDownWaitsAsAnAcquireDoes(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	cools := func(o tenure.AcquireOptions) *tenure.AcquireOptions {
		o.CoolDown = coolDown
		return &o
	}
	inWorld(t, func(t *testing.T, w *world) { // behind a living holder
		m := w.Client("a", labelled("v2"))
		l := w.Client("b").MustAcquire("x", nil)
		testutil.Want(t, testutil.Within(t, 5*time.Second, 5*time.Second, func() error {
			_, err := m.Acquire(t.Context(), "x", cools(tenure.AcquireOptions{Wait: 5 * time.Second}))
			return err
		}), tenure.ErrHeld)
		testutil.Want(t, testutil.Within(t, lease+time.Second, lease+time.Second, func() error {
			_, err := m.Acquire(t.Context(), "x", cools(tenure.AcquireOptions{AdditionalWait: time.Second}))
			return err
		}), tenure.ErrHeld)
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		_, err := m.Acquire(ctx, "x", cools(tenure.AcquireOptions{}))
		testutil.Want(t, err, context.DeadlineExceeded)
		testutil.Want(t, err, tenure.ErrHeld)
		_, err = m.TryAcquire(t.Context(), "x", cools(tenure.AcquireOptions{}))
		testutil.Want(t, err, tenure.ErrHeld)
		_, err = m.Acquire(t.Context(), "x", cools(tenure.AcquireOptions{UnlessAlive: true}))
		testutil.Want(t, err, tenure.ErrHeld)
		testutil.Want(t, l.Check(), nil)
	})
	inWorld(t, func(t *testing.T, w *world) { // events
		m := w.Client("a", labelled("v2"))
		l := w.Client("b").MustAcquire("x", nil)
		got := testutil.Go(func() error {
			_, err := m.Acquire(t.Context(), "x", cools(tenure.AcquireOptions{}))
			return err
		})
		time.Sleep(5 * time.Second)
		m.Inject(faultstore.OpGet, 0, 3, faultstore.LoseRequest())
		time.Sleep(5 * time.Second)
		testutil.Want(t, l.Release(t.Context()), nil)
		testutil.Want(t, <-got, nil)
		kinds := strings.Join(slices.Compact(strings.Fields(kinds(m))), " ")
		if kinds != "waiting store_error store_answers acquired" {
			t.Errorf("events %s", kinds)
		}
		e := m.Events(tenure.EventAcquired)[0]
		if who := m.Events(tenure.EventWaiting)[0]; who.Owner != "b" || who.Token != 1 || e.Took < 10*time.Second {
			t.Errorf("it waited for %s, for %v", who.Owner, e.Took)
		}
	})
	inWorld(t, func(t *testing.T, w *world) { // the store is away
		m := w.Client("a", labelled("v2"))
		m.Partition()
		testutil.Want(t, testutil.Within(t, lease, lease+3*requestTimeout, func() error {
			_, err := m.Acquire(t.Context(), "x", cools(tenure.AcquireOptions{}))
			return err
		}), context.DeadlineExceeded)
	})
	inWorld(t, func(t *testing.T, w *world) { // the store cannot be used
		m := w.Client("a", labelled("v2"))
		m.Inject(faultstore.OpGet, 0, 0, faultstore.Fault{Effect: faultstore.Refused, Err: driver.ErrPermanent})
		err := m.Election("x", &tenure.ElectionOptions{CoolDown: coolDown}).Run(t.Context(), noWork)
		testutil.Want(t, err, tenure.ErrPermanent)
	})
	inWorld(t, func(t *testing.T, w *world) { // the client is closed, or the session
		m := w.Client("a", labelled("v2"))
		w.Client("b").MustAcquire("x", nil)
		s := mustOpen(m, nil)
		var ended []<-chan error
		for _, e := range []*tenure.Election{
			s.Election("x", &tenure.ElectionOptions{CoolDown: coolDown}), m.Election("x", &tenure.ElectionOptions{CoolDown: coolDown}),
		} {
			ended = append(ended, testutil.Go(func() error { return e.Run(t.Context(), noWork) }))
		}
		time.Sleep(5 * time.Second)
		testutil.Want(t, s.Close(t.Context()), nil)
		testutil.Want(t, <-ended[0], tenure.ErrSessionClosed)
		testutil.Pending(t, "the other one", ended[1])
		testutil.Want(t, m.Close(t.Context()), nil)
		testutil.Want(t, <-ended[1], tenure.ErrClosed)
	})
}

// TestCoolDownPollsAsOftenAsItsElection does: where that is more often than its client polls.
func TestCoolDownPollsAsOftenAsItsElection(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.Client("a", labelled("v2"), func(o *tenure.Options) { o.RefreshPeriod = time.Hour })
		m.Inject(faultstore.OpWatch, 0, 0, faultstore.Refuse())
		l := w.Client("b").MustAcquire("x", nil)
		o := &tenure.ElectionOptions{CoolDown: coolDown, Timing: tenure.Timing{LeaseDuration: lease}}
		done := testutil.Go(func() error { return m.Election("x", o).Run(t.Context(), failsSoon) })
		time.Sleep(5 * time.Second)
		testutil.Want(t, l.Release(t.Context()), nil)
		testutil.Want(t, testutil.Within(t, 0, refresh+refresh/8+time.Second, func() error { return <-done }), errWork)
	})
}

// failsSoon is work that fails after a second.
func failsSoon(context.Context, *tenure.Lease) error {
	time.Sleep(time.Second)
	return errWork
}

// TestCoolDownOfWhatNobodyHas: a late copy of a claim under the candidate's own session
// holds the lock. A candidate with a cool-down releases that orphan, as an acquire does.
func TestCoolDownOfWhatNobodyHas(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.Client("a", labelled("v2"))
		s := mustOpen(m, nil)
		m.Inject(faultstore.OpClaim, 0, 1, faultstore.Duplicate(5*time.Second))
		mustRelease(m, mustTake(m, s, "x"))
		time.Sleep(6 * time.Second)
		if rec := w.MustRecord("x"); rec.State != driver.Held {
			t.Fatalf("the late copy was not applied: %+v", rec)
		}
		testutil.Want(t, testutil.Within(t, 0, 3*lease, func() error {
			return s.Election("x", &tenure.ElectionOptions{CoolDown: coolDown}).Run(t.Context(), failsSoon)
		}), errWork)
	})
}
