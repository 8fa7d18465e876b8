// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
)

// kinds returns the kinds of a machine's events in their order, renewals left out.
func kinds(m *machine) string {
	var kinds []string
	for _, e := range m.Events() {
		if e.Kind != tenure.EventRenewed {
			kinds = append(kinds, string(e.Kind))
		}
	}
	return strings.Join(kinds, " ")
}

func TestEventsTellTheStoryOfALease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		la := a.MustAcquire("x", nil)
		acquired := testutil.Go(func() error { b.MustAcquire("x", nil); return nil })
		time.Sleep(lease)
		testutil.Want(t, la.Do(t.Context(), 0, func(context.Context) error { time.Sleep(time.Second); return nil }), nil)
		mustRelease(a, la)
		testutil.Want(t, <-acquired, nil)
		b.Partition()
		time.Sleep(2 * lease)

		if got := kinds(a); got != "acquired stopping released" {
			t.Errorf("events of a: %s", got)
		}
		if got := kinds(b); got != "waiting acquired jeopardy lost stop_timeout" {
			t.Errorf("events of b: %s", got)
		}
		for _, m := range []*machine{a, b} {
			at := time.Time{}
			for _, e := range m.Events() {
				if e.Lock != "x" || e.Time.Before(at) || e.Missed != 0 {
					t.Errorf("event %+v", e)
				}
				at = e.Time
			}
		}
		check := func(m *machine, kind tenure.EventKind, good func(tenure.Event) bool) {
			t.Helper()
			if es := m.Events(kind); len(es) == 0 || !good(es[0]) {
				t.Errorf("%s: %+v", kind, es)
			}
		}
		check(a, tenure.EventAcquired, func(e tenure.Event) bool {
			return e.Owner == "a" && e.Token == 1 && e.Took == 0 && e.Remaining == usable
		})
		check(a, tenure.EventRenewed, func(e tenure.Event) bool {
			return e.Owner == "a" && e.Token == 1 && e.Took == 0 && e.Remaining == usable
		})
		check(a, tenure.EventStopping, func(e tenure.Event) bool { return errors.Is(e.Err, tenure.ErrReleased) })
		check(a, tenure.EventReleased, func(e tenure.Event) bool {
			return e.Held == lease+time.Second && e.Busy == time.Second && e.Err == nil
		})
		check(b, tenure.EventWaiting, func(e tenure.Event) bool {
			return e.Owner == "a" && e.Token == 1 && e.Remaining == lease
		})
		check(b, tenure.EventAcquired, func(e tenure.Event) bool {
			return e.Owner == "b" && e.Token == 2 && e.Took == lease+time.Second
		})
		check(b, tenure.EventJeopardy, func(e tenure.Event) bool {
			return e.Owner == "b" && e.Token == 2 && e.Err != nil && e.Remaining > 0
		})
		check(b, tenure.EventLost, func(e tenure.Event) bool { return errors.Is(e.Err, tenure.ErrExpired) && e.Token == 2 })
		check(b, tenure.EventStopTimeout, func(e tenure.Event) bool { return errors.Is(e.Err, tenure.ErrStopTimeout) })
	})
}

// A waiter reports each holder once, not at each poll.
func TestWaitingIsToldOncePerHolder(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c := w.Client("a"), w.Client("b"), w.Client("c")
		la := a.MustAcquire("x", nil)
		second := testutil.Go(func() error {
			l := b.MustAcquire("x", nil)
			time.Sleep(2 * lease)
			return l.Release(t.Context())
		})
		time.Sleep(time.Second)
		third := testutil.Go(func() error { c.MustAcquire("x", nil); return nil })
		// Another process takes it first.
		c.Inject(faultstore.OpHint, 0, 1, faultstore.LoseRequest())
		time.Sleep(3 * lease)
		mustRelease(a, la)
		testutil.Want(t, <-second, nil)
		testutil.Want(t, <-third, nil)
		if got := kinds(c); got != "waiting waiting acquired" {
			t.Errorf("events: %s", got)
		}
		if es := c.Events(tenure.EventWaiting); len(es) == 2 && (es[0].Owner != "a" || es[1].Owner != "b") {
			t.Errorf("events: %+v", es)
		}
	})
}

// A failing request for an acquire is one event, however long the retry takes.
func TestStoreErrorIsToldOncePerRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		m.Inject(faultstore.OpClaim, 0, 1, faultstore.LoseRequest())
		m.Inject(faultstore.OpGet, 0, 3, faultstore.LoseRequest())
		m.MustAcquire("x", nil)
		if got := kinds(m); got != "store_error store_error store_error store_error store_answers acquired" {
			t.Errorf("events: %s", got)
		}
	})
}

// A callback that takes for ever delays nothing, and learns how many events it has
// missed.
func TestSlowCallbackHoldsUpNothing(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	synctest.Test(t, func(t *testing.T) {
		var missed, seen uint64
		goOn := make(chan struct{})
		m := newWorld(t).Client("a", func(o *tenure.Options) {
			o.OnEvent = func(e tenure.Event) {
				<-goOn
				seen++
				missed += e.Missed
			}
		})
		var leases []*tenure.Lease
		for _, name := range names(200) {
			leases = append(leases, m.MustAcquire(name, nil))
		}
		time.Sleep(10 * lease) // 10,000 heartbeats
		for _, l := range leases {
			testutil.Want(t, l.Check(), nil)
			testutil.Want(t, testutil.Within(t, 0, 0, func() error { return l.Release(t.Context()) }), nil)
		}
		close(goOn)
		synctest.Wait()
		m.MustAcquire("last", nil)
		synctest.Wait()
		if missed == 0 || seen == 0 {
			t.Errorf("%d events seen, %d missed", seen, missed)
		}
		if total := uint64(m.Faults().Count()) + 200; seen+missed < total { // each release is two
			t.Errorf("%d events seen and %d missed, want %d together", seen, missed, total)
		}
	})
}

