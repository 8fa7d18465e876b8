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
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/memstore"
)

// namesOf returns the names of the locks of a set.
func namesOf(t *tenure.LeaseSet) (names []string) {
	for _, l := range t.Leases() {
		names = append(names, l.Name())
	}
	return names
}

// Several locks are held at once, under one session, in the order of their names, and cost
// one write each to take and to release.
func TestAcquireAll(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a")
		s := mustOpen(a, nil)
		set, err := s.AcquireAll(t.Context(), []string{"y", "x", "z"}, &tenure.AcquireOptions{Data: []byte("d")})
		testutil.Want(t, err, nil)
		if got := namesOf(set); !slices.Equal(got, []string{"x", "y", "z"}) {
			t.Errorf("holds %q", got)
		}
		testutil.Want(t, set.Check(), nil)
		if set.Session() != s || set.Lease("y").Name() != "y" || set.Lease("w") != nil || s.Leases() != 3 {
			t.Errorf("the set is not that of its session: %v", set.Leases())
		}
		if left := set.Remaining(); left <= 0 || left > s.Remaining() {
			t.Errorf("remaining %v, of the session %v", left, s.Remaining())
		}
		for _, name := range []string{"x", "y", "z"} {
			if rec := w.MustRecord(name); rec.Session != s.ID() || string(rec.Data) != "d" {
				t.Errorf("%s is under session %q with data %q", name, rec.Session, rec.Data)
			}
		}
		time.Sleep(3 * lease)
		testutil.Want(t, set.Check(), nil)
		testutil.Want(t, set.Release(t.Context()), nil)
		testutil.Want(t, set.Release(t.Context()), nil)
		testutil.Want(t, set.Check(), tenure.ErrReleased)
		testutil.Want(t, context.Cause(set.Context()), tenure.ErrReleased)
		w.Client("b").MustAcquire("x", nil)
		testutil.Want(t, s.Close(t.Context()), nil)
	})
}

// Invalid names are refused before anything is done.
func TestAcquireAllOfNoSet(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := mustOpen(w.Client("a"), nil)
		for _, tt := range []struct {
			names []string
			text  string
		}{
			{nil, "no lock name given"},
			{[]string{"x", "y", "x"}, `"x" is given twice`},
			{[]string{"x", ""}, "lock name is empty"},
			{[]string{"x", "tenure/y"}, "begins with"},
		} {
			_, err := s.AcquireAll(t.Context(), tt.names, nil)
			if testutil.Want(t, err, tenure.ErrInvalid); !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%q: %v", tt.names, err)
			}
			_, err = s.TryAcquireAll(t.Context(), tt.names, nil)
			testutil.Want(t, err, tenure.ErrInvalid)
			testutil.Want(t, s.RunAll(t.Context(), tt.names, nil, nil), tenure.ErrInvalid)
		}
		_, err := s.AcquireAll(t.Context(), []string{"x"}, &tenure.AcquireOptions{Timing: tenure.Timing{LeaseDuration: time.Minute}})
		testutil.Want(t, err, tenure.ErrInvalid)
		if err := s.RunAll(t.Context(), []string{"x"}, nil, nil); err == nil || !strings.Contains(err.Error(), "the work is nil") {
			t.Errorf("without work: %v", err)
		}
		if s.Leases() != 0 {
			t.Errorf("%d leases", s.Leases())
		}
	})
}

