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
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
)

// because returns options to step down for a reason, without a next owner.
func because(why string) *tenure.StepDownOptions { return &tenure.StepDownOptions{Reason: why} }

// reign is one term as a candidate experienced it.
type reign struct {
	owner      string
	token      uint64
	begin, end time.Time
	cause      error
}

// campaign runs candidates of an election. Each leader works until it must stop.
type campaign struct {
	mu     sync.Mutex
	reigns []reign
	stop   context.CancelFunc
	all    sync.WaitGroup
}

// join has the machine campaign. Its work takes the given time to stop.
func (c *campaign) join(ctx context.Context, m *machine, o *tenure.ElectionOptions, drain time.Duration) {
	c.run(ctx, m.Election("x", o), drain)
}

func (c *campaign) run(ctx context.Context, e *tenure.Election, drain time.Duration) {
	c.all.Go(func() {
		_ = e.Run(ctx, func(ctx context.Context, l *tenure.Lease) error {
			r := reign{owner: l.Owner(), token: l.Token(), begin: time.Now()}
			<-ctx.Done()
			time.Sleep(drain)
			r.cause, r.end = context.Cause(ctx), time.Now()
			c.mu.Lock()
			defer c.mu.Unlock()
			c.reigns = append(c.reigns, r)
			return nil
		})
	})
}

func newCampaign(t *testing.T) (*campaign, context.Context) {
	ctx, stop := context.WithCancel(t.Context())
	return &campaign{stop: stop}, ctx
}

// over ends the campaign and returns the terms in their order.
func (c *campaign) over(t *testing.T) []reign {
	t.Helper()
	c.stop()
	c.all.Wait()
	slices.SortFunc(c.reigns, func(a, b reign) int { return a.begin.Compare(b.begin) })
	for i := 1; i < len(c.reigns); i++ {
		if a, b := c.reigns[i-1], c.reigns[i]; b.begin.Before(a.end) || b.token <= a.token {
			t.Errorf("%s leads under token %d before %s has stopped under token %d", b.owner, b.token, a.owner, a.token)
		}
	}
	return c.reigns
}

func owners(reigns []reign) []string {
	var list []string
	for _, r := range reigns {
		list = append(list, r.owner)
	}
	return list
}

func leader(t *testing.T, m *machine) string {
	t.Helper()
	l, err := m.Election("x", nil).Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l.Owner
}

// A leader that is asked to step down stops its work, releases, and lets others
// go first.
func TestStepDown(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, boss := w.Client("a"), w.Client("b"), w.Client("boss")
		c, ctx := newCampaign(t)
		c.join(ctx, a, nil, 2*time.Second)
		time.Sleep(time.Second)
		c.join(ctx, b, nil, 0)
		time.Sleep(10 * time.Second)

		asked := time.Now()
		testutil.Want(t, boss.Election("x", nil).StepDown(t.Context(), because("deploy")), nil)
		took := time.Since(asked)
		if most := heartbeat + 2*time.Second + refresh; took > most {
			t.Errorf("took %v: more than a heartbeat, the work's time, and a poll: %v", took, most)
		}
		time.Sleep(time.Minute)
		if got := leader(t, boss); got != "b" {
			t.Errorf("%s leads", got)
		}
		if e := a.Events(tenure.EventStopping); len(e) != 1 || !errors.Is(e[0].Err, tenure.ErrSteppedDown) {
			t.Errorf("stopping events %+v", e)
		}
		reigns := c.over(t) // then a may be granted what b leaves, and give it back
		if got := owners(reigns); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("leaders %v", got)
		}
		var cause *tenure.StepDownError
		if !errors.As(reigns[0].cause, &cause) || cause.By != "boss" || cause.Reason != "deploy" || cause.To != "" || !cause.At.Equal(asked) {
			t.Errorf("the work of a ended with %v", reigns[0].cause)
		}
		testutil.Want(t, reigns[0].cause, tenure.ErrSteppedDown)
		if errors.Is(reigns[0].cause, tenure.ErrLost) {
			t.Error("a step-down is no loss")
		}
	})
}

