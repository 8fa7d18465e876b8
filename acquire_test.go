// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/memstore"
)

func TestFreeLockCostsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		for token := range uint64(3) { // new, then released
			m.Faults().ResetLog()
			l := m.MustAcquire("x", nil)
			if n := m.Faults().Count(); n != 1 {
				t.Errorf("%d requests to acquire, want 1", n)
			}
			if l.Token() != token+1 || l.Name() != "x" || l.Owner() != "a" {
				t.Errorf("token %d, name %q, owner %q", l.Token(), l.Name(), l.Owner())
			}
			if left := l.Remaining(); left != usable {
				t.Errorf("%v remain, want %v", left, usable)
			}
			mustRelease(m, l)
			testutil.Want(t, l.Check(), tenure.ErrReleased)
			testutil.Want(t, l.Release(t.Context()), nil) // again
			if n, left := m.Faults().Count(), l.Remaining(); n != 2 || left != 0 {
				t.Errorf("%d requests to acquire and release, want 2; %v remain", n, left)
			}
		}
		for range 2 { // a history costs a second one
			m.Faults().ResetLog()
			l := m.MustAcquire("x", recorded)
			if n := m.Faults().Count(); n != 2 {
				t.Errorf("%d requests to acquire with a history, want 2", n)
			}
			mustRelease(m, l)
		}
	})
}

// The lease counts from before the request was sent, not from the reply.
func TestLeaseCountsFromBeforeTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		m.Inject(faultstore.OpClaim, 0, 1, faultstore.Slow(300*time.Millisecond, 400*time.Millisecond))
		if l, want := m.MustAcquire("x", nil), usable-700*time.Millisecond; l.Remaining() != want {
			t.Errorf("%v remain, want %v", l.Remaining(), want)
		}
	})
}

// A waiter takes the lock of a crashed holder when it has observed no sign of life for
// a lease, not before, and at most a refresh period and three calls later.
func TestCrashedHolderIsReplacedAfterALease(t *testing.T) {
	for i := range 10 {
		inWorldRun(t, fmt.Sprint(i), func(t *testing.T, w *world) {
			a, b := w.Client("a"), w.Client("b")
			la := a.MustAcquire("x", nil)
			acquired := testutil.Go(func() error { b.MustAcquire("x", nil); return nil })
			time.Sleep(time.Duration(i)*777*time.Millisecond + 2*lease)
			a.Partition()
			var last time.Time
			for _, c := range a.Faults().Log() {
				if c.Done && c.Err == nil {
					last = c.Begin
				}
			}
			testutil.Want(t, <-acquired, nil)
			testutil.Want(t, la.Check(), tenure.ErrExpired)
			if took := time.Since(last); took < lease || took > lease+refresh*9/8+200*time.Millisecond {
				t.Errorf("taken over %v after the last heartbeat, want %v and a little", took, lease)
			}
		})
	}
}

// A waiter finds a release at once if the store has a watch, and after a refresh period
// otherwise.
func TestReleaseWakesTheWaiter(t *testing.T) {
	for name, test := range map[string]struct {
		driver func(*machine) driver.Store
		most   time.Duration
	}{
		"watch":    {func(m *machine) driver.Store { return m.Faults().Driver() }, 0},
		"no watch": {func(m *machine) driver.Store { return m.Faults() }, byLooks},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a := w.Client("a")
			c := testutil.Must(tenure.New(test.driver(w.Client("unused")), &tenure.Options{Clock: tenure.MonotonicClock()}))(t)
			defer c.Close(t.Context())
			la := a.MustAcquire("x", nil)
			acquired := testutil.Go(func() error {
				l, err := c.Acquire(t.Context(), "x", nil)
				if err == nil {
					err = l.Release(t.Context())
				}
				return err
			})
			time.Sleep(2 * lease)
			mustRelease(a, la)
			testutil.Want(t, testutil.Within(t, 0, test.most, func() error { return <-acquired }), nil)
		})
	}
}

func TestStoreTimeoutBoundsTheSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		m.Partition()
		acquire := func(o *tenure.AcquireOptions) func() error {
			return func() error { _, err := m.Acquire(t.Context(), "x", o); return err }
		}
		// By default the lease duration.
		testutil.Want(t, testutil.Within(t, lease, lease+2*requestTimeout, acquire(nil)), context.DeadlineExceeded)
		o := &tenure.AcquireOptions{StoreTimeout: time.Minute}
		testutil.Want(t, testutil.Within(t, time.Minute, time.Minute+2*requestTimeout, acquire(o)), context.DeadlineExceeded)
		// Negative: for ever.
		forever := testutil.Go(acquire(&tenure.AcquireOptions{StoreTimeout: -1}))
		time.Sleep(time.Hour)
		testutil.Pending(t, "acquire", forever)
		m.Faults().SetBlackHole(false)
		testutil.Want(t, <-forever, nil)
	})
}

// Only consecutive silence counts, not the sum.
func TestAnswersNowAndThenAreEnough(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Client("a").MustAcquire("x", nil)
		b := w.Client("b")
		b.Faults().Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return c.N%5 != 0 },
			Fault: faultstore.BlackHole(),
		})
		ctx, stop := context.WithTimeout(t.Context(), 20*lease)
		defer stop()
		_, err := b.Acquire(ctx, "x", nil)
		testutil.Want(t, err, ctx.Err())
	})
}

// An unreadable record is never taken, however long it stands.
func TestUnreadableRecordIsNeverTaken(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.Client("a")
		plant := func(name string, edit func(*driver.Record)) {
			rec := driver.Record{Key: name, Version: "v", Owner: "stranger", Token: 7, Lease: lease, State: driver.Held}
			now, _, err := w.Records().Claim(t.Context(), rec)
			if err != nil {
				t.Fatal(err)
			}
			next := now
			next.Version = "w"
			if edit(&next); next.Lease <= 0 {
				return
			}
			if _, err := w.Records().Swap(t.Context(), now, next); err != nil {
				t.Fatal(err)
			}
		}
		plant("state", func(r *driver.Record) { r.State = "paused" })
		for range 3 {
			_, err := m.Acquire(t.Context(), "state", nil)
			testutil.Want(t, err, tenure.ErrUnreadable)
			if got := err.Error(); got != `acquire "state": record unreadable: lease 15s, state "paused", written by "stranger"` {
				t.Errorf("error %q", got)
			}
			_, err = m.TryAcquire(t.Context(), "state", nil)
			testutil.Want(t, err, tenure.ErrUnreadable)
			_, err = m.Status(t.Context(), "state")
			testutil.Want(t, err, tenure.ErrUnreadable)
			_, err = m.Election("state", nil).Leader(t.Context())
			testutil.Want(t, err, tenure.ErrUnreadable)
			for s, err := range m.Locks(t.Context(), &tenure.ListOptions{Prefix: "state"}) {
				testutil.Want(t, err, tenure.ErrUnreadable)
				if s.Name != "state" {
					t.Errorf("listed %+v", s)
				}
			}
			time.Sleep(10 * lease)
		}
		if rec := w.MustRecord("state"); rec.Owner != "stranger" {
			t.Errorf("record %+v", rec)
		}
		// And a store that says so itself.
		f := faultstore.Refuse()
		f.Err = driver.ErrUnreadable
		m.Faults().Inject(faultstore.Rule{Key: "lease", Fault: f})
		_, err := m.Acquire(t.Context(), "lease", nil)
		testutil.Want(t, err, tenure.ErrUnreadable)
	})
}

// A foreign client's record has no beat: its version serves, and the wait is
// longer, because its holder keeps no margin for drift.
func TestForeignRecordIsTakenAfterALongerWait(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.Client("a")
		_, _, err := w.Records().Claim(t.Context(), driver.Record{
			Key: "x", Version: "v", Owner: "stranger", Lease: 10 * time.Second, State: driver.Held,
		})
		testutil.Want(t, err, nil)
		drift := 0.09
		wait := time.Duration(10e9 * (1 + drift) / (1 - drift))
		testutil.Want(t, testutil.Within(t, wait, wait+100*time.Millisecond, func() error {
			_, err := m.Acquire(t.Context(), "x", nil)
			return err
		}), nil)
	})
}

