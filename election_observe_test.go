// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

// watch observes an election until its context ends.
func watch(ctx context.Context, e *tenure.Election) (seen <-chan string, done <-chan error) {
	c := make(chan string, 1000)
	return c, started(func() (last error) {
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
		a, b, o := w.machine("a"), w.machine("b"), w.machine("observer")
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
		la := a.mustAcquire("x", nil)
		expect(0, refresh+refresh/8, "a1")
		time.Sleep(lease)
		a.mustRelease(la)
		expect(0, 0, "nobody") // there is a watch
		lb := b.mustAcquire("x", nil)
		expect(0, refresh+refresh/8, "b2")
		time.Sleep(lease)
		want(t, lb.SetData(t.Context(), []byte("moved")), nil)
		expect(0, byLooks, "b2")
		time.Sleep(lease)
		b.crash()
		expect(lease-heartbeat, lease+refresh, "nobody")
		stop()
		want(t, within(t, 0, 0, func() error { return <-done }), nil) // it ends in silence
		if len(seen) != 0 {
			t.Errorf("observed %s besides", <-seen)
		}
	})
}

// A slow observer skips tenures and holds up nobody.
func TestSlowObserverSkipsTenures(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, o := w.machine("a"), w.machine("observer")
		var tokens []uint64
		observer := started(func() error {
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
			l := a.mustAcquire("x", nil)
			time.Sleep(10 * time.Second)
			a.mustRelease(l)
		}
		if took := time.Since(start); took != 450*time.Second {
			t.Errorf("the tenures took %v", took)
		}
		l := a.mustAcquire("x", nil)
		want(t, <-observer, nil)
		if len(tokens) > 10 || tokens[len(tokens)-1] < 40 {
			t.Errorf("observed %v", tokens)
		}
		want(t, l.Check(), nil)
	})
}

// An observer that comes back does not take what it saw long ago for the state
// of now.
func TestObserveWaitsForALookOfItsOwnTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.machine("a").mustAcquire("x", nil)
		e := w.machine("observer").Election("x", nil)
		_, err := e.Leader(t.Context())
		want(t, err, nil)
		time.Sleep(10 * lease)
		for l, err := range e.Observe(t.Context()) {
			want(t, err, nil)
			if l.Owner != "a" {
				t.Errorf("observed %+v first", l)
			}
			break
		}
	})
}

// An error of the store is yielded once, and observing goes on.
func TestObserveYieldsAnErrorOnce(t *testing.T) {
	for name, alone := range map[string]bool{"alone": true, "beside a campaign": false} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a, o := w.machine("a"), w.machine("observer")
			la := a.mustAcquire("x", nil)
			if !alone {
				go func() { _, _ = o.Acquire(t.Context(), "x", nil) }()
			}
			ctx, stop := context.WithCancel(t.Context())
			seen, done := watch(ctx, o.Election("x", nil))
			time.Sleep(lease)
			for range 2 {
				o.faults.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Count: 3, Fault: faultstore.LoseRequest()})
				time.Sleep(lease)
			}
			want(t, la.Check(), nil)
			stop()
			want(t, <-done, faultstore.ErrInjected)
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

// Observers of one process share the looks.
func TestObserversShareLooks(t *testing.T) {
	looks := func(observers int) (n int) {
		inWorld(t, func(t *testing.T, w *world) {
			w.machine("a").mustAcquire("x", nil)
			o := w.machine("observer")
			o.reads += observers
			for range observers {
				_, _ = watch(t.Context(), o.Election("x", nil))
			}
			time.Sleep(time.Second) // each asks for a look of its own at first
			before := o.faults.Count(faultstore.OpGet)
			time.Sleep(20 * lease)
			n = o.faults.Count(faultstore.OpGet) - before
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

// One failed look does not make a living leader nobody.
func TestObserverOutlivesAFailedLook(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b", hourly)
		a.mustAcquire("x", nil)
		var o observed
		go o.run(t.Context(), b.Election("x", nil))
		time.Sleep(2 * time.Second)
		b.fault(faultstore.OpGet, 0, 1, faultstore.Refuse())
		time.Sleep(30 * time.Minute)
		if got := o.owners(); len(got) != 1 || got[0] != "a" {
			t.Errorf("observed %q", got)
		}
	})
}

// No watch tells that somebody takes a free lock.
func TestObserverSeesANewLeaderWithinALease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c := w.machine("a"), w.machine("b", hourly), w.machine("c")
		l := a.mustAcquire("x", nil)
		var o observed
		go o.run(t.Context(), b.Election("x", nil))
		time.Sleep(time.Second)
		a.mustRelease(l)
		time.Sleep(time.Millisecond)
		c.mustAcquire("x", nil)
		time.Sleep(lease)
		if got := o.owners(); len(got) == 0 || got[len(got)-1] != "c" {
			t.Errorf("observed %q", got)
		}
	})
}