// A caller that cannot take all of the locks takes none of them.
func TestAllOrNone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c := w.Client("a"), w.Client("b"), w.Client("c")
		y := a.MustAcquire("y", nil)
		s := mustOpen(b, nil)
		none := func(err, is error) {
			t.Helper()
			testutil.Want(t, err, is)
			if err != nil && !strings.Contains(err.Error(), `"y"`) {
				t.Errorf("the error does not name the lock: %v", err)
			}
			time.Sleep(time.Second)
			mustRelease(c, testutil.Must(c.TryAcquire(t.Context(), "x", nil))(t)) // it is free, and nobody else has come by
			if s.Leases() != 0 {
				t.Errorf("%d leases are left", s.Leases())
			}
		}
		_, err := s.TryAcquireAll(t.Context(), []string{"z", "y", "x"}, nil)
		none(err, tenure.ErrHeld)
		if held := new(tenure.HeldError); !errors.As(err, &held) || held.Owner != "a" {
			t.Errorf("held by somebody else: %v", err)
		}
		_, err = s.AcquireAll(t.Context(), []string{"z", "y", "x"}, &tenure.AcquireOptions{AdditionalWait: time.Second})
		none(err, tenure.ErrHeld)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begun := time.Now()
		_, err = s.AcquireAll(ctx, []string{"z", "y", "x"}, nil)
		if late := time.Since(begun) - 5*time.Second; late > time.Millisecond {
			t.Errorf("it returns %v after its context has ended", late)
		}
		none(err, context.DeadlineExceeded)
		if _, err := w.Records().Get(t.Context(), "z", driver.Strong); !errors.Is(err, driver.ErrNotFound) {
			t.Errorf("z was taken before y: %v", err)
		}

		got := testutil.Go(func() error { _, err := s.AcquireAll(t.Context(), []string{"z", "y", "x"}, nil); return err })
		time.Sleep(lease)
		mustRelease(a, y)
		testutil.Want(t, <-got, nil)
		if s.Leases() != 3 {
			t.Errorf("%d leases", s.Leases())
		}
	})
}

// Processes that name the locks in different orders do not deadlock.
func TestAcquireAllInAnyOrder(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	inWorld(t, func(t *testing.T, w *world) {
		names := []string{"x", "y", "z"}
		var inside, most, runs int
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 6 {
			m := w.Client(fmt.Sprint(i))
			all.Go(func() {
				s := mustOpen(m, nil)
				mine := append(slices.Clone(names[i%3:]), names[:i%3]...)
				if i >= 3 {
					slices.Reverse(mine)
				}
				for range 10 {
					testutil.Want(t, s.RunAll(t.Context(), mine, nil, func(ctx context.Context, set *tenure.LeaseSet) error {
						mu.Lock()
						inside++
						runs++
						most = max(most, inside)
						mu.Unlock()
						time.Sleep(500 * time.Millisecond)
						mu.Lock()
						inside--
						mu.Unlock()
						return errors.Join(set.Check(), ctx.Err())
					}), nil)
				}
			})
		}
		all.Wait()
		if most != 1 || runs != 60 {
			t.Errorf("%d ran, %d at once", runs, most)
		}
	})
}

// A holder that is asked to step down from one lock while it waits for another gives all
// back, and begins again.
func TestAskedWhileItWaits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c := w.Client("a"), w.Client("b"), w.Client("c")
		z := a.MustAcquire("z", nil)
		s := mustOpen(b, nil)
		var set *tenure.LeaseSet
		got := testutil.Go(func() (err error) {
			set, err = s.AcquireAll(t.Context(), []string{"x", "y", "z"}, nil)
			return err
		})
		time.Sleep(heartbeat)
		first := w.MustRecord("y").Token
		testutil.Want(t, c.StepDown(t.Context(), "x", &tenure.StepDownOptions{To: "c", Reason: "it is wanted"}), nil)
		x := c.MustAcquire("x", nil)
		y, err := c.Acquire(t.Context(), "y", &tenure.AcquireOptions{Wait: lease})
		if err != nil {
			t.Fatalf("y is kept while it waits for x, which another one has now: %v", err)
		}
		time.Sleep(lease)
		mustRelease(c, y)
		mustRelease(a, z)
		time.Sleep(lease)
		select {
		case err := <-got:
			t.Fatalf("it has all without x: %v", err)
		default:
		}
		mustRelease(c, x)
		testutil.Want(t, <-got, nil)
		testutil.Want(t, set.Check(), nil)
		if set.Lease("y").Token() <= first {
			t.Errorf("y is held since before it was given back")
		}
	})
}

// A lock that ends after the last one was taken, and before the work begins, is noticed too.
func TestAskedBeforeTheWorkBegins(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, gone := w.Client("a"), w.Client("b"), w.Client("gone")
		gone.MustAcquire("y", nil)
		gone.Partition()
		s := mustOpen(a, nil)
		// The history of y is written when y is taken, for a second.
		a.Faults().Inject(faultstore.Rule{
			Ops:   []faultstore.Op{faultstore.OpClaim},
			Match: func(c faultstore.Call) bool { return strings.HasPrefix(c.Key, "tenure/history/") },
			Fault: faultstore.Slow(time.Second, 0),
		})
		var set *tenure.LeaseSet
		got := testutil.Go(func() (err error) {
			set, err = s.AcquireAll(t.Context(), []string{"x", "y"}, &tenure.AcquireOptions{History: true})
			return err
		})
		for w.MustRecord("y").Owner != "a" {
			time.Sleep(100 * time.Millisecond)
		}
		first := w.MustRecord("x").Token
		asked := testutil.Go(func() error { return b.StepDown(t.Context(), "x", because("a test")) })
		time.Sleep(10 * time.Millisecond)
		testutil.Want(t, s.Renew(t.Context()), nil) // it finds the request
		testutil.Pending(t, "it", got)
		testutil.Want(t, <-got, nil)
		testutil.Want(t, <-asked, nil)
		testutil.Want(t, set.Context().Err(), nil)
		testutil.Want(t, set.Check(), nil)
		if set.Lease("x").Token() == first {
			t.Error("x is that of before the request")
		}
	})
}