func TestDataIsKeptOrReplaced(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		previous := func(l *tenure.Lease) string {
			p, _ := l.Previous()
			return p.Owner + " " + p.End + " " + string(p.Data)
		}

		data := []byte("one")
		l := a.MustAcquire("x", &tenure.AcquireOptions{Data: data})
		copy(data, "xxx") // it was copied
		if _, ok := l.Previous(); ok {
			t.Error("a new lock has a previous term")
		}
		mustRelease(a, l)
		l = b.MustAcquire("x", nil)
		if got, data := previous(l), string(w.MustRecord("x").Data); got != "a released one" || data != "one" {
			t.Errorf("previous %q, data %q", got, data)
		}
		b.Partition()
		l = a.MustAcquire("x", &tenure.AcquireOptions{Data: []byte("two")})
		if got, data := previous(l), string(w.MustRecord("x").Data); got != "b expired one" || data != "two" {
			t.Errorf("previous %q, data %q", got, data)
		}
		mustRelease(a, l)
		l = a.MustAcquire("x", &tenure.AcquireOptions{Data: []byte{}})
		if got, data := previous(l), w.MustRecord("x").Data; got != "a released two" || len(data) != 0 {
			t.Errorf("previous %q, data %q", got, data)
		}
	})
}

// A process that reads once cannot tell a dead holder from a living one. With
// UnlessAlive it watches until it can.
func TestUnlessAlive(t *testing.T) {
	unless := &tenure.AcquireOptions{UnlessAlive: true}
	inWorldRun(t, "free", func(t *testing.T, w *world) {
		b := w.Client("b")
		l, err := b.Acquire(t.Context(), "x", unless)
		testutil.Want(t, err, nil)
		testutil.Want(t, l.Check(), nil)
		if n := b.Faults().Count(); n != 1 {
			t.Errorf("%d requests, want 1", n)
		}
	})
	inWorldRun(t, "held", func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		a.MustAcquire("x", nil)
		for range 5 {
			testutil.Want(t, testutil.Within(t, 0, heartbeat+2*refresh, func() error {
				_, err := b.Acquire(t.Context(), "x", unless)
				return err
			}), tenure.ErrHeld)
		}
	})
	inWorldRun(t, "released meanwhile", func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		l := a.MustAcquire("x", nil)
		asked := testutil.Go(func() error {
			_, err := b.Acquire(t.Context(), "x", unless)
			return err
		})
		time.Sleep(time.Millisecond)
		mustRelease(a, l) // it was at work: that is a sign of life
		testutil.Want(t, <-asked, tenure.ErrHeld)
	})
	inWorldRun(t, "dead", func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		a.MustAcquire("x", nil)
		a.Partition()
		var l *tenure.Lease
		testutil.Want(t, testutil.Within(t, lease, lease+refresh, func() (err error) {
			l, err = b.Acquire(t.Context(), "x", unless)
			return err
		}), nil)
		if l.Token() != 2 {
			t.Errorf("token %d, want 2", l.Token())
		}
	})
}

// Data that another holder writes while a claim is under way stay.
func TestClaimKeepsDataWrittenMeanwhile(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		mustRelease(a, a.MustAcquire("x", &tenure.AcquireOptions{Data: []byte("old")}))
		_, err := b.Status(t.Context(), "x")
		testutil.Want(t, err, nil)
		b.Inject(faultstore.OpClaim, 0, 1, faultstore.Slow(time.Second, 0))
		acquired := testutil.Go(func() error { b.MustAcquire("x", nil); return nil })
		time.Sleep(time.Second / 2)
		l := a.MustAcquire("x", nil)
		testutil.Want(t, l.SetData(t.Context(), []byte("new")), nil)
		mustRelease(a, l)
		testutil.Want(t, <-acquired, nil)
		if got := string(w.MustRecord("x").Data); got != "new" {
			t.Errorf("data %q", got)
		}
	})
}

