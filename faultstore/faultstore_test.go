// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package faultstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
)

func held(key, version string) driver.Record {
	return driver.Record{
		Key: key, Version: version, Beat: version, Owner: "a", Lease: time.Second, State: driver.Held,
	}
}

func heartbeat(r driver.Record, version string) driver.Record {
	r.Version, r.Beat = version, version
	return r
}

func release(r driver.Record, version string) driver.Record {
	r.Version, r.State, r.End = version, driver.Released, driver.EndReleased
	return r
}

// fixture is a store with faults in which "k" is held with version v1.
type fixture struct {
	*faultstore.Store
	inner *memstore.Store
	rec   driver.Record
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{inner: memstore.New()}
	f.Store = faultstore.New(f.inner.Open(), nil)
	rec, _, err := f.inner.Claim(t.Context(), held("k", "v1"))
	if err != nil {
		t.Fatal(err)
	}
	f.rec = rec
	return f
}

func (f *fixture) version(t *testing.T) string {
	t.Helper()
	rec, err := f.inner.Get(t.Context(), "k", driver.Strong)
	if err != nil {
		t.Fatal(err)
	}
	return rec.Version
}

// TestEffects makes one heartbeat with each fault, under a context that ends
// after ten seconds.
func TestEffects(t *testing.T) {
	const s = time.Second
	own := errors.New("connection reset")
	for _, tc := range []struct {
		name    string
		fault   faultstore.Fault
		err     error
		refused bool
		takes   time.Duration
		applied bool          // when the call returns
		at      time.Duration // when a late write arrives, 0 for none
	}{
		{name: "none", applied: true},
		{name: "lose reply", fault: faultstore.LoseReply(), err: faultstore.ErrInjected, applied: true},
		{name: "lose reply, own error", fault: faultstore.Fault{Effect: faultstore.ReplyLost, Err: own}, err: own, applied: true},
		{name: "lose reply and hang", fault: faultstore.LoseReplyHang(), err: context.DeadlineExceeded, takes: 10 * s, applied: true},
		{name: "lose request", fault: faultstore.LoseRequest(), err: faultstore.ErrInjected},
		{name: "refuse", fault: faultstore.Refuse(), err: faultstore.ErrInjected, refused: true},
		{name: "refuse, own error", fault: faultstore.Fault{Effect: faultstore.Refused, Err: own}, err: own, refused: true},
		{name: "black hole", fault: faultstore.BlackHole(), err: context.DeadlineExceeded, takes: 10 * s},
		{name: "slow", fault: faultstore.Slow(s, 2*s), takes: 3 * s, applied: true},
		{name: "too slow before", fault: faultstore.Slow(20*s, 0), err: context.DeadlineExceeded, takes: 10 * s},
		{name: "too slow after", fault: faultstore.Slow(0, 20*s), err: context.DeadlineExceeded, takes: 10 * s, applied: true},
		{name: "late in time", fault: faultstore.Late(5 * s), takes: 5 * s, applied: true},
		{name: "late", fault: faultstore.Late(25 * s), err: context.DeadlineExceeded, takes: 10 * s, at: 25 * s},
		{name: "late after error", fault: faultstore.LateAfterError(7 * s), err: faultstore.ErrInjected, at: 7 * s},
		{name: "deaf", fault: faultstore.Fault{Effect: faultstore.RequestLost, Hang: true, Deaf: 30 * s}, err: context.DeadlineExceeded, takes: 30 * s},
		{name: "deaf and slow", fault: faultstore.Fault{Before: 15 * s, Deaf: 30 * s}, takes: 15 * s, applied: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				defer f.Close()
				f.Inject(faultstore.Rule{Fault: tc.fault})
				ctx, cancel := context.WithTimeout(t.Context(), 10*s)
				defer cancel()
				begin := time.Now()
				_, err := f.Swap(ctx, f.rec, heartbeat(f.rec, "v2"))
				if !errors.Is(err, tc.err) {
					t.Errorf("error %v, want %v", err, tc.err)
				}
				if got := errors.Is(err, driver.ErrNotApplied); got != tc.refused {
					t.Errorf("%v matches ErrNotApplied: %t, want %t", err, got, tc.refused)
				}
				if took := time.Since(begin); took != tc.takes {
					t.Errorf("took %v, want %v", took, tc.takes)
				}
				if got := f.version(t) == "v2"; got != tc.applied {
					t.Errorf("applied on return: %t, want %t", got, tc.applied)
				}
				f.Wait()
				if tc.at > 0 {
					if took := time.Since(begin); took != tc.at || f.version(t) != "v2" {
						t.Errorf("after %v version %q, want v2 after %v", took, f.version(t), tc.at)
					}
				}
			})
		})
	}
}