// A callback may use the client.
func TestCallbackMayCallTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m *machine
		var status tenure.Status
		m = newWorld(t).Client("a", func(o *tenure.Options) {
			o.OnEvent = func(e tenure.Event) {
				if e.Kind == tenure.EventAcquired {
					status, _ = m.Status(t.Context(), e.Lock)
				}
			}
		})
		mustRelease(m, m.MustAcquire("x", nil))
		synctest.Wait()
		if status.Owner != "a" {
			t.Errorf("status %+v", status)
		}
	})
}

// Events come one at a time.
func TestEventsComeOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running := 0
		m := newWorld(t).Client("a", func(o *tenure.Options) {
			o.OnEvent = func(tenure.Event) {
				if running++; running != 1 { // also a race for the detector
					t.Error("two callbacks at once")
				}
				time.Sleep(time.Millisecond)
				running--
			}
		})
		for _, name := range names(50) {
			go func() { _, _ = m.Acquire(t.Context(), name, nil) }()
		}
		time.Sleep(lease)
	})
}

func TestEventsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		m := newWorld(t).Client("a", func(o *tenure.Options) {
			o.OnEvent = nil
			o.Logger = slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{
				Level: slog.LevelDebug,
				ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
					if a.Key == slog.TimeKey || a.Key == "remaining" {
						return slog.Attr{}
					}
					return a
				},
			}))
		})
		mustRelease(m, m.MustAcquire("x", nil))
		m.MustAcquire("y", nil)
		_, err := m.Acquire(t.Context(), "y", &tenure.AcquireOptions{Wait: time.Millisecond})
		testutil.Want(t, err, tenure.ErrHeld)
		m.Faults().Inject(faultstore.Rule{Fault: faultstore.LoseRequest()})
		time.Sleep(lease)
		synctest.Wait()
		want := []string{
			`level=INFO msg="tenure: acquired" lock=x owner=a token=1`,
			`level=DEBUG msg="tenure: stopping" lock=x owner=a token=1 error="lease released"`,
			`level=INFO msg="tenure: released" lock=x owner=a token=1`,
			`level=INFO msg="tenure: acquired" lock=y owner=a token=1`,
			`level=INFO msg="tenure: waiting" lock=y owner=a token=1 own=true`,
			`level=WARN msg="tenure: jeopardy" lock=y owner=a token=1 error="injected fault"`,
			`level=ERROR msg="tenure: lost" lock=y owner=a token=1 error="lease expired"`,
		}
		if got := strings.TrimSpace(text.String()); got != strings.Join(want, "\n") {
			t.Errorf("log:\n%s", got)
		}
	})
}

// TestOutageIsLoggedOnce: an outage is logged once, then after pauses that double, with the
// number of errors meanwhile, and when it is over. OnEvent gets each error.
func TestOutageIsLoggedOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		away        time.Duration
		least, most int // lines of errors
		flaps       bool
	}{
		"a moment":         {away: 5 * time.Second, least: 1, most: 4},
		"an hour":          {away: time.Hour, least: 10, most: 18},
		"answers in turns": {away: time.Hour, least: 5, most: 18, flaps: true},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			w.Client("a").MustAcquire("x", nil)
			var log strings.Builder
			m := w.Client("b", func(o *tenure.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			ctx, stop := context.WithCancel(t.Context())
			waited := testutil.Go(func() error {
				_, err := m.Acquire(ctx, "x", &tenure.AcquireOptions{StoreTimeout: -1})
				return err
			})
			time.Sleep(lease)
			begun := time.Now()
			if tt.flaps {
				for time.Since(begun) < tt.away {
					m.Faults().SetBlackHole(true)
					time.Sleep(10 * time.Second)
					m.Faults().SetBlackHole(false)
					time.Sleep(10 * time.Second)
				}
			} else {
				m.Faults().SetBlackHole(true)
				time.Sleep(tt.away)
				m.Faults().SetBlackHole(false)
			}
			time.Sleep(lease)
			stop()
			testutil.Want(t, <-waited, context.Canceled)
			testutil.Want(t, m.Close(t.Context()), nil)
			errs, over := strings.Count(log.String(), "tenure: store_error"), strings.Count(log.String(), "tenure: store_answers")
			if errs < tt.least || errs > tt.most || over < 1 || over > errs || !tt.flaps && over != 1 {
				t.Errorf("%d lines tell of %v without the store, and %d that it answers:\n%s", errs, tt.away, over, log.String())
			}
			if tt.away == time.Hour && !strings.Contains(log.String(), "more=") {
				t.Errorf("no line has a count:\n%s", log.String())
			}
			told := m.Events(tenure.EventStoreAnswers)
			if len(told) == 0 || len(m.Events(tenure.EventStoreError)) <= errs {
				t.Errorf("%d events of errors, %d of answers", len(m.Events(tenure.EventStoreError)), len(told))
			} else if took := told[0].Took; !tt.flaps && (took < tt.away-5*time.Second || took > tt.away+5*time.Second) {
				t.Errorf("it was away for %v, it is said, not for %v", took, tt.away)
			}
		})
	}
}