func TestTryAcquireDoesNotWait(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		a.MustAcquire("x", nil)
		time.Sleep(time.Second)
		err := testutil.Within(t, 0, 0, func() error { _, err := b.TryAcquire(t.Context(), "x", nil); return err })
		testutil.Want(t, err, tenure.ErrHeld)
		held, ok := errors.AsType[*tenure.HeldError](err)
		if !ok || held.Owner != "a" || held.Token != 1 || held.FreeIn != lease {
			t.Errorf("%+v", held)
		}
		if got := err.Error(); got != `try acquire "x": held by "a" under token 1; free in 15s at the latest if it is dead` {
			t.Errorf("error %q", got)
		}
		if n := b.Faults().Count(); n != 1 {
			t.Errorf("%d requests, want 1", n)
		}
		// Its own client's lock is held as well.
		_, err = a.TryAcquire(t.Context(), "x", nil)
		testutil.Want(t, err, tenure.ErrHeld)
	})
}

// The client remembers what TryAcquire has read: repeated after the lease of a dead
// holder, it takes the lock. It never takes a living holder's lock.
func TestTryAcquireRepeatedTakesADeadHoldersLock(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		a.MustAcquire("x", nil)
		for range 40 {
			_, err := b.TryAcquire(t.Context(), "x", nil)
			testutil.Want(t, err, tenure.ErrHeld)
			time.Sleep(lease / 4)
		}
		a.Partition()
		start := time.Now()
		for {
			l, err := b.TryAcquire(t.Context(), "x", nil)
			if err == nil {
				if l.Token() != 2 {
					t.Errorf("token %d", l.Token())
				}
				break
			}
			testutil.Want(t, err, tenure.ErrHeld)
			held, _ := errors.AsType[*tenure.HeldError](err)
			if time.Sleep(lease / 4); time.Since(start) > 2*lease {
				t.Fatalf("still held: %+v", held)
			}
		}
	})
}

// tried counts the calls of a try.
func tried(m *machine, name string) (l *tenure.Lease, claims, looks, strong int, err error) {
	m.Faults().ResetLog()
	l, err = m.TryAcquire(m.World().T().Context(), name, nil)
	for _, c := range m.Faults().Log() {
		switch {
		case c.Op == faultstore.OpGet && c.Consistency == driver.Strong:
			strong++
			looks++
		case c.Op == faultstore.OpGet:
			looks++
		case c.Op == faultstore.OpWatch, c.Op == faultstore.OpHint: // asks for nothing, and may be the holder's
		default:
			claims++
		}
	}
	return l, claims, looks, strong, err
}

// TestTryLooksWhereItHasSeenAHolder: a try of a lock that this client has read as held
// costs a read, and a claim only if the read shows it free, or its holder is dead.
func TestTryLooksWhereItHasSeenAHolder(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		expect := func(what string, refused error, claims, looks int) *tenure.Lease {
			t.Helper()
			l, c, n, strong, err := tried(b, "x")
			testutil.Want(t, err, refused)
			if c != claims || n != looks || strong != looks {
				t.Errorf("%s: %d claims and %d looks, %d of them strong; want %d and %d, all strong", what, c, n, strong, claims, looks)
			}
			return l
		}
		mustRelease(b, expect("never seen, free", nil, 1, 0))
		la := a.MustAcquire("x", nil)
		expect("seen free, held", tenure.ErrHeld, 1, 0)
		for range 3 {
			time.Sleep(time.Second)
			expect("seen held", tenure.ErrHeld, 0, 1)
		}
		mustRelease(a, la)
		mustRelease(b, expect("seen held, free", nil, 1, 1)) // at once: an old read would say that it is held
		a.MustAcquire("x", nil)
		expect("seen free, held again", tenure.ErrHeld, 1, 0)
		time.Sleep(lease + time.Second)
		expect("not seen for its lease, alive", tenure.ErrHeld, 1, 0)
		a.Partition()
		time.Sleep(lease / 2)
		expect("seen held, dead for less", tenure.ErrHeld, 0, 1)
		time.Sleep(lease)
		if l := expect("dead", nil, 2, 0); l == nil || l.Token() != 5 {
			t.Errorf("lease %v", l)
		}
	})
}