// Two processes that name the locks in opposite orders, whose claims come late and whose
// releases are never answered, have all of them in the end. Each is asked for its first lock
// while it waits for the last one: it does not wait for the first again while another
// release is under way.
func TestGiveBackEndsBeforeALesserLockIsAwaited(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		names := []string{"x", "y", "z"}
		c := w.Client("c")
		z := c.MustAcquire("z", nil)
		var all sync.WaitGroup
		for i := range 2 {
			m := w.Client(fmt.Sprint(i))
			s := mustOpen(m, nil)
			late := faultstore.Late(2 * requestTimeout)
			m.Faults().Inject(
				faultstore.Rule{Match: func(call faultstore.Call) bool {
					at := slices.Index(names, call.Key)
					if n := s.Leases(); call.Op == faultstore.OpClaim && at >= 0 && n != at {
						t.Errorf("%d claims %s when %d locks are not given back", i, call.Key, n)
					}
					return false
				}},
				faultstore.Rule{Ops: []faultstore.Op{faultstore.OpRelease}, Fault: faultstore.LoseReplyHang()},
				faultstore.Rule{Ops: []faultstore.Op{faultstore.OpClaim}, Fault: late},
			)
			mine := slices.Clone(names)
			if i > 0 {
				slices.Reverse(mine)
			}
			all.Go(func() {
				ctx, stop := context.WithTimeout(t.Context(), 20*lease)
				defer stop()
				err := s.RunAll(ctx, mine, nil, func(_ context.Context, set *tenure.LeaseSet) error { return set.Check() })
				testutil.Want(t, err, nil)
			})
		}
		holds := func() bool {
			rec, err := w.Records().Get(t.Context(), "y", driver.Strong)
			return err == nil && rec.State == driver.Held
		}
		for range 2 { // the process that has x and y, and waits for z
			for !holds() {
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(heartbeat)
			testutil.Want(t, c.StepDown(t.Context(), "x", because("a test")), nil)
			for holds() {
				time.Sleep(100 * time.Millisecond)
			}
		}
		time.Sleep(lease)
		mustRelease(c, z)
		all.Wait()
	})
}

// The context of the work under a set ends when one of its locks ends, and all locks
// are released when the work has returned.
func TestOneOfASetEnds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		s := mustOpen(a, nil)
		begun := make(chan *tenure.LeaseSet)
		var told error
		ran := testutil.Go(func() error {
			return s.RunAll(t.Context(), []string{"x", "y"}, nil, func(ctx context.Context, set *tenure.LeaseSet) error {
				begun <- set
				select {
				case <-ctx.Done():
				case <-time.After(lease):
					t.Error("the work goes on")
				}
				told = context.Cause(ctx)
				time.Sleep(time.Second)
				return errors.Join(set.Check(), ctx.Err()) // it may act until it has returned
			})
		})
		set := <-begun
		testutil.Want(t, b.StepDown(t.Context(), "y", because("a test")), nil)
		err := <-ran
		testutil.Want(t, err, tenure.ErrSteppedDown)
		testutil.Want(t, err, context.Canceled)
		testutil.Want(t, told, tenure.ErrSteppedDown)
		if !strings.Contains(fmt.Sprint(told), `"y"`) {
			t.Errorf("the cause does not name the lock: %v", told)
		}
		testutil.Want(t, context.Cause(set.Context()), tenure.ErrSteppedDown)
		for _, name := range []string{"x", "y"} {
			mustRelease(b, b.MustAcquire(name, nil))
		}

		// Lost, not by a request.
		ran = testutil.Go(func() error {
			return s.RunAll(t.Context(), []string{"x", "y"}, nil, func(ctx context.Context, set *tenure.LeaseSet) error {
				begun <- set
				<-ctx.Done()
				return set.Check()
			})
		})
		set = <-begun
		a.Partition()
		err = <-ran
		testutil.Want(t, err, tenure.ErrLost)
		testutil.Want(t, set.Check(), tenure.ErrLost)
		testutil.Want(t, context.Cause(set.Context()), tenure.ErrLost)
		if set.Remaining() != 0 {
			t.Errorf("%v is left", set.Remaining())
		}
	})
}

