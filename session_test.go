// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
)

// mustOpen opens a session.
func mustOpen(m *machine, o *tenure.SessionOptions) *tenure.Session {
	t := m.World().T()
	t.Helper()
	return testutil.Must(m.OpenSession(t.Context(), o))(t)
}

// mustTake acquires a lock under a session of the machine.
func mustTake(m *machine, s *tenure.Session, name string) *tenure.Lease {
	t := m.World().T()
	t.Helper()
	return testutil.Must(s.Acquire(t.Context(), name, nil))(t)
}

// takes acquires the lock, under a session of its own or not.
func takes(m *machine, name string, underSession bool) *tenure.Lease {
	if underSession {
		return mustTake(m, mustOpen(m, nil), name)
	}
	return m.MustAcquire(name, nil)
}

// mustClose closes a session of the machine when all leases are released.
func mustClose(m *machine, s *tenure.Session, leases ...*tenure.Lease) {
	t := m.World().T()
	t.Helper()
	var all sync.WaitGroup
	for _, l := range leases {
		all.Go(func() {
			<-l.Context().Done()
			if err := l.Release(context.Background()); err != nil {
				t.Errorf("release of %s: %v", l.Name(), err)
			}
		})
	}
	testutil.Want(t, s.Close(t.Context()), nil)
	all.Wait()
}

// One write each heartbeat, however many locks.
func TestSessionCostsOneWriteAHeartbeat(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a")
		s := mustOpen(a, &tenure.SessionOptions{Data: []byte("10.0.0.1")})
		const locks = 300
		leases := make([]*tenure.Lease, locks)
		for i := range leases {
			leases[i] = mustTake(a, s, fmt.Sprintf("lock-%d", i))
		}
		before, all := a.Faults().Count(faultstore.OpHeartbeat), a.Faults().Count()
		const beats = 100
		time.Sleep(beats * heartbeat)
		if got := a.Faults().Count(faultstore.OpHeartbeat) - before; got > beats+1 || got < beats-1 {
			t.Errorf("%d writes in %d heartbeat periods with %d locks", got, beats, locks)
		}
		if got := a.Faults().Count() - all; got > beats+1 {
			t.Errorf("%d requests in %d heartbeat periods", got, beats)
		}
		for _, l := range leases {
			testutil.Want(t, l.Check(), nil)
			if l.Remaining() < usable-heartbeat-requestTimeout {
				t.Fatalf("%v of the lease remains", l.Remaining())
			}
		}
		if got := s.Leases(); got != locks {
			t.Errorf("%d locks are held, want %d", got, locks)
		}
		all = a.Faults().Count()
		mustClose(a, s, leases...)
		if got := a.Faults().Count() - all; got != 1 {
			t.Errorf("closing the session cost %d requests, want 1", got)
		}
		b := w.Client("b")
		begun := time.Now()
		if l := b.MustAcquire("lock-7", nil); l.Token() != 2 || time.Since(begun) > 0 {
			t.Errorf("token %d after %v", l.Token(), time.Since(begun))
		}
		if p, err := b.History(t.Context(), "lock-7"); err != nil || len(p) < 2 || p[1].End != tenure.EndReleased {
			t.Errorf("history %+v, %v", p, err)
		}
	})
}