// Without a watch a standby learns of the release with its next poll, and the former leader at
// once. It lets the standby go first, so that leadership moves each time.
func TestStepDownWithOneStandby(t *testing.T) {
	for _, every := range []time.Duration{lease / 50, refresh, 2 * refresh, lease / 5} {
		inWorldRun(t, fmt.Sprint("polls each ", every), func(t *testing.T, w *world) {
			c, ctx := newCampaign(t)
			boss := w.Client("boss")
			for _, name := range []string{"a", "b"} {
				m := w.Client(name, func(o *tenure.Options) { o.RefreshPeriod = every })
				m.Inject(faultstore.OpWatch, 0, 0, faultstore.Fault{Effect: faultstore.Refused})
				c.join(ctx, m, nil, 0)
				time.Sleep(time.Second)
			}
			var led []string
			for i := range 6 {
				time.Sleep(2 * lease)
				led = append(led, []string{"a", "b"}[i%2])
				testutil.Want(t, boss.StepDown(t.Context(), "x", because("deploy")), nil)
			}
			time.Sleep(2 * lease)
			if got := owners(c.over(t)); !slices.Equal(got, append(led, "a")) {
				t.Errorf("leaders %v", got)
			}
		})
	}
}

// Without another candidate, the former leader leads again after a while.
func TestStepDownOfTheOnlyCandidate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, boss := w.Client("a"), w.Client("boss")
		c, ctx := newCampaign(t)
		c.join(ctx, a, nil, 0)
		time.Sleep(10 * time.Second)
		testutil.Want(t, boss.StepDown(t.Context(), "x", because("see what happens")), nil)
		_, err := boss.Election("x", nil).Leader(t.Context())
		testutil.Want(t, err, tenure.ErrNoLeader)
		time.Sleep(lease)
		if got := leader(t, boss); got != "a" {
			t.Errorf("%s leads", got)
		}
		c.over(t)
	})
}

// The named owner leads next, whatever other candidates wait.
func TestTransfer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, ctx := newCampaign(t)
		var ms []*machine
		for i := range 8 {
			ms = append(ms, w.Client(fmt.Sprint("m", i)))
			c.join(ctx, ms[i], nil, time.Second)
			time.Sleep(time.Second)
		}
		for _, to := range []string{"m5", "m2", "m7", "m0"} {
			testutil.Want(t, ms[3].StepDown(t.Context(), "x", &tenure.StepDownOptions{To: to, Reason: "moving on"}), nil)
			time.Sleep(3 * time.Second)
			if got := leader(t, ms[3]); got != to {
				t.Errorf("%s leads instead of %s", got, to)
			}
		}
		if got := owners(c.over(t)); !slices.Equal(got, []string{"m0", "m5", "m2", "m7", "m0"}) {
			t.Errorf("leaders %v", got)
		}
	})
}

// A lock that is reserved for an owner that does not come is taken by others when the
// reservation has expired.
func TestTransferToNobody(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		l := a.MustAcquire("x", nil)
		go func() {
			<-l.Context().Done()
			_ = l.Release(t.Context())
		}()
		testutil.Want(t, b.StepDown(t.Context(), "x", &tenure.StepDownOptions{To: "gone", Reason: "it was here yesterday"}), nil)
		s, err := b.Status(t.Context(), "x")
		if err != nil || s.Held || s.ReservedFor != "gone" || s.Owner != "a" || s.End != tenure.EndHandedOver || s.EndedBy.By != "b" {
			t.Errorf("status %+v, %v", s, err)
		}
		_, err = b.TryAcquire(t.Context(), "x", nil)
		var held *tenure.HeldError
		if !errors.As(err, &held) || !held.Reserved || held.Owner != "gone" {
			t.Errorf("try: %v", err)
		}
		begun := time.Now()
		got := b.MustAcquire("x", nil)
		if waited := time.Since(begun); waited > lease/2 || waited < refresh {
			t.Errorf("waited %v", waited)
		}
		if p, ok := got.Previous(); !ok || p.Owner != "a" || p.Token != 1 || p.End != tenure.EndHandedOver || p.Request.To != "gone" || p.Until.IsZero() {
			t.Errorf("previous %+v", p)
		}
		mustRelease(b, got)
	})
}