// The error of RunAll for work that fails, panics, or is cancelled.
func TestRunAllTellsTheEnd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		s := mustOpen(a, nil)
		names := []string{"x", "y"}
		failed := errors.New("no disk")
		work := func(context.Context, *tenure.LeaseSet) error { return failed }
		testutil.Want(t, s.RunAll(t.Context(), names, nil, work), failed)
		for _, name := range names {
			if end := w.MustRecord(name).End; end != driver.EndFailed {
				t.Errorf("%s has ended as %s", name, end)
			}
		}
		func() {
			defer func() {
				if recover() != "oh" {
					t.Error("the panic does not go on")
				}
			}()
			_ = s.RunAll(t.Context(), names, nil, func(context.Context, *tenure.LeaseSet) error { panic("oh") })
		}()
		ctx, cancel := context.WithCancel(t.Context())
		err := s.RunAll(ctx, names, nil, func(ctx context.Context, set *tenure.LeaseSet) error {
			cancel()
			<-ctx.Done()
			return errors.Join(set.Check(), ctx.Err())
		})
		testutil.Want(t, err, context.Canceled)
		for _, name := range names {
			mustRelease(b, b.MustAcquire(name, nil))
		}
		testutil.Want(t, s.Close(t.Context()), nil)
		_, err = s.AcquireAll(t.Context(), names, nil)
		testutil.Want(t, err, tenure.ErrSessionClosed)
	})
}

// A process has none of the locks, however many it had, when its session is over while it waits
// for one: it is cut off, or closes the session, which frees them at once.
func TestSessionEndsWhileItTakesASet(t *testing.T) {
	for name, cut := range map[string]bool{"cut off": true, "closed": false} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a, b, c := w.Client("a"), w.Client("b"), w.Client("c")
			z := a.MustAcquire("z", nil)
			s := mustOpen(b, nil)
			got := testutil.Go(func() error { _, err := s.AcquireAll(t.Context(), []string{"x", "y", "z"}, nil); return err })
			time.Sleep(heartbeat)
			take := c.TryAcquire
			if cut {
				b.Partition()
				time.Sleep(lease)
				take = c.Acquire
			} else {
				testutil.Want(t, s.Close(t.Context()), nil)
			}
			testutil.Want(t, <-got, tenure.ErrSessionClosed)
			if cut {
				testutil.Want(t, s.Check(), tenure.ErrLost)
			}
			for _, name := range []string{"x", "y"} {
				mustRelease(c, testutil.Must(take(t.Context(), name, nil))(t))
			}
			mustRelease(a, z)
		})
	}
}

// A set may be large. Its work ends with the session, once for all.
func TestLargeSet(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	inWorld(t, func(t *testing.T, w *world) {
		s := mustOpen(w.Client("a"), nil)
		names := make([]string, 1000)
		for i := range names {
			names[i] = fmt.Sprintf("part/%d", i)
		}
		set, err := s.TryAcquireAll(t.Context(), names, nil)
		testutil.Want(t, err, nil)
		if got := len(set.Leases()); got != len(names) || set.Lease(names[500]) == nil {
			t.Fatalf("%d leases", got)
		}
		closed := testutil.Go(func() error { return s.Close(t.Context()) })
		<-set.Context().Done()
		testutil.Want(t, context.Cause(set.Context()), tenure.ErrSessionClosed)
		testutil.Want(t, set.Release(t.Context()), nil)
		testutil.Want(t, <-closed, nil)
	})
}