// A crashed process's locks are free when its session's lease has expired.
func TestSessionThatCrashed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		s := mustOpen(a, nil)
		var leases []*tenure.Lease
		for i := range 3 {
			leases = append(leases, mustTake(a, s, fmt.Sprintf("lock-%d", i)))
		}
		ended := make(chan time.Time, 3)
		for _, l := range leases {
			context.AfterFunc(l.Context(), func() { ended <- time.Now() })
		}
		time.Sleep(heartbeat + heartbeat/2)
		a.Partition()
		begun := time.Now()
		for i := range leases {
			l := b.MustAcquire(fmt.Sprintf("lock-%d", i), nil)
			if l.Token() != 2 {
				t.Errorf("token %d", l.Token())
			}
			if took := time.Since(begun); took > lease+refresh {
				t.Errorf("lock %d is taken after %v", i, took)
			}
		}
		for range leases {
			if at := <-ended; at.Sub(begun) > lease {
				t.Errorf("a context ended after %v", at.Sub(begun))
			}
		}
		for _, l := range leases {
			testutil.Want(t, l.Check(), tenure.ErrExpired)
			if cause := context.Cause(l.Context()); !errors.Is(cause, tenure.ErrExpired) {
				t.Errorf("cause: %v", cause)
			}
		}
		if _, err := s.Acquire(t.Context(), "more", nil); !errors.Is(err, tenure.ErrSessionClosed) || !errors.Is(err, tenure.ErrExpired) {
			t.Errorf("acquire under it: %v", err)
		}
		id := s.ID()
		if rec := w.MustRecord(driver.SessionKey(id)); rec.State != driver.Closed {
			t.Errorf("the session is %s", rec.State)
		}
		for _, l := range leases {
			_ = l.Release(t.Context())
		}
	})
}

// An acquire with its own lease and one under a session wait for each other.
func TestSessionAndOwnLeaseContend(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		s := mustOpen(a, nil)
		l := mustTake(a, s, "job")
		if _, err := b.TryAcquire(t.Context(), "job", nil); !errors.Is(err, tenure.ErrHeld) {
			t.Fatalf("try: %v", err)
		}
		got := make(chan *tenure.Lease)
		go func() { got <- b.MustAcquire("job", nil) }()
		time.Sleep(4 * lease)
		select {
		case <-got:
			t.Fatal("acquired beside the session")
		default:
		}
		mustRelease(a, l)
		mine := <-got
		if mine.Token() != 2 || mine.Session() != nil {
			t.Errorf("token %d, session %v", mine.Token(), mine.Session())
		}
		go func() {
			next, err := s.Acquire(t.Context(), "job", nil)
			if err != nil {
				t.Error(err)
			}
			got <- next
		}()
		time.Sleep(2 * lease)
		mustRelease(b, mine)
		next := <-got
		if next.Token() != 3 || next.Session() != s {
			t.Errorf("token %d, session %v", next.Token(), next.Session())
		}
		mustClose(a, s, next)
	})
}

// A session's locks become free only after the work under it has returned.
func TestSessionIsClosedWhenItsWorkHasReturned(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a")
		s := mustOpen(a, nil)
		l := mustTake(a, s, "job")
		busy := a.MustAcquire("busy", nil)
		ctx, stop := context.WithCancel(t.Context())
		waited := testutil.Go(func() error {
			_, err := a.Acquire(ctx, "busy", nil)
			return err
		})
		closed := testutil.Go(func() error { return s.Close(t.Context()) })
		<-l.Context().Done()
		if cause := context.Cause(l.Context()); !errors.Is(cause, tenure.ErrSessionClosed) {
			t.Errorf("cause %v", cause)
		}
		time.Sleep(stopTimeout / 2)
		// An acquire under it is refused now, and not when its turn comes.
		soon, cancel := context.WithTimeout(t.Context(), lease/2)
		defer cancel()
		if _, err := s.Acquire(soon, "busy", nil); !errors.Is(err, tenure.ErrSessionClosed) {
			t.Errorf("an acquire behind another one: %v", err)
		}
		stop()
		testutil.Want(t, <-waited, context.Canceled)
		mustRelease(a, busy)
		testutil.Want(t, l.Check(), nil)
		testutil.Want(t, l.SetData(t.Context(), []byte("last")), nil)
		if rec := w.MustRecord(driver.SessionKey(s.ID())); rec.State != driver.Alive {
			t.Errorf("the session is %s while work goes on", rec.State)
		}
		mustRelease(a, l)
		testutil.Want(t, <-closed, nil)
		b := w.Client("b")
		next := b.MustAcquire("job", nil)
		if p, _ := next.Previous(); string(p.Data) != "last" || p.End != tenure.EndReleased {
			t.Errorf("previous %+v", p)
		}
	})
}