// TestTryBehindASession: the lock of a closed session is free, however recently the
// session was read as alive.
func TestTryBehindASession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		for range 3 {
			s := mustOpen(a, nil)
			for _, name := range []string{"x", "y", "z"} {
				l := mustTake(a, s, name)
				go func() { <-l.Context().Done(); _ = l.Release(t.Context()) }()
			}
			for _, name := range []string{"x", "y"} {
				_, _, _, _, err := tried(b, name)
				testutil.Want(t, err, tenure.ErrHeld)
			}
			if _, claims, looks, strong, err := tried(b, "x"); !errors.Is(err, tenure.ErrHeld) || claims != 0 || looks != 2 || strong != 2 {
				t.Errorf("%v; %d claims, %d looks, %d of them strong", err, claims, looks, strong)
			}
			testutil.Want(t, s.Close(t.Context()), nil)
			for _, name := range []string{"x", "y", "z"} {
				l, _, _, _, err := tried(b, name)
				testutil.Want(t, err, nil)
				if l != nil {
					mustRelease(b, l)
				}
			}
		}
	})
}

// TestTryAfterAStaleLook: cheap reads of others in the process are no reason to refuse.
func TestTryAfterAStaleLook(t *testing.T) {
	notOnEngines(t, noStaleReads)
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		la := a.MustAcquire("x", nil)
		go observes(b, t.Context(), "x")
		time.Sleep(time.Second / 4)
		b.Faults().Inject(faultstore.Rule{Match: func(c faultstore.Call) bool { return c.Consistency == driver.Eventual }, Fault: faultstore.Stale(1)})
		mustRelease(a, la)
		l, err := b.TryAcquire(t.Context(), "x", nil)
		testutil.Want(t, err, nil)
		if l != nil {
			mustRelease(b, l)
		}
	})
}

// TestTryWithoutAnAnswer: a failed read does not show who has the lock. The try repeats
// it as long as its patience lasts, and ends with the store's error.
func TestTryWithoutAnAnswer(t *testing.T) {
	for name, f := range map[string]faultstore.Fault{"refused": faultstore.Refuse(), "hangs": faultstore.BlackHole()} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			w.Client("a").MustAcquire("x", nil)
			b := w.Client("b")
			_, err := b.TryAcquire(t.Context(), "x", nil)
			testutil.Want(t, err, tenure.ErrHeld)
			remove := b.Faults().Inject(faultstore.Rule{Fault: f})
			err = testutil.Within(t, 3*requestTimeout, 5*requestTimeout, func() error {
				_, err := b.TryAcquire(t.Context(), "x", nil)
				return err
			})
			if err == nil || errors.Is(err, tenure.ErrHeld) {
				t.Errorf("says %v of a store that says nothing", err)
			}
			remove()
			b.Inject(faultstore.OpGet, 0, 2, f)
			_, err = b.TryAcquire(t.Context(), "x", nil)
			testutil.Want(t, err, tenure.ErrHeld)
		})
	}
}