// A caller that does not wait begins again, too, when it is asked to step down from one of
// the locks while it claims another. It does not take its own release for a holder.
func TestAskedWhileItTriesASet(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		s := mustOpen(a, nil)
		heal := a.Faults().Inject(faultstore.Rule{
			Ops: []faultstore.Op{faultstore.OpClaim}, Key: "y", Fault: faultstore.Fault{Effect: faultstore.RequestLost, Hang: true},
		})
		a.Inject(faultstore.OpRelease, 0, 1, faultstore.Fault{Before: time.Second})
		var set *tenure.LeaseSet
		got := testutil.Go(func() (err error) {
			set, err = s.TryAcquireAll(t.Context(), []string{"x", "y"}, nil)
			return err
		})
		time.Sleep(10 * time.Millisecond)
		first := w.MustRecord("x").Token
		asked := testutil.Go(func() error { return b.StepDown(t.Context(), "x", because("a test")) })
		time.Sleep(heartbeat)
		heal()
		testutil.Want(t, <-got, nil)
		testutil.Want(t, <-asked, nil)
		if set.Lease("x").Token() == first {
			t.Error("x is that of before the request")
		}
		testutil.Want(t, set.Check(), nil)
	})
}

// A claim that was given up, because another lock of the set had ended, may have been applied. It
// is released before the set begins again: a caller that does not wait does not take it for
// another holder, and a waiting caller does not keep the lock while it waits for a lesser one.
func TestClaimOfASetThatIsGivenUp(t *testing.T) {
	for name, try := range map[string]bool{"it waits": false, "it does not wait": true} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a, b := w.Client("a"), w.Client("b")
			s := mustOpen(a, nil)
			a.Faults().Inject(faultstore.Rule{
				Ops: []faultstore.Op{faultstore.OpClaim}, Key: "y", Count: 1, Fault: faultstore.LoseReplyHang(),
			}, faultstore.Rule{
				Ops: []faultstore.Op{faultstore.OpClaim}, Key: "x", Match: func(faultstore.Call) bool {
					if rec, err := w.Records().Get(t.Context(), "y", driver.Strong); err == nil && rec.State == driver.Held {
						t.Error("x is claimed again, and y is kept")
					}
					return false
				},
			})
			var set *tenure.LeaseSet
			got := testutil.Go(func() (err error) {
				all := s.AcquireAll
				if try {
					all = s.TryAcquireAll
				}
				set, err = all(t.Context(), []string{"x", "y"}, nil)
				return err
			})
			time.Sleep(10 * time.Millisecond)
			first := w.MustRecord("x").Token
			asked := testutil.Go(func() error { return b.StepDown(t.Context(), "x", because("a test")) })
			time.Sleep(10 * time.Millisecond)
			testutil.Want(t, s.Renew(t.Context()), nil) // it finds the request
			if err := <-got; err != nil {
				t.Fatal(err)
			}
			testutil.Want(t, <-asked, nil)
			testutil.Want(t, set.Check(), nil)
			if set.Lease("x").Token() == first {
				t.Error("x is that of before the request")
			}
		})
	}
}

// Work that goes on after its context has ended keeps its locks for the stop timeout, and
// no longer.
func TestRunAllThatDoesNotStop(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a", func(o *tenure.Options) { o.StopTimeout = 2 * time.Second }), w.Client("b")
		s := mustOpen(a, nil)
		ctx, cancel := context.WithCancel(t.Context())
		err := s.RunAll(ctx, []string{"x", "y"}, nil, func(_ context.Context, set *tenure.LeaseSet) error {
			cancel()
			time.Sleep(time.Second)
			testutil.Want(t, set.Check(), nil)
			time.Sleep(2 * lease)
			testutil.Want(t, set.Check(), tenure.ErrStopTimeout)
			mustRelease(b, b.MustAcquire("x", nil))
			return nil
		})
		testutil.Want(t, err, tenure.ErrStopTimeout)
	})
}

// leapingClock is a clock whose holder reading can leap, as after a pause that no timer
// has noticed.
type leapingClock struct {
	tenure.Clock
	leapt atomic.Int64
	asked atomic.Pointer[func()] // to be called when it is asked next
}

func (c *leapingClock) Holder() time.Duration {
	if f := c.asked.Swap(nil); f != nil {
		(*f)()
	}
	return c.Clock.Holder() + time.Duration(c.leapt.Load())
}

// hookedStore calls a function when a claim was applied, and before its reply.
type hookedStore struct {
	driver.Store
	claimed func(key string)
}

func (s *hookedStore) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	now, prev, err = s.Store.Claim(ctx, next)
	s.claimed(next.Key)
	return now, prev, err
}