// For work that does not stop, heartbeats go on for the stop timeout, and no longer.
func TestSessionStopTimeout(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		s := mustOpen(a, nil)
		l := mustTake(a, s, "job")
		begun := time.Now()
		testutil.Want(t, s.Close(t.Context()), tenure.ErrStopTimeout)
		if took := time.Since(begun); took != stopTimeout {
			t.Errorf("closed after %v", took)
		}
		testutil.Want(t, l.Check(), tenure.ErrStopTimeout)
		b.MustAcquire("job", nil)
		if took := time.Since(begun); took < stopTimeout+lease-heartbeat-requestTimeout {
			t.Errorf("taken after %v", took)
		}
		if err := l.Release(t.Context()); !errors.Is(err, tenure.ErrStopTimeout) && !errors.Is(err, tenure.ErrLost) {
			t.Errorf("release: %v", err)
		}
	})
}

// An election under a session is one of its locks.
func TestSessionElection(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		s := mustOpen(a, nil)
		led := testutil.Go(func() error {
			return s.Election("leader", nil).Run(t.Context(), func(ctx context.Context, l *tenure.Lease) error {
				<-ctx.Done()
				return ctx.Err()
			})
		})
		synctest.Wait()
		leader, err := b.Election("leader", nil).Leader(t.Context())
		if err != nil || leader.Owner != "a" {
			t.Errorf("leader %+v, %v", leader, err)
		}
		st, err := b.Status(t.Context(), "leader")
		if err != nil || !st.Held || st.Session != s.ID() || st.FreeIn <= 0 || st.FreeIn > lease {
			t.Errorf("status %+v, %v", st, err)
		}
		testutil.Want(t, s.Close(t.Context()), nil)
		testutil.Want(t, <-led, context.Canceled)
		testutil.Want(t, s.Election("leader", nil).Run(t.Context(), noWork), tenure.ErrSessionClosed)
		if st, err = b.Status(t.Context(), "leader"); err != nil || st.Held {
			t.Errorf("status after the close %+v, %v", st, err)
		}
	})
}

// A client that is closed closes its sessions.
func TestSessionEndsWithItsClient(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a")
		s := mustOpen(a, nil)
		var leases []*tenure.Lease
		for i := range 150 { // more than follow their session in one step
			l := mustTake(a, s, fmt.Sprint("job-", i))
			go func() {
				<-l.Context().Done()
				_ = l.Release(context.WithoutCancel(t.Context()))
			}()
			leases = append(leases, l)
		}
		testutil.Want(t, a.Close(t.Context()), nil)
		for _, l := range leases {
			if cause := context.Cause(l.Context()); !errors.Is(cause, tenure.ErrClosed) {
				t.Errorf("cause %v", cause)
			}
		}
		if rec := w.MustRecord(driver.SessionKey(s.ID())); rec.State != driver.Closed {
			t.Errorf("the session is %s", rec.State)
		}
		if _, err := s.Acquire(t.Context(), "more", nil); !errors.Is(err, tenure.ErrClosed) {
			t.Errorf("acquire: %v", err)
		}
	})
}

// The reply to the opening is lost: the session is open under another id, and the first
// one makes no process wait.
func TestSessionLosesAReply(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a")
		a.Inject(faultstore.OpClaim, 0, 1, faultstore.Fault{Effect: faultstore.ReplyLost})
		s := mustOpen(a, nil)
		a.Inject(faultstore.OpClaim, 0, 1, faultstore.Fault{Effect: faultstore.ReplyLost})
		l := mustTake(a, s, "job")
		a.Inject(faultstore.OpHeartbeat, 0, 1, faultstore.Fault{Effect: faultstore.ReplyLost})
		time.Sleep(3 * lease)
		testutil.Want(t, l.Check(), nil)
		mustClose(a, s, l)
	})
}