// TestHeldByThisClientItself: a client that waits for itself learns so.
func TestHeldByThisClientItself(t *testing.T) {
	eachTaker(t, func(t *testing.T, w *world, a *machine, l *tenure.Lease) {
		check := func(m *machine, own bool) {
			t.Helper()
			_, err := m.TryAcquire(t.Context(), "x", nil)
			var held *tenure.HeldError
			if !errors.As(err, &held) || held.Own != own || strings.Contains(err.Error(), "held by this client itself") != own {
				t.Errorf("%v", err)
			}
		}
		check(a, true)
		check(w.Client("another", ownedBy("a")), false) // another process of that name
		waits := testutil.Go(func() error {
			_, err := a.Acquire(t.Context(), "x", &tenure.AcquireOptions{AdditionalWait: time.Second})
			return err
		})
		var held *tenure.HeldError
		if err := <-waits; !errors.As(err, &held) || !held.Own {
			t.Errorf("acquire: %v", err)
		}
		if e := a.Events(tenure.EventWaiting); len(e) != 1 || !e[0].Own {
			t.Errorf("events %+v", e)
		}
		testutil.Want(t, l.Release(t.Context()), nil)
		w.Client("c").MustAcquire("x", nil)
		check(a, false)
	})
}

// TestTextOfATimeout: a longer lease helps with a slow store, not with an unreachable one; a
// cause that the driver knows precedes both.
func TestTextOfATimeout(t *testing.T) {
	for name, tt := range map[string]struct {
		answers time.Duration // before the silence
		silence time.Duration // before the call
		says    string        // by the driver
		want    string
	}{
		"never heard of":  {want: ", nor to any earlier call: check that the store runs and that this machine can reach it"},
		"slow":            {answers: 1, want: "; if the store is that slow, use a longer lease"},
		"away":            {answers: 1, silence: time.Minute, want: ", nor to any call for 1m0s: check that the store runs and that this machine can reach it"},
		"the driver says": {says: "certificate has expired", want: ": certificate has expired"},
		"it says no more": {answers: 1, says: "etcd: context deadline exceeded", want: "; if the store is that slow, use a longer lease"},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			m := w.Client("a")
			store := &sayingStore{Store: m.Faults().Driver()}
			c := testutil.Must(tenure.New(store, &tenure.Options{LeaseDuration: 3 * time.Second, Owner: "b"}))(t)
			if tt.answers > 0 {
				_, err := c.Status(t.Context(), "x")
				testutil.Want(t, err, nil)
			}
			time.Sleep(tt.silence)
			m.Partition()
			store.says = tt.says
			text := "no answer within 300ms (RequestTimeout)" + tt.want
			_, err := c.Status(t.Context(), "x")
			if testutil.Want(t, err, context.DeadlineExceeded); !strings.HasSuffix(err.Error(), ": "+text) {
				t.Errorf("status: %v, want %s", err, text)
			}
			testutil.Want(t, c.Close(t.Context()), nil)
		})
	}
}

// sayingStore is a store whose reads fail with a text of their own at a timeout.
type sayingStore struct {
	driver.Store
	says string
}

func (s *sayingStore) Get(ctx context.Context, key string, how driver.Consistency) (driver.Record, error) {
	rec, err := s.Store.Get(ctx, key, how)
	if s.says != "" && ctx.Err() != nil {
		err = &saysError{s.says, ctx.Err()}
	}
	return rec, err
}

type saysError struct {
	text string
	err  error
}

func (e *saysError) Error() string { return e.text }
func (e *saysError) Unwrap() error { return e.err }

// A late write of an acquire that another part of the process reads first is no other
// holder's.
func TestOwnLateWriteIsNoOtherHolder(t *testing.T) {
	for name, try := range map[string]bool{"try": true, "unless alive": false} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a, b := w.Client("a"), w.Client("b")
			b.BoundReads(0)
			op := faultstore.OpClaim
			if try {
				mustRelease(b, b.MustAcquire("x", nil))
			} else {
				op = faultstore.OpTakeover
				a.MustAcquire("x", nil)
				a.Partition()
			}
			b.Inject(op, 0, 5, faultstore.LoseRequest())
			b.Inject(op, 0, 1, faultstore.LateAfterError(20*time.Millisecond))
			var looks sync.WaitGroup
			defer looks.Wait()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			looks.Go(func() {
				for ctx.Err() == nil {
					_, _ = b.Status(ctx, "x")
					time.Sleep(5 * time.Millisecond)
				}
			})
			var err error
			if try {
				_, err = b.TryAcquire(t.Context(), "x", nil)
			} else {
				_, err = b.Acquire(t.Context(), "x", &tenure.AcquireOptions{UnlessAlive: true})
			}
			testutil.Want(t, err, nil)
		})
	}
}