// A holder hands over of its own accord: to the owner that it names, whatever others
// wait, when its work has returned, and with the single write of its release.
func TestHandOver(t *testing.T) {
	for how, options := range map[string]*tenure.StepDownOptions{
		"under its own lease": {To: "b", Reason: "a leaves"},
		"under a session":     {To: "b", Reason: "a leaves"},
		"to a label":          {ToLabel: "v2", Reason: "a leaves"},
	} {
		inWorldRun(t, how, func(t *testing.T, w *world) {
			a, b, c := w.Client("a", labelled("v1")), w.Client("b", labelled("v2")), w.Client("c", labelled("v1"))
			l := takes(a, "x", how == "under a session")
			if err := l.StepDown(&tenure.StepDownOptions{ToLabel: "v1", Reason: "a has it"}); err == nil {
				t.Error("handed over to its own label")
			}
			took := make(chan *tenure.Lease, 2)
			for _, m := range []*machine{c, b} { // c has waited for longer
				go func() {
					if l, err := m.Acquire(t.Context(), "x", nil); err == nil {
						took <- l
					}
				}()
				time.Sleep(refresh)
			}
			a.Faults().ResetLog()
			testutil.Want(t, l.StepDown(options), nil)
			var stepped *tenure.StepDownError
			cause := context.Cause(l.Context())
			if !errors.As(cause, &stepped) || stepped.By != "a" || stepped.Reason != "a leaves" || stepped.At.IsZero() ||
				stepped.To != options.To || stepped.ToLabel != options.ToLabel {
				t.Errorf("cause %v", cause)
			}
			if err := l.StepDown(&tenure.StepDownOptions{To: "c", Reason: "too late"}); err != nil {
				t.Error(err) // what was first counts
			}
			time.Sleep(lease / 2) // the work drains
			if err := l.Check(); err != nil || len(took) > 0 {
				t.Errorf("while it drains: %v; %d others have the lock", err, len(took))
			}
			mustRelease(a, l)
			got := <-took
			p, ok := got.Previous()
			if got.Owner() != "b" || got.Token() != 2 || !ok || p.End != tenure.EndHandedOver || p.Request.By != "a" ||
				p.Request.To != options.To || p.Request.ToLabel != options.ToLabel {
				t.Errorf("%s has it under token %d, after %+v", got.Owner(), got.Token(), p)
			}
			writes := 0
			for _, call := range a.Faults().Log() {
				if op := call.Call.Op; op.IsWrite() && op != faultstore.OpHeartbeat {
					writes++
				}
			}
			if writes != 1 { // the release: who comes next writes the history
				t.Errorf("%d writes", writes)
			}
			mustRelease(b, got)
			mustRelease(c, <-took)
			testutil.Want(t, l.StepDown(options), tenure.ErrReleased)
		})
	}
}

// A holder steps down of its own accord: the lock is free for any waiter when its work
// has returned, and the record says why.
func TestHolderStepsDown(t *testing.T) {
	for _, under := range []string{"its own lease", "a session"} {
		inWorldRun(t, "under "+under, func(t *testing.T, w *world) {
			a, b := w.Client("a"), w.Client("b")
			l := takes(a, "x", under == "a session")
			if err := l.StepDown(because("")); err == nil {
				t.Error("no reason is taken for one")
			}
			testutil.Want(t, l.StepDown(because("a leaves")), nil)
			var stepped *tenure.StepDownError
			if cause := context.Cause(l.Context()); !errors.As(cause, &stepped) || stepped.By != "a" || stepped.To != "" || stepped.Reason != "a leaves" {
				t.Errorf("cause %v", cause)
			}
			if _, err := b.TryAcquire(t.Context(), "x", nil); !errors.Is(err, tenure.ErrHeld) || l.Check() != nil {
				t.Errorf("while it drains: %v, %v", err, l.Check())
			}
			mustRelease(a, l)
			got := testutil.Must(b.TryAcquire(t.Context(), "x", nil))(t)
			if p, ok := got.Previous(); !ok || p.End != tenure.EndSteppedDown || p.Request.By != "a" || p.Request.Reason != "a leaves" {
				t.Errorf("previous %+v", p)
			}
			mustRelease(b, got)
			testutil.Want(t, l.StepDown(because("again")), tenure.ErrReleased)
		})
	}
}