// A claim that is applied after its acquire was given up holds the lock in the name of
// a live session. A waiter for the lock asks the session, and gets the lock.
func TestSessionOrphanIsReleased(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		s := mustOpen(a, nil)
		l := mustTake(a, s, "job")
		mustRelease(a, l)
		claims := a.Faults().Log()
		for _, c := range claims {
			if c.Op == faultstore.OpClaim && c.Call.Next.Key == "job" {
				if _, err := a.Faults().Replay(t.Context(), c.Call); err != nil {
					t.Fatal(err)
				}
			}
		}
		if rec := w.MustRecord("job"); rec.State != driver.Held || rec.Session != s.ID() {
			t.Fatalf("no orphan: %+v", rec)
		}
		begun := time.Now()
		got := b.MustAcquire("job", nil)
		if took := time.Since(begun); took > 2*lease {
			t.Errorf("the orphan is free after %v", took)
		}
		testutil.Want(t, s.Check(), nil)
		mustRelease(b, got)
		mustClose(a, s)
	})
}

func TestSessionStatuses(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		s := mustOpen(a, nil)
		var leases []*tenure.Lease
		names := []string{"none", ""}
		for i := range 20 {
			name := fmt.Sprintf("lock-%d", i)
			leases, names = append(leases, mustTake(a, s, name)), append(names, name)
		}
		own := b.MustAcquire("own", nil)
		names = append(names, "own")
		list, errs := b.Statuses(t.Context(), names, nil)
		if list[0].Held || errs[0] != nil || errs[1] == nil {
			t.Errorf("%+v %v, %v", list[0], errs[0], errs[1])
		}
		for i, st := range list[2:] {
			if errs[i+2] != nil || !st.Held || st.FreeIn <= 0 || st.FreeIn > lease || st.Token != 1 || st.Name != names[i+2] {
				t.Errorf("%+v, %v", st, errs[i+2])
			}
			if want := names[i+2] != "own"; (st.Session == s.ID()) != want {
				t.Errorf("%s: session %q", st.Name, st.Session)
			}
		}
		a.Partition()
		time.Sleep(lease)
		// The view of the session shows that it is dead: one write closes it, and then each
		// lock costs one.
		list, errs = b.Statuses(t.Context(), names[2:22], nil)
		for i, st := range list {
			if errs[i] != nil || st.Held {
				t.Errorf("%+v, %v", st, errs[i])
			}
		}
		before := b.Faults().Count()
		for _, name := range names[2:22] {
			if _, err := b.TryAcquire(t.Context(), name, nil); err != nil {
				t.Error(err)
			}
		}
		if got := b.Faults().Count() - before; got > 21 {
			t.Errorf("20 locks of a dead session cost %d requests, want 21", got)
		}
		for _, l := range leases {
			_ = l.Release(t.Context())
		}
		mustRelease(b, own)
	})
}

func TestSessionChecksItsInput(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a")
		if _, err := a.OpenSession(t.Context(), &tenure.SessionOptions{Data: make([]byte, driver.MaxSessionDataLen+1)}); err == nil {
			t.Error("opened with too much data")
		}
		s := mustOpen(a, nil)
		if err := s.SetData(t.Context(), make([]byte, driver.MaxSessionDataLen+1)); err == nil {
			t.Error("too much data is written")
		}
		testutil.Want(t, s.SetData(t.Context(), []byte("new")), nil)
		if rec := w.MustRecord(driver.SessionKey(s.ID())); string(rec.Data) != "new" {
			t.Errorf("data %q", rec.Data)
		}
		if _, err := s.Acquire(t.Context(), "tenure/session/x", nil); err == nil {
			t.Error("acquired a session's record")
		}
		testutil.Want(t, s.Renew(t.Context()), nil)
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if _, err := a.OpenSession(ctx, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("opened with a context that has ended: %v", err)
		}
		mustClose(a, s)
		testutil.Want(t, s.Close(t.Context()), nil)
		if err := s.Check(); err == nil {
			t.Error("a closed session passes the check")
		}
	})
}