// charging is a store that charges for a claim that it refuses, and counts the calls.
type charging struct {
	driver.Store
	charges       bool
	claims, reads int
}

func (s *charging) ChargesRefusals() bool { return s.charges }

func (s *charging) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	s.claims++
	return s.Store.Claim(ctx, next)
}

func (s *charging) Get(ctx context.Context, key string, how driver.Consistency) (driver.Record, error) {
	s.reads++
	return s.Store.Get(ctx, key, how)
}

// TestTryLooksFirstWhereRefusalsAreCharged: a client that has never read a held lock reads it,
// and does not claim it. A waiter claims at once, and so does every try on other stores.
func TestTryLooksFirstWhereRefusalsAreCharged(t *testing.T) {
	work := func(context.Context, *tenure.Lease) error { return nil }
	for name, c := range map[string]struct {
		try           func(ctx context.Context, c *tenure.Client) error
		claims, reads int // where refusals are charged
	}{
		"TryAcquire": {func(ctx context.Context, c *tenure.Client) error { _, err := c.TryAcquire(ctx, "x", nil); return err }, 0, 1},
		"TryRun":     {func(ctx context.Context, c *tenure.Client) error { return c.TryRun(ctx, "x", nil, work) }, 0, 1},
		"Remote": {func(ctx context.Context, c *tenure.Client) error {
			_, err := c.Engine().RemoteAcquire(ctx, protocol.Want{Key: "x", Owner: "elsewhere", Try: true, Patience: lease}, false, nil)
			return err
		}, 0, 1},
		"Acquire": {func(ctx context.Context, c *tenure.Client) error {
			_, err := c.Acquire(ctx, "x", &tenure.AcquireOptions{Wait: time.Millisecond})
			return err
		}, 1, 0},
	} {
		for _, charges := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				records := memstore.New()
				holder, err := tenure.New(records.Open(), nil)
				testutil.Want(t, err, nil)
				defer holder.Close(t.Context())
				_, err = holder.Acquire(t.Context(), "x", nil)
				testutil.Want(t, err, nil)
				store := &charging{Store: records.Open(), charges: charges}
				client, err := tenure.New(store, nil)
				testutil.Want(t, err, nil)
				defer client.Close(t.Context())
				testutil.Want(t, c.try(t.Context(), client), tenure.ErrHeld)
				claims, reads := 1, 0
				if charges {
					claims, reads = c.claims, c.reads
				}
				if store.claims != claims || store.reads != reads {
					t.Errorf("%s, charged %t: %d claims and %d reads, want %d and %d", name, charges, store.claims, store.reads, claims, reads)
				}
			})
		}
	}
}

// manyDead is more locks, and more sessions, than a client keeps views of.
const manyDead = 10_100

// writeDead writes the record of a lock, or of a session, whose holder is dead.
func writeDead(w *world, rec driver.Record) {
	w.T().Helper()
	rec.Version = rand.Text() + "-" + rand.Text()
	rec.Beat, rec.Token = rec.Version, 1
	rec.Owner, rec.Lease, rec.Heartbeat, rec.Since = "dead", cmp.Or(rec.Lease, lease), heartbeat, time.Now()
	if _, _, err := w.Records().Claim(w.T().Context(), rec); err != nil {
		w.T().Fatal(err)
	}
}

// The number of remembered locks without a waiter is bounded: a lock beyond it only
// costs another lease of waiting.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	enginetest.MakeVerify(t)
	notOnEngines(t, tooManyCalls)
	for _, of := range []struct{ lease, later time.Duration }{
		{lease, time.Second},
		{time.Hour, 30 * time.Minute}, // long after what the client's own lease would have kept
	} {
		if testing.Short() && of.lease > lease {
			continue
		}
		inWorldRun(t, of.lease.String(), func(t *testing.T, w *world) { rememberedIsBounded(t, w, of.lease, of.later) })
	}
}

