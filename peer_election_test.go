// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

// Each test here is named for what leader elections do wrong, and fails when
// the rule behind it is broken.

// The clock of a lease starts when its request is sent, so the holder is told
// before anybody else can begin, however long replies take.
func TestPeerFailing_LeaseCountsFromTheReply(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		const slow = requestTimeout - time.Millisecond
		m.faults.Inject(faultstore.Rule{Fault: faultstore.Slow(0, slow)})
		l := m.mustAcquire("x", nil)
		if left := l.Remaining(); left > usable(t)-slow {
			t.Errorf("%v remain after the grant", left)
		}
		for range 3 {
			want(t, l.Renew(t.Context()), nil)
			if left := l.Remaining(); left > usable(t)-slow {
				t.Errorf("%v remain after a heartbeat", left)
			}
		}
	})
}

func TestPeerFailing_HolderIsToldAfterItsSuccessorBegan(t *testing.T) {
	for i := range 20 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			peerFailing(t, func(t *testing.T, w *world) {
				// No grace: the margin is that of the clocks alone.
				a := w.machine("a", func(o *tenure.Options) { o.Grace, o.MaxClockDrift = time.Millisecond, 0.001 })
				b := w.machine("b")
				a.faults.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpHeartbeat}, Fault: faultstore.Slow(0, requestTimeout-time.Millisecond)})
				l := a.mustAcquire("x", nil)
				began := make(chan time.Time, 1)
				go func() { b.mustAcquire("x", nil); began <- time.Now() }()
				time.Sleep(lease + time.Duration(i)*heartbeat/20)
				a.crash()
				<-l.Context().Done()
				told := time.Now()
				if at := <-began; !told.Before(at) {
					t.Errorf("told %v after the successor began", told.Sub(at))
				}
			})
		})
	}
}

func TestPeerFailing_ReleaseWhileTheWorkStillRuns(t *testing.T) {
	for name, end := range map[string]func(*machine, func()){
		"cancelled": func(_ *machine, stop func()) { stop() },
		"closed":    func(m *machine, _ func()) { go m.Close(m.t.Context()) },
		"lost": func(m *machine, _ func()) {
			m.faults.SetBlackHole(true)
			time.AfterFunc(usable(m.t), func() { m.faults.SetBlackHole(false) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			peerFailing(t, func(t *testing.T, w *world) {
				a, b := w.machine("a"), w.machine("b")
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				var working atomic.Bool
				go func() {
					_ = a.Election("x", nil).Run(ctx, func(ctx context.Context, _ *tenure.Lease) error {
						working.Store(true)
						<-ctx.Done()
						time.Sleep(stopTimeout - time.Second)
						working.Store(false)
						stop()
						return nil
					})
				}()
				time.Sleep(time.Second)
				next := started(func() error { b.mustAcquire("x", nil); return nil })
				time.Sleep(time.Second)
				end(a, stop)
				want(t, <-next, nil)
				if working.Load() {
					t.Error("another leader began while the work was running")
				}
			})
		})
	}
}

// A machine that was away while it won does not lead.
func TestPeerFailing_CampaignIsWonWithADeadLease(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		away := &awayClock{Clock: tenure.MonotonicClock()}
		m := w.machine("a", func(o *tenure.Options) { o.Clock = away })
		m.fault(faultstore.OpClaim, 0, 1, faultstore.Slow(0, time.Second))
		time.AfterFunc(time.Second/2, func() { away.away.Store(int64(lease)) })
		led := 0
		want(t, m.Election("x", nil).Run(t.Context(), func(ctx context.Context, l *tenure.Lease) error {
			led++
			want(t, ctx.Err(), nil)
			return l.Check()
		}), nil)
		if led != 1 {
			t.Errorf("led %d times", led)
		}
	})
}

// awayClock is the clock of a machine that was paused from outside.
type awayClock struct {
	tenure.Clock
	away atomic.Int64
}

func (c *awayClock) Holder() time.Duration { return c.Clock.Holder() + time.Duration(c.away.Load()) }

// A candidate whose record was taken away while it waited or led is no leader,
// and no zombie: it campaigns again.
func TestPeerFailing_ZombieCandidate(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		led := 0
		run := started(func() error {
			return m.Election("x", nil).Run(t.Context(), func(ctx context.Context, l *tenure.Lease) error {
				if led++; led == 3 {
					return nil
				}
				seize(t, w, "x", func(r *driver.Record) { r.State = driver.Released })
				<-ctx.Done()
				return l.Check()
			})
		})
		want(t, within(t, 0, lease, func() error { return <-run }), nil)
	})
}

// A version counts only for the acquire that wrote it.
func TestPeerFailing_TermOfAnEarlierAcquireIsAdopted(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		m.fault(faultstore.OpClaim, 0, 1, faultstore.LateAfterError(time.Second))
		m.fault(faultstore.OpGet, 0, 1, faultstore.Slow(0, time.Second/4))
		ctx, stop := context.WithTimeout(t.Context(), time.Second/8)
		defer stop()
		_, err := m.Acquire(ctx, "x", nil)
		want(t, err, context.DeadlineExceeded)
		for err = error(driver.ErrNotFound); err != nil; time.Sleep(time.Millisecond) { // until the late claim is there
			_, err = w.records.Get(t.Context(), "x", driver.Strong)
		}
		l, err := m.TryAcquire(t.Context(), "x", nil)
		if err == nil && l.Token() == 1 {
			t.Error("the lease is that of an earlier acquire")
		}
	})
}

func TestPeerFailing_HeartbeatsGoOnForStuckWork(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		a := w.machine("a", func(o *tenure.Options) { o.ProgressTimeout = lease })
		b := w.machine("b")
		a.mustAcquire("x", nil) // and nothing moves any more
		ctx, stop := context.WithTimeout(t.Context(), 3*lease)
		defer stop()
		_, err := b.Acquire(ctx, "x", nil)
		want(t, err, nil)
	})
}

// Nobody leads: observers are told so.
func TestPeerFailing_ObserversAreNotToldThatNobodyLeads(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		m, o := w.machine("a"), w.machine("observer")
		l := m.mustAcquire("x", nil)
		ctx, stop := context.WithTimeout(t.Context(), 2*lease)
		defer stop()
		seen, done := watch(ctx, o.Election("x", nil))
		time.Sleep(lease)
		m.mustRelease(l)
		synctest.Wait()
		want(t, <-done, nil)
		if a, b := <-seen, <-seen; a != "a1" || b != "nobody" {
			t.Errorf("observed %s, %s", a, b)
		}
	})
}