// A holder that was asked to hand over, and knows that the next owner is gone, leaves
// the lock free.
func TestHolderStepsDownWhenAsked(t *testing.T) {
	for _, under := range []string{"its own lease", "a session", "a session that is closed"} {
		inWorldRun(t, "under "+under, func(t *testing.T, w *world) {
			a, b := w.Client("a"), w.Client("b")
			var l *tenure.Lease
			var s *tenure.Session
			if under == "its own lease" {
				l = a.MustAcquire("x", nil)
			} else {
				s = mustOpen(a, nil)
				l = mustTake(a, s, "x")
			}
			asked := make(chan error, 1)
			go func() {
				asked <- b.StepDown(t.Context(), "x", &tenure.StepDownOptions{To: "gone", Reason: "maintenance"})
			}()
			<-l.Context().Done()
			testutil.Want(t, l.StepDown(because("it has gone")), nil)
			if under == "a session that is closed" {
				go func() { _ = s.Close(t.Context()) }()
				<-s.Context().Done()
			}
			mustRelease(a, l)
			testutil.Want(t, <-asked, nil)
			got := testutil.Must(b.TryAcquire(t.Context(), "x", nil))(t)
			if p, ok := got.Previous(); !ok || p.End != tenure.EndSteppedDown || p.Request.Reason != "it has gone" {
				t.Errorf("previous %+v", p)
			}
			mustRelease(b, got)
		})
	}
}

// A hand-over is refused without a receiver, to oneself, without a reason, or when the
// lease is over.
func TestHandOverRefuses(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a")
		l := a.MustAcquire("x", nil)
		for _, o := range []*tenure.StepDownOptions{
			nil, {To: "a", Reason: "why"}, {To: "b"}, {To: "b\n", Reason: "why"}, {To: "b", ToLabel: "v2", Reason: "why"},
		} {
			err := l.StepDown(o)
			if err == nil {
				t.Error("no error")
			}
			t.Log(err)
		}
		if err := l.Check(); err != nil || l.Context().Err() != nil {
			t.Errorf("handed over nevertheless: %v", err)
		}
		a.Partition()
		time.Sleep(lease)
		testutil.Want(t, l.StepDown(&tenure.StepDownOptions{To: "b", Reason: "why"}), tenure.ErrExpired)
	})
}

// Of ten concurrent requests one is written, and nine fail with that one.
func TestTenRequesters(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a")
		l := a.MustAcquire("x", nil)
		go func() {
			<-l.Context().Done()
			time.Sleep(5 * time.Second)
			_ = l.Release(t.Context())
		}()
		var all sync.WaitGroup
		errs := make([]error, 10)
		for i := range errs {
			m := w.Client(fmt.Sprint("requester-", i))
			all.Go(func() {
				errs[i] = m.StepDown(t.Context(), "x", because(fmt.Sprint("reason ", i)))
			})
		}
		all.Wait()
		written, refused := 0, 0
		for _, err := range errs {
			var first *tenure.RequestedError
			switch {
			case err == nil:
				written++
			case errors.As(err, &first) && first.Request.By != "" && first.Request.Reason != "":
				refused++
				testutil.Want(t, err, tenure.ErrRequested)
			default:
				t.Error(err)
			}
		}
		if written != 1 || refused != 9 {
			t.Errorf("%d written, %d refused", written, refused)
		}
	})
}

// A request to a dead holder does not delay its takeover.
func TestAskingTheDeadDelaysNothing(t *testing.T) {
	takeover := func(asks int) (took time.Duration) {
		inWorld(t, func(t *testing.T, w *world) {
			a, b := w.Client("a"), w.Client("b")
			a.MustAcquire("x", nil)
			begun := time.Now()
			a.Partition()
			got := make(chan *tenure.Lease)
			go func() { got <- b.MustAcquire("x", nil) }()
			for i := range asks {
				time.Sleep(time.Second)
				m := w.Client(fmt.Sprint("requester-", i))
				go func() {
					if err := m.StepDown(t.Context(), "x", because("hurry")); err != nil && i > 0 {
						testutil.Want(t, err, tenure.ErrRequested)
					}
				}()
			}
			l := <-got
			took = time.Since(begun)
			p, _ := l.Previous()
			if p.End != tenure.EndExpired || (p.Request != nil) != (asks > 0) {
				t.Errorf("previous %+v", p)
			}
			mustRelease(b, l)
		})
		return took
	}
	alone, asked := takeover(0), takeover(10)
	t.Logf("takeover after %v without requests, after %v with ten", alone, asked)
	if asked != alone || alone < lease {
		t.Errorf("takeover after %v, and %v with requests", alone, asked)
	}
}