// The duplicate of a claim arrives after its term has ended, and opens another.
func TestDuplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.Close()
		ctx := t.Context()
		f.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpClaim}, Fault: faultstore.Duplicate(time.Minute)})
		now, _, err := f.Claim(ctx, held("other", "c1"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Swap(ctx, now, release(now, "r1")); err != nil {
			t.Fatal(err)
		}
		f.Wait()
		rec, err := f.Get(ctx, "other", driver.Strong)
		if err != nil || rec.State != driver.Held || rec.Token != 2 || rec.Version != "c1" {
			t.Errorf("after the duplicate: %+v, %v", rec, err)
		}
	})
}

func TestReplay(t *testing.T) {
	f := newFixture(t)
	defer f.Close()
	ctx := t.Context()
	f.Inject(faultstore.Rule{Fault: faultstore.LoseRequest(), Count: 1})
	if _, err := f.Swap(ctx, f.rec, heartbeat(f.rec, "v2")); err == nil {
		t.Fatal("no error of a lost request")
	}
	call := f.Log()[0].Call
	if rec, err := f.Replay(ctx, call); err != nil || rec.Version != "v2" {
		t.Errorf("first replay: %+v, %v", rec, err)
	}
	var conflict *driver.ConflictError
	if _, err := f.Replay(ctx, call); !errors.As(err, &conflict) || conflict.Current.Version != "v2" {
		t.Errorf("second replay: %v, want a conflict with v2", err)
	}
	if n := f.Count(); n != 1 {
		t.Errorf("%d calls counted, want 1", n)
	}
}

func TestBlackHoleSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.Close()
		f.SetBlackHole(true)
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := f.Get(ctx, "k", driver.Strong); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("in the black hole: %v", err)
			}
			cancel()
		}
		f.SetBlackHole(false)
		if _, err := f.Get(t.Context(), "k", driver.Strong); err != nil {
			t.Error(err)
		}
	})
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.Inject(
			faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Fault: faultstore.BlackHole()},
			faultstore.Rule{Fault: faultstore.LateAfterError(time.Hour)},
		)
		if _, err := f.Swap(t.Context(), f.rec, heartbeat(f.rec, "v2")); err == nil {
			t.Fatal("no error")
		}
		got := make(chan error)
		go func() {
			_, err := f.Get(t.Context(), "k", driver.Strong)
			got <- err
		}()
		synctest.Wait()
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if err := <-got; !errors.Is(err, driver.ErrClosed) {
			t.Errorf("hanging Get = %v, want ErrClosed", err)
		}
		if v := f.version(t); v != "v1" {
			t.Errorf("version %q after Close: the late write was not dropped", v)
		}
		if _, _, err := f.Claim(t.Context(), held("k", "v3")); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("Claim after Close = %v", err)
		}
	})
}

// In a pause nothing passes: new calls, replies and hints wait for its end.
func TestSetPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := memstore.New()
		s := faultstore.New(records.Open(), nil)
		defer s.Close()
		s.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Fault: faultstore.Slow(0, time.Second)})
		hints := 0
		stop, err := s.Driver().(driver.Watcher).Watch(t.Context(), "k", func() { hints++ })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		done := make(chan string, 2)
		go func() { _, _ = s.Get(t.Context(), "k", driver.Strong); done <- "read" }()
		synctest.Wait()
		s.SetPaused(true)
		go func() { _, _, _ = s.Claim(t.Context(), held("k", "v1")); done <- "claim" }()
		rec, _, err := records.Claim(t.Context(), held("k", "v0"))
		if err = errors.Join(err, records.Delete(t.Context(), rec)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if len(done) > 0 || s.Count(faultstore.OpClaim) > 0 || hints > 0 {
			t.Errorf("in the pause %d calls have returned, %d claims have begun, %d hints came",
				len(done), s.Count(faultstore.OpClaim), hints)
		}
		s.SetPaused(false)
		synctest.Wait()
		if len(done) != 2 || hints == 0 {
			t.Errorf("after the pause %d calls have returned, %d hints came", len(done), hints)
		}
	})
}