// hooked returns a client on such a store, with such a clock.
func hooked(t *testing.T, claimed func(string)) (*tenure.Client, *leapingClock) {
	t.Helper()
	clock := &leapingClock{Clock: tenure.MonotonicClock()}
	c := testutil.Must(tenure.New(&hookedStore{memstore.New(), claimed}, &tenure.Options{Clock: clock}))(t)
	t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
	return c, clock
}

// Check of a lock under a session is exact where timers are late, and final.
func TestSessionCheckIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, clock := hooked(t, func(string) {})
		s, err := c.OpenSession(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		l, err := s.Acquire(t.Context(), "job", nil)
		if err != nil {
			t.Fatal(err)
		}
		clock.leapt.Store(int64(lease))
		if err := l.Check(); !errors.Is(err, tenure.ErrExpired) {
			t.Errorf("check after a pause of a lease: %v", err)
		}
		if l.Remaining() > 0 || s.Remaining() > 0 {
			t.Errorf("%v and %v remain", l.Remaining(), s.Remaining())
		}
		if err := s.Check(); !errors.Is(err, tenure.ErrExpired) {
			t.Errorf("check of the session: %v", err)
		}
		clock.leapt.Store(0)
		if err := l.Check(); !errors.Is(err, tenure.ErrExpired) {
			t.Errorf("what has expired is held again: %v", err)
		}
		_ = l.Release(t.Context())
	})
}

// A session that was over before its opening was answered is not handed out.
func TestSessionOpenedDuringAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leap := func() {}
		c, clock := hooked(t, func(string) { leap() })
		leap = func() { clock.leapt.Store(int64(lease)) }
		if s, err := c.OpenSession(t.Context(), nil); !errors.Is(err, tenure.ErrExpired) {
			t.Errorf("opened %v, %v", s, err)
		}
	})
}

// Nor is a lock that was granted when its session had ended, or was closing, whether
// the waiters under it have failed by then, or the reply comes before. Waiters do not
// fail while a reply is handled, so a close during that finds the acquire in the second
// state.
func TestSessionGrantComesTooLate(t *testing.T) {
	for name, duringReply := range map[string]bool{"told first": false, "answered first": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s *tenure.Session
				var clock *leapingClock
				var works *tenure.Lease
				closes := func() {
					go func() { _ = s.Close(context.WithoutCancel(t.Context())) }()
					<-works.Context().Done()
				}
				var c *tenure.Client
				c, clock = hooked(t, func(key string) {
					switch {
					case key != "job":
					case duringReply:
						synctest.Wait() // no timer is about to ask the clock in its place
						clock.asked.Store(&closes)
					default:
						closes()
						time.Sleep(time.Millisecond)
					}
				})
				var err error
				if s, err = c.OpenSession(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				// Work under it goes on, so that the session is closing for a while.
				if works, err = s.Acquire(t.Context(), "other", nil); err != nil {
					t.Fatal(err)
				}
				if l, err := s.Acquire(t.Context(), "job", nil); !errors.Is(err, tenure.ErrSessionClosed) {
					t.Errorf("got error %v", err)
					if l != nil {
						t.Errorf("acquired under a session that is closing: its check says %v", l.Check())
						_ = l.Release(t.Context())
					}
				}
				if clock.asked.Load() != nil {
					t.Error("the session was not closed")
				}
				testutil.Want(t, works.Check(), nil)
				testutil.Want(t, works.Release(t.Context()), nil)
				testutil.Want(t, s.Close(t.Context()), nil)
			})
		})
	}
}

// The session counts from before its opening was sent, not from the reply.
func TestSessionCountsFromBeforeTheRequest(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a")
		a.Inject(faultstore.OpClaim, 0, 1, faultstore.Fault{After: requestTimeout / 2})
		s := mustOpen(a, nil)
		if most := usable - requestTimeout/2; s.Remaining() > most {
			t.Errorf("%v remain, want %v at most", s.Remaining(), most)
		}
		seen := 0
		for st, err := range w.Client("b").Sessions(t.Context()) {
			if err != nil || st.ID != s.ID() || !st.Alive || st.State != tenure.StateAlive || st.Owner != "a" {
				t.Errorf("session %+v, %v", st, err)
			}
			seen++
		}
		if seen != 1 {
			t.Errorf("%d sessions are listed", seen)
		}
		mustClose(a, s)
		before := a.Faults().Count()
		if _, err := s.Acquire(t.Context(), "job", nil); !errors.Is(err, tenure.ErrSessionClosed) {
			t.Errorf("acquire under a closed session: %v", err)
		}
		if n := a.Faults().Count() - before; n > 0 {
			t.Errorf("%d requests under a closed session", n)
		}
	})
}