func TestAskingNobody(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		b.BoundReads(15) // it asks five times in no time; each asks and observes, and may look again
		testutil.Want(t, b.StepDown(t.Context(), "x", because("why")), tenure.ErrNotHeld)
		testutil.Want(t, admin.ReleaseDead(t.Context(), b.Client, "x", "why"), tenure.ErrNotHeld)
		testutil.Want(t, admin.Revoke(t.Context(), b.Client, "x", "why"), tenure.ErrNotHeld)
		l := a.MustAcquire("x", nil)
		why := because("why")
		for _, err := range []error{
			b.StepDown(t.Context(), "", why), b.StepDown(t.Context(), "tenure/x", why), b.StepDown(t.Context(), "x", nil),
			b.StepDown(t.Context(), "x", because("a\nb")),
			b.StepDown(t.Context(), "x", &tenure.StepDownOptions{To: "a", Reason: "why"}),
			b.StepDown(t.Context(), "x", &tenure.StepDownOptions{To: "c", ToLabel: "v2", Reason: "why"}),
		} {
			if err == nil {
				t.Error("no error")
			}
			t.Log(err)
		}
		if l.Check() != nil {
			t.Error("asked nevertheless")
		}
		mustRelease(a, l)
		testutil.Want(t, b.StepDown(t.Context(), "x", because("why")), tenure.ErrNotHeld)
		ctx, stop := context.WithCancel(t.Context())
		stop()
		testutil.Want(t, b.StepDown(ctx, "x", because("why")), context.Canceled)
		_ = b.Close(t.Context())
		testutil.Want(t, b.StepDown(t.Context(), "x", because("why")), tenure.ErrClosed)
	})
}

// A holder that does not answer: the request stays, and says so.
func TestUnanswered(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		a.MustAcquire("x", nil)
		a.Partition()
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
		defer stop()
		err := b.StepDown(ctx, "x", because("why"))
		testutil.Want(t, err, tenure.ErrUnanswered)
		testutil.Want(t, err, context.DeadlineExceeded)
		testutil.Want(t, b.StepDown(t.Context(), "x", because("why")), tenure.ErrRequested)
		s, err := b.Status(t.Context(), "x")
		if err != nil || s.Request == nil || s.Request.By != "b" || s.Request.Kind != tenure.RequestStepDown {
			t.Errorf("status %+v, %v", s, err)
		}
		c := w.Client("c")
		begun := time.Now()
		testutil.Want(t, admin.ReleaseDead(t.Context(), c.Client, "x", "it is dead"), nil)
		if took := time.Since(begun); took < lease || took > lease+refresh*9/8 {
			t.Errorf("released after %v", took)
		}
		rec := w.MustRecord("x")
		if rec.State != driver.Released || rec.End != driver.EndReleasedDead || rec.Asked.By != "c" || len(rec.Requests) != 0 {
			t.Errorf("record %+v", rec)
		}
	})
}

// If the store can watch, a leader learns of a request at once.
func TestStepDownWithAWatch(t *testing.T) {
	for _, watches := range []bool{true, false} {
		inWorldRun(t, fmt.Sprint("watches=", watches), func(t *testing.T, w *world) {
			a, boss := w.Client("a"), w.Client("boss")
			l := a.MustAcquire("x", &tenure.AcquireOptions{WatchRequests: watches})
			go func() {
				<-l.Context().Done()
				time.Sleep(200 * time.Millisecond)
				_ = l.Release(t.Context())
			}()
			var took time.Duration
			time.Sleep(10 * time.Second)
			before := a.Faults().Count()
			begun := time.Now()
			testutil.Want(t, boss.StepDown(t.Context(), "x", because("now")), nil)
			took = time.Since(begun)
			if quick := took < 210*time.Millisecond; quick != watches || took > heartbeat+2*refresh {
				t.Errorf("took %v", took)
			}
			if n := a.Faults().Count() - before; watches && n > 3 {
				t.Errorf("the holder made %d requests: a conflict, a heartbeat, and the release", n)
			}
		})
	}
}