// A request to a lock travels in the session's record.
func TestSessionRequests(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		s := mustOpen(a, nil)
		other := mustTake(a, s, "other")
		l := mustTake(a, s, "job")
		go func() {
			<-l.Context().Done()
			var stepped *tenure.StepDownError
			if cause := context.Cause(l.Context()); !errors.As(cause, &stepped) || stepped.Reason != "maintenance" || stepped.By != "b" {
				t.Errorf("cause %v", cause)
			}
			testutil.Want(t, l.Check(), nil)
			_ = l.Release(context.WithoutCancel(t.Context()))
		}()
		begun := time.Now()
		testutil.Want(t, b.StepDown(t.Context(), "job", because("maintenance")), nil)
		if took := time.Since(begun); took > heartbeat+refresh {
			t.Errorf("stepped down after %v", took)
		}
		if h, err := b.History(t.Context(), "job"); err != nil || h[0].End != tenure.EndSteppedDown || h[0].Request == nil || h[0].Request.Reason != "maintenance" {
			t.Errorf("history %+v, %v", h, err)
		}
		testutil.Want(t, other.Check(), nil)

		// A hand-over: reserved for b, that takes it at once.
		l = mustTake(a, s, "job")
		go func(l *tenure.Lease) {
			<-l.Context().Done()
			_ = l.Release(context.WithoutCancel(t.Context()))
		}(l)
		got := make(chan *tenure.Lease)
		go func() { got <- b.MustAcquire("job", nil) }()
		testutil.Want(t, b.StepDown(t.Context(), "job", &tenure.StepDownOptions{To: "b", Reason: "to where it belongs"}), nil)
		mine := <-got
		if p, _ := mine.Previous(); p.End != tenure.EndHandedOver {
			t.Errorf("previous %+v", p)
		}
		mustRelease(b, mine)

		// A request that comes too late finds no holder, and a request for a lock that is not
		// held does not touch the session.
		testutil.Want(t, b.StepDown(t.Context(), "job", because("again")), tenure.ErrNotHeld)
		testutil.Want(t, admin.Revoke(t.Context(), b.Client, "other", "by force"), tenure.ErrAlive)
		testutil.Want(t, other.Check(), nil)
		time.Sleep(2 * heartbeat)
		synctest.Wait() // for a heartbeat of this moment, which would show life
		if rec := w.MustRecord(driver.SessionKey(s.ID())); len(rec.Requests) > 0 {
			t.Errorf("requests stay in the record: %+v", rec.Requests)
		}

		// The lock of a dead session can be released.
		a.Partition()
		testutil.Want(t, admin.ReleaseDead(t.Context(), b.Client, "other", "it is dead"), nil)
		if st, err := b.Status(t.Context(), "other"); err != nil || st.Held || st.State != tenure.StateReleased {
			t.Errorf("status %+v, %v", st, err)
		}
		_ = other.Release(t.Context())
	})
}

// Work that shows no progress within the client's time, or the session's own, loses its lock, and
// not its session.
func TestSessionStalledLock(t *testing.T) {
	for name, of := range map[string]struct{ client, session time.Duration }{"of the client": {lease, 0}, "of the session": {0, lease}} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a := w.Client("a", func(o *tenure.Options) { o.ProgressTimeout = of.client })
			b := w.Client("b")
			s := mustOpen(a, &tenure.SessionOptions{Timing: tenure.Timing{ProgressTimeout: of.session}})
			begun := time.Now()
			l := mustTake(a, s, "job")
			select {
			case <-l.Context().Done():
			case <-time.After(2 * lease):
			}
			if took := time.Since(begun); took != lease {
				t.Fatalf("stalled after %v", took)
			}
			testutil.Want(t, context.Cause(l.Context()), tenure.ErrStalled)
			testutil.Want(t, l.Check(), tenure.ErrStalled)
			mine := b.MustAcquire("job", nil)
			if took := time.Since(begun); took < 2*lease || took > 2*lease+2*refresh {
				t.Errorf("taken after %v", took)
			}
			if p, _ := mine.Previous(); p.End != tenure.EndStalled {
				t.Errorf("previous %+v", p)
			}
			testutil.Want(t, s.Check(), nil)
			testutil.Want(t, l.Release(t.Context()), tenure.ErrStalled)
			mustClose(a, s)
		})
	}
}