// A request for a lock under a session that is closing is found when it closes. The
// lock is reserved for the named owner, unless its holder has said that the owner is
// gone.
func TestAskedWhileTheSessionCloses(t *testing.T) {
	for name, comes := range map[string]bool{"somebody comes": true, "nobody comes": false} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a, b := w.Client("a"), w.Client("b")
			s := mustOpen(a, nil)
			l := mustTake(a, s, "x")
			time.Sleep(heartbeat / 6)
			closed := testutil.Go(func() error { return s.Close(t.Context()) })
			<-l.Context().Done()
			if !comes {
				testutil.Want(t, l.StepDown(because("nobody comes")), nil)
			}
			asked := testutil.Go(func() error {
				return b.StepDown(t.Context(), "x", &tenure.StepDownOptions{To: "gone", Reason: "maintenance"})
			})
			time.Sleep(heartbeat / 6) // it lies in the session's record, and a has not looked
			mustRelease(a, l)
			testutil.Want(t, <-closed, nil)
			testutil.Want(t, <-asked, nil)
			var free error
			if comes {
				free = tenure.ErrHeld
			}
			_, err := b.TryAcquire(t.Context(), "x", nil)
			testutil.Want(t, err, free)
		})
	}
}

// A request for a lock that is being acquired under the session stays until the acquire
// knows whether it has the lock. Meanwhile the session handles its requests once after
// each heartbeat.
func TestKeptRequestIsReadAfterHeartbeats(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		clock := &jumpyClock{Clock: tenure.MonotonicClock()}
		a := w.Client("a", func(o *tenure.Options) { o.Clock = clock })
		s := mustOpen(a, nil)
		a.Inject(faultstore.OpClaim, 0, 1, faultstore.LoseReplyHang())
		acquired := testutil.Go(func() error {
			_, err := s.Acquire(t.Context(), "x", nil)
			return err
		})
		b := w.Client("b")
		time.Sleep(requestTimeout / 4)
		ctx, stop := context.WithTimeout(t.Context(), lease)
		defer stop()
		asked := testutil.Go(func() error { return b.StepDown(ctx, "x", because("a test")) })
		time.Sleep(requestTimeout / 4)
		testutil.Want(t, s.Renew(t.Context()), nil) // it finds the request
		time.Sleep(requestTimeout / 4)
		testutil.Pending(t, "the acquire", acquired)
		if n := clock.n.Load(); n > 1000 {
			t.Fatalf("the clock was read %d times", n)
		}
		testutil.Want(t, <-acquired, nil)
		stop()
		testutil.Want(t, <-asked, tenure.ErrUnanswered) // its work takes no notice
		testutil.Want(t, s.Context().Err(), nil)
	})
}

// jumpyClock is a clock that jumps when it was read too often, so that a busy loop
// ends.
type jumpyClock struct {
	tenure.Clock
	n atomic.Int64
}

func (c *jumpyClock) Holder() time.Duration {
	if c.n.Add(1) > 20_000 {
		return c.Clock.Holder() + time.Hour
	}
	return c.Clock.Holder()
}

// A campaign under an expired session ends, and does not repeat for ever what fails at
// once.
func TestCampaignUnderAnExpiredSessionEnds(t *testing.T) {
	for name, begun := range map[string]bool{"begun before": true, "begun after": false} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			holder := w.Client("b").MustAcquire("x", nil)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			clock := &readings{Clock: tenure.MonotonicClock(), enough: stop}
			a := w.Client("a", func(o *tenure.Options) { o.Clock = clock })
			s, err := a.OpenSession(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			campaign := func() error {
				return s.Election("x", nil).Run(ctx, func(context.Context, *tenure.Lease) error { return nil })
			}
			var done <-chan error
			if begun {
				done = testutil.Go(campaign)
			}
			time.Sleep(time.Second)
			a.Partition()
			<-s.Context().Done()
			testutil.Want(t, s.Check(), tenure.ErrExpired)
			if !begun {
				done = testutil.Go(campaign)
			}
			testutil.Want(t, <-done, tenure.ErrSessionClosed)
			if ctx.Err() != nil {
				t.Error("it had to be stopped")
			}
			testutil.Want(t, holder.Check(), nil)
		})
	}
}