// A lease whose claim has lost its reply, and whose record has got a request since,
// counts from its claim: it is granted, and the request ends it.
func TestRequestOnAClaimWhoseReplyWasLost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, boss := w.Client("a"), w.Client("boss")
		time.Sleep(time.Hour) // away from the origin of the clock
		a.Inject(faultstore.OpClaim, 0, 1, faultstore.LoseReplyHang())
		done := testutil.Go(func() error {
			l, err := a.Acquire(t.Context(), "x", nil)
			if err != nil {
				return err
			}
			<-l.Context().Done()
			testutil.Want(t, context.Cause(l.Context()), tenure.ErrSteppedDown)
			return l.Release(t.Context())
		})
		time.Sleep(requestTimeout / 2)
		testutil.Want(t, boss.StepDown(t.Context(), "x", because("early")), nil)
		testutil.Want(t, <-done, nil)
	})
}

// reservation is how long a lock is reserved after a hand-over.
const reservation = 2 * (refresh + requestTimeout)

// obeys takes the lock, and releases it when it is asked to.
func obeys(m *machine, name string) *tenure.Lease {
	t := m.World().T()
	t.Helper()
	l := m.MustAcquire(name, &tenure.AcquireOptions{History: true})
	go func() {
		<-l.Context().Done()
		_ = l.Release(t.Context())
	}()
	return l
}

// waits has the machine wait for the lock; the channel has when it got it.
func waits(m *machine, name string) <-chan time.Time {
	t := m.World().T()
	got := make(chan time.Time, 1)
	go func() {
		l, err := m.Acquire(t.Context(), name, nil)
		switch {
		case t.Context().Err() != nil:
			return
		case err != nil:
			t.Errorf("%s: %v", m.Options().Owner, err)
			return
		}
		got <- time.Now()
		<-l.Context().Done()
		_ = l.Release(t.Context())
	}()
	return got
}

// soon returns the next value, and fails the test if none comes.
func soon(t *testing.T, got <-chan time.Time) time.Time {
	t.Helper()
	select {
	case at := <-got:
		return at
	case <-time.After(10 * lease):
		t.Fatal("it does not get the lock")
		return time.Time{}
	}
}

// TestTransferToLabel: the first candidate of that label takes the lock at once, and no
// other, although others have waited longer.
func TestTransferToLabel(t *testing.T) {
	for _, under := range []string{"its own lease", "a session"} {
		inWorldRun(t, "under "+under, func(t *testing.T, w *world) {
			a := w.Client("a", labelled("v1"))
			if under == "a session" {
				l := mustTake(a, mustOpen(a, nil), "x")
				go func() {
					<-l.Context().Done()
					_ = l.Release(t.Context())
				}()
			} else {
				obeys(a, "x")
			}
			others := map[string]<-chan time.Time{}
			for name, label := range map[string]string{"b": "v1", "c": "", "d": "v3"} {
				others[name] = waits(w.Client(name, labelled(label)), "x")
			}
			time.Sleep(lease)
			e := w.Client("e", labelled("v2"))
			successor := waits(e, "x")
			time.Sleep(lease)
			begun := time.Now()
			testutil.Want(t, a.StepDown(t.Context(), "x", &tenure.StepDownOptions{ToLabel: "v2", Reason: "deploy"}), nil)
			if took := soon(t, successor).Sub(begun); took > heartbeat+2*refresh {
				t.Errorf("it took %v", took)
			}
			for name, got := range others {
				select {
				case <-got:
					t.Errorf("%s has the lock", name)
				default:
				}
			}
			st, err := e.Status(t.Context(), "x")
			if p := st.Previous; err != nil || st.Owner != "e" || st.Token != 2 || st.Label != "v2" || st.ReservedForLabel != "" ||
				p.End != tenure.EndHandedOver || p.Request.ToLabel != "v2" || p.Request.To != "" {
				t.Errorf("status %+v, %v", st, err)
			}
		})
	}
}