// A slow reply that a quicker look has overtaken does not bring an old leader
// back.
func TestObserverDoesNotGoBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c := w.machine("a"), w.machine("b"), w.machine("c")
		l := a.mustAcquire("x", nil)
		var o observed
		go o.run(t.Context(), b.Election("x", nil))
		time.Sleep(heartbeat)
		b.fault(faultstore.OpGet, 0, 1, faultstore.Slow(0, time.Second))
		n := b.faults.Count(faultstore.OpGet)
		for b.faults.Count(faultstore.OpGet) == n {
			time.Sleep(10 * time.Millisecond)
		}
		a.mustRelease(l)
		c.mustAcquire("x", nil)
		_, err := b.Status(t.Context(), "x")
		want(t, err, nil)
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

func TestEachObserverIsToldOfAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newWorld(t).machine("b")
		b.faults.Inject(faultstore.Rule{Fault: faultstore.LoseRequest()})
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

// An observer that cannot know yet whether the session of a lock is alive
// waits for the look at it, and does not ask itself again and again meanwhile.
func TestObserverAwaitsTheLookAtASession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.machine("a")
		s := a.mustOpen(nil)
		l := a.mustTake(s, "x")
		ctx, stop := context.WithTimeout(t.Context(), requestTimeout)
		defer stop()
		clock := &readings{Clock: tenure.MonotonicClock(), enough: stop}
		b := w.machine("b", func(o *tenure.Options) { o.Clock = clock })
		b.faults.Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return c.Key == driver.SessionKey(s.ID()) },
			Fault: faultstore.Slow(0, requestTimeout/2),
		})
		tried := started(func() error {
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
		want(t, <-tried, tenure.ErrHeld)
		want(t, l.Release(t.Context()), nil)
		want(t, s.Close(t.Context()), nil)
	})
}

// After a hint an observer asks for what the record is, however far behind cheap
// reads are.
func TestObserverSeesWhatItWasHintedAt(t *testing.T) {
	for ago := 1; ago <= 3; ago++ {
		inWorld(t, func(t *testing.T, w *world) {
			a, b := w.machine("a"), w.machine("b")
			l := a.mustAcquire("x", nil)
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
			b.stale(0, 0, ago)
			a.mustRelease(l)
			start := time.Now()
			if who := <-seen; who.Owner != "" || time.Since(start) > requestTimeout {
				t.Errorf("%d writes behind: %+v is seen %v after the release", ago, who, time.Since(start))
			}
		})
	}
}

// swept returns an observer that has seen a session alive whose process died, and
// whose record another client has swept since. Its lock stands in the store as if
// it were held.
func swept(t *testing.T) (w *world, c *machine) {
	t.Helper()
	w = newWorld(t)
	a, b, c := w.machine("a"), w.machine("b"), w.machine("c")
	s := a.mustOpen(nil)
	a.mustTake(s, "x")
	if st, err := c.Status(t.Context(), "x"); err != nil || !st.Held {
		t.Fatalf("before: %+v, %v", st, err)
	}
	a.crash()
	if n, err := b.Sweep(t.Context()); n != 1 || err != nil {
		t.Fatalf("swept %d, %v", n, err)
	}
	c.faults.ResetLog()
	return w, c
}

// A session that an observer knows was swept by somebody else. It learns so by a
// strong read, and does not ask without pause.
func TestObserverOfASweptSession(t *testing.T) {
	for name, observe := range map[string]func(*testing.T, context.Context, *machine){
		"observe": func(_ *testing.T, ctx context.Context, c *machine) {
			for _, err := range c.Election("x", nil).Observe(ctx) {
				_ = err // it goes on
			}
		},
		"step down": func(t *testing.T, ctx context.Context, c *machine) {
			want(t, c.StepDown(ctx, "x", because("test")), tenure.ErrNotHeld)
			<-ctx.Done()
		},
		"transfer": func(t *testing.T, ctx context.Context, c *machine) {
			want(t, c.StepDown(ctx, "x", &tenure.StepDownOptions{To: "d", Reason: "test"}), tenure.ErrNotHeld)
			<-ctx.Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, c := swept(t)
				// A request takes a while; without one virtual time would stand still.
				c.fault(faultstore.OpGet, 0, 0, faultstore.Slow(0, time.Millisecond))
				ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
				defer stop()
				observe(t, ctx, c)
				if n := c.faults.Count(faultstore.OpGet); n > 30 {
					t.Errorf("%d reads in 10 s", n)
				}
			})
		})
	}
}
