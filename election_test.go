// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
)

// When the work returns, the election ends for this candidate, with what it
// returned.
func TestElectionReturnsWhatWorkReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		e := m.Election("x", nil)
		if e.Name() != "x" {
			t.Errorf("name %q", e.Name())
		}
		for _, result := range []error{nil, errWork} {
			err := e.Run(t.Context(), func(context.Context, *tenure.Lease) error { return result })
			if err != result { //nolint:errorlint // what work returns, as it is
				t.Errorf("got %v, want %v", err, result)
			}
		}
		_, err := e.Leader(t.Context())
		want(t, err, tenure.ErrNoLeader)
		if got := err.Error(); got != `leader "x": no leader` {
			t.Errorf("error %q", got)
		}
	})
}

// After a loss, Run waits for the work to return, and campaigns again.
func TestElectionCampaignsAgainAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		tenures, working := 0, 0
		err := m.Election("x", nil).Run(t.Context(), func(ctx context.Context, l *tenure.Lease) error {
			if working++; working != 1 {
				t.Error("work runs twice at once")
			}
			defer func() { working-- }()
			if tenures++; tenures == 4 {
				return errWork
			}
			if l.Token() != uint64(tenures) {
				t.Errorf("token %d in tenure %d", l.Token(), tenures)
			}
			m.faults.SetBlackHole(true)
			<-ctx.Done()
			want(t, l.Check(), tenure.ErrLost)
			m.faults.SetBlackHole(false)
			time.Sleep(lease) // it drains
			return fmt.Errorf("dropped")
		})
		if err != errWork { //nolint:errorlint // what work returns, as it is
			t.Errorf("got %v", err)
		}
	})
}

func TestElectionEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.machine("a"), w.machine("b")
		ctx, stop := context.WithCancel(t.Context())
		leads := make(chan struct{})
		run := started(func() error {
			return a.Election("x", nil).Run(ctx, func(ctx context.Context, _ *tenure.Lease) error {
				close(leads)
				<-ctx.Done()
				time.Sleep(time.Second)
				return errWork
			})
		})
		<-leads
		candidate := started(func() error { return b.Election("x", nil).Run(ctx, noWork) })
		time.Sleep(lease)
		stop()
		want(t, within(t, 0, 0, func() error { return <-candidate }), nil)
		want(t, within(t, time.Second, time.Second, func() error { return <-run }), errWork)
	})
}

// A store that is silent for hours does not end a campaign.
func TestCampaignOutlastsAnyOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		m.crash()
		run := started(func() error {
			return m.Election("x", nil).Run(t.Context(), func(context.Context, *tenure.Lease) error { return errWork })
		})
		time.Sleep(time.Hour)
		pending(t, "run", run)
		m.faults.SetBlackHole(false)
		want(t, within(t, 0, 2*requestTimeout, func() error { return <-run }), errWork)
	})
}

func TestLeaderTellsWhoLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.machine("a", func(o *tenure.Options) { o.Label = "v1.2" })
		b := w.machine("b")
		e := b.Election("x", nil)
		_, err := e.Leader(t.Context())
		want(t, err, tenure.ErrNoLeader)

		data := []byte("10.0.0.1:80")
		options := &tenure.ElectionOptions{Data: data}
		ours := a.Election("x", options)
		copy(data, "xxxxxxxx") // it was copied
		since := time.Now()
		go func() {
			_ = ours.Run(t.Context(), func(ctx context.Context, _ *tenure.Lease) error { <-ctx.Done(); return nil })
		}()
		time.Sleep(lease)
		l, err := e.Leader(t.Context())
		want(t, err, nil)
		if l.None() || l.Owner != "a" || l.Token != 1 || l.Host != "host-of-a" || l.Label != "v1.2" || !l.Since.Equal(since) || string(l.Data) != "10.0.0.1:80" {
			t.Errorf("leader %+v", l)
		}
		a.crash()
		_, err = e.Leader(t.Context())
		want(t, err, nil) // it may be alive
		time.Sleep(lease)
		_, err = e.Leader(t.Context())
		want(t, err, tenure.ErrNoLeader)
	})
}

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
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
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
		expect(0, refresh+refresh/8, "b2")
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
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
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
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
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
		})
	}
}

// Observers of one process share the looks.
func TestObserversShareLooks(t *testing.T) {
	looks := func(observers int) (n int) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
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