// A sweep clears the records of ended sessions, and none that is alive.
func TestSessionSweep(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		alive := mustOpen(b, nil)
		l := mustTake(b, alive, "job")

		// A client that closes a session deletes its record by itself, if it lives long
		// enough.
		mine := mustOpen(b, nil)
		mustClose(b, mine)
		gone := func(s *tenure.Session) bool {
			_, err := w.Records().Get(t.Context(), driver.SessionKey(s.ID()), driver.Strong)
			return errors.Is(err, driver.ErrNotFound)
		}
		if gone(mine) {
			t.Error("a session is deleted at once")
		}
		time.Sleep(5 * lease)
		if !gone(mine) {
			t.Error("a closed session is not deleted")
		}

		dead := mustOpen(a, nil)
		lost := mustTake(a, dead, "lost")
		a.Partition()
		c := w.Client("c")
		swept, err := admin.Sweep(t.Context(), c.Client)
		if swept != 1 || err != nil || !gone(dead) {
			t.Errorf("swept %d, %v", swept, err)
		}
		if err := l.Check(); err != nil || alive.Check() != nil {
			t.Errorf("what is alive: %v", err)
		}
		if next := c.MustAcquire("lost", nil); next.Token() != 2 {
			t.Errorf("token %d", next.Token())
		}
		_ = lost.Release(t.Context())
		mustClose(b, alive, l)
	})
}

// Very many requests for locks of one session do not keep its heartbeat out of the
// record.
func TestSessionUnderManyRequests(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	synctest.Test(t, func(t *testing.T) {
		const requesters, each = 20, 3
		w := newWorld(t)
		slow := faultstore.Rule{Decide: func(faultstore.Call) faultstore.Fault {
			return faultstore.Slow(rand.N(40*time.Millisecond), rand.N(40*time.Millisecond))
		}}
		short := func(o *tenure.Options) { o.LeaseDuration = 2 * time.Second }
		a := w.Client("a", short)
		s := mustOpen(a, nil)
		for i := range requesters * each {
			l := mustTake(a, s, fmt.Sprintf("lock-%d", i))
			context.AfterFunc(l.Context(), func() { _ = l.Release(context.WithoutCancel(t.Context())) })
		}
		a.Faults().Inject(slow)
		var all sync.WaitGroup
		for i := range requesters {
			b := w.Client(fmt.Sprintf("b%d", i), short)
			b.Faults().Inject(slow)
			b.BoundReads(12 + 2*each) // for each lock, its requester and its observer read the session
			for j := range each {
				all.Go(func() {
					ctx, stop := context.WithTimeout(t.Context(), time.Minute)
					defer stop()
					testutil.Want(t, b.StepDown(ctx, fmt.Sprintf("lock-%d", i*each+j), because("all of them at once")), nil)
				})
			}
		}
		all.Wait()
		testutil.Want(t, s.Check(), nil)
		mustClose(a, s)
	})
}

// An acquire that waits for its turn behind another part of the program fails at once when its
// session ends, without a call of the store.
func TestWaiterBehindAnotherLearnsOfTheEndOfItsSession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Client("b").MustAcquire("x", nil)
		a := w.Client("a")
		ctx, stop := context.WithCancel(t.Context())
		first := testutil.Go(func() error { _, err := a.Acquire(ctx, "x", nil); return err })
		synctest.Wait()
		s := mustOpen(a, nil)
		second := testutil.Go(func() error { _, err := s.Acquire(t.Context(), "x", nil); return err })
		time.Sleep(lease / 3)
		testutil.Pending(t, "the second", second)
		testutil.Want(t, s.Close(t.Context()), nil)
		select {
		case err := <-second:
			testutil.Want(t, err, tenure.ErrSessionClosed)
		case <-time.After(time.Millisecond):
			t.Error("the second still waits")
		}
		testutil.Pending(t, "the first", first)
		stop()
		testutil.Want(t, <-first, context.Canceled)
	})
}