// TestTransferToLabelThatNobodyHas: the lock is reserved for its time, says so, and is
// then free for others.
func TestTransferToLabelThatNobodyHas(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a", labelled("v1")), w.Client("b", labelled("v1"))
		l := obeys(a, "x")
		testutil.Want(t, b.StepDown(t.Context(), "x", &tenure.StepDownOptions{ToLabel: "v2", Reason: "deploy"}), nil)
		begun := time.Now()
		var asked *tenure.StepDownError
		if err := context.Cause(l.Context()); !errors.As(err, &asked) || asked.ToLabel != "v2" || asked.To != "" ||
			err.Error() != `asked by "b" to hand over to label "v2": deploy` {
			t.Errorf("told %v", err)
		}
		s, err := b.Status(t.Context(), "x")
		if err != nil || s.Held || s.State != tenure.StateReserved || s.ReservedFor != "" || s.ReservedForLabel != "v2" ||
			s.Owner != "a" || s.Label != "v1" || s.End != tenure.EndHandedOver || s.EndedBy.ToLabel != "v2" || s.FreeIn <= 0 {
			t.Errorf("status %+v, %v", s, err)
		}
		var held *tenure.HeldError
		if _, err = b.TryAcquire(t.Context(), "x", nil); !errors.As(err, &held) || !held.Reserved || held.Owner != "" || held.Label != "v2" ||
			!strings.Contains(err.Error(), `reserved for label "v2" after token 1; free in `) {
			t.Errorf("try: %v", err)
		}
		testutil.Want(t, b.StepDown(t.Context(), "x", because("why")), tenure.ErrNotHeld)
		others := waits(b, "x")
		if waited := soon(t, others).Sub(begun); waited < reservation || waited > reservation+refresh {
			t.Errorf("another label waited for %v, want %v", waited, reservation)
		}
	})
}

// TestTransferToLabelIsForOneOfIt: several candidates have the label, one of them gets
// the lock, and a try succeeds as well as a wait.
func TestTransferToLabelIsForOneOfIt(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a", labelled("v1"))
		obeys(a, "x")
		testutil.Want(t, a.StepDown(t.Context(), "x", &tenure.StepDownOptions{ToLabel: "v2", Reason: "deploy"}), nil)
		var got []*tenure.Lease
		for i := range 5 {
			l, err := w.Client(fmt.Sprint("m", i), labelled("v2")).TryAcquire(t.Context(), "x", nil)
			if err == nil {
				got = append(got, l)
			} else {
				testutil.Want(t, err, tenure.ErrHeld)
			}
		}
		if len(got) != 1 || got[0].Token() != 2 {
			t.Errorf("%d of them have the lock", len(got))
		}
	})
}

// TestTransferToLabelIsChecked: a request is refused if the holder has that label, or
// if the label is invalid.
func TestTransferToLabelIsChecked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a", labelled("v2")), w.Client("b", labelled("v1"))
		l := obeys(a, "x")
		for label, text := range map[string]string{
			"v2":                      `"a" already holds the lock, under token 1, and has label "v2"`,
			"a\nb":                    "label to hand over to",
			strings.Repeat("v", 2000): "label to hand over to",
		} {
			err := b.Election("x", nil).StepDown(t.Context(), &tenure.StepDownOptions{ToLabel: label, Reason: "deploy"})
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("to label %.20q: %v", label, err)
			}
		}
		err := b.StepDown(t.Context(), "x", &tenure.StepDownOptions{ToLabel: "v3"})
		if err == nil || !strings.Contains(err.Error(), "the reason is empty") {
			t.Errorf("without a reason: %v", err)
		}
		testutil.Want(t, l.Check(), nil)
		if rec := w.MustRecord("x"); len(rec.Requests) > 0 || l.Context().Err() != nil {
			t.Errorf("the holder was asked %+v", rec.Requests)
		}
	})
}

// TestHandOverToALabelIsNotPutOff: a version that has failed takes at once what was
// handed over to it on purpose.
func TestHandOverToALabelIsNotPutOff(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		bad, good := w.Client("new", labelled("v2")), w.Client("old", labelled("v1"))
		o := &tenure.ElectionOptions{CoolDown: coolDown}
		for range 4 {
			fails(bad, o)
		}
		obeys(good, "x")
		ctx, stop := context.WithCancel(t.Context())
		led := make(chan time.Time, 1)
		done := testutil.Go(func() error {
			return bad.Election("x", o).Run(ctx, func(ctx context.Context, _ *tenure.Lease) error {
				led <- time.Now()
				<-ctx.Done()
				return nil
			})
		})
		time.Sleep(lease)
		begun := time.Now()
		more := &tenure.StepDownOptions{ToLabel: "v2", Reason: "once more"}
		testutil.Want(t, good.Election("x", nil).StepDown(t.Context(), more), nil)
		if took := soon(t, led).Sub(begun); took > heartbeat+2*refresh {
			t.Errorf("it was put off for %v", took)
		}
		stop()
		testutil.Want(t, <-done, nil)
	})
}