func rememberedIsBounded(t *testing.T, w *world, lease, later time.Duration) {
	const whole, marked, tooMany = 1000, 50_000, 700
	locks := names(whole + marked + tooMany)
	for _, name := range locks {
		writeDead(w, driver.Record{Key: name, State: driver.Held, Lease: lease})
	}
	b := w.Client("b")
	counted := func() (n int) {
		for _, name := range locks {
			s, err := b.Status(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if s.Unchanged > 0 {
				n++
			}
		}
		return n
	}
	counted()
	time.Sleep(later)
	if n := counted(); n < whole+marked-1 || n > whole+marked+1 {
		t.Errorf("of %d locks it was known since when they had not changed, want %d", n, whole+marked)
	}
}

// tries has b try all locks in turn, and returns how many it took. It releases those.
func tries(t *testing.T, b *machine, locks []string) (taken int) {
	t.Helper()
	for _, name := range locks {
		l, err := b.TryAcquire(t.Context(), name, nil)
		switch {
		case err == nil:
			taken++
			mustRelease(b, l)
		case !errors.Is(err, tenure.ErrHeld):
			t.Fatal(err)
		}
	}
	return taken
}

// A client that tries more dead holders' locks in turn than it remembers takes each of
// them.
func TestTryAcquireManyDeadLocks(t *testing.T) {
	enginetest.MakeVerify(t)
	notOnEngines(t, tooManyCalls)
	for name, session := range map[string]bool{"their own leases": false, "a session each": true} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			locks := names(manyDead)
			for _, name := range locks {
				rec := driver.Record{Key: name, State: driver.Held}
				if session {
					rec.Session = rand.Text()
					writeDead(w, driver.Record{Key: driver.SessionKey(rec.Session), State: driver.Alive})
				}
				writeDead(w, rec)
			}
			b := w.Client("b")
			if n := tries(t, b, locks); n > 0 {
				t.Fatalf("took %d locks of holders that may live", n)
			}
			time.Sleep(lease - time.Second)
			if n := tries(t, b, locks); n > 0 {
				t.Fatalf("took %d locks of holders that may live, when it has tried twice", n)
			}
			// One holder is not dead after all.
			sign := locks[7]
			if session {
				sign = driver.SessionKey(w.MustRecord(sign).Session)
			}
			rec := w.MustRecord(sign)
			next := rec
			next.Version = rec.Version + "-2"
			next.Beat = next.Version
			if _, err := w.Records().Swap(t.Context(), rec, next); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			if n := tries(t, b, locks); n != manyDead-1 {
				t.Errorf("took %d of %d, in the first round after a lease", n, manyDead-1)
			}
			if owner := w.MustRecord(locks[7]).Owner; owner != "dead" {
				t.Errorf("%s has taken the lock of a living holder", owner)
			}
			time.Sleep(lease + time.Second)
			if n := tries(t, b, locks); n != manyDead {
				t.Errorf("took %d of %d in the end", n, manyDead)
			}
		})
	}
}

// A sign of life counts from after the reply that first showed it, by whatever call.
func TestStatusCountsFromTheReply(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		a.MustAcquire("x", nil)
		a.Partition()
		b.Inject(faultstore.OpGet, 0, 1, faultstore.Slow(0, time.Second))
		_, err := b.Status(t.Context(), "x")
		testutil.Want(t, err, nil)
		time.Sleep(lease - time.Millisecond)
		_, err = b.TryAcquire(t.Context(), "x", nil)
		testutil.Want(t, err, tenure.ErrHeld)
		time.Sleep(2 * time.Millisecond)
		_, err = b.TryAcquire(t.Context(), "x", nil)
		testutil.Want(t, err, nil)
	})
}
