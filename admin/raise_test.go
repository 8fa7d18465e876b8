// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package admin_test

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
	"github.com/tenurelock/tenure/memstore"
)

// mid is an instant during the wait at which no record is read.
const mid = lease/2 + lease/40

// contains fails the test unless the error says so.
func contains(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("got error %v, want %q in it", err, text)
	}
}

// mustRaise raises by 1000, and fails the test unless it takes from a lease to little
// more.
func mustRaise(m *machine, prefix string) admin.RaisedTokens {
	t := m.World().T()
	t.Helper()
	var n admin.RaisedTokens
	testutil.Want(t, testutil.Within(t, lease, lease+10*time.Second, func() (err error) {
		n, err = admin.RaiseTokens(t.Context(), m.Client, prefix, 1000, &admin.RaiseOptions{Reason: "restored"})
		return err
	}), nil)
	return n
}

// Every lock gets a higher token, whatever state it was in, and is free; its data stay,
// and its history goes on.
func TestRaiseTokens(t *testing.T) {
	inPages(t, 3, func(t *testing.T, w *world) {
		a := w.Client("a")
		data := &tenure.AcquireOptions{Data: []byte("checkpoint"), History: true}
		a.MustAcquire("held", data)
		for range 3 {
			mustRelease(a, a.MustAcquire("free", data))
		}
		s := mustOpen(a)
		testutil.Must(s.Acquire(t.Context(), "under", nil))(t)
		closed := mustOpen(a)
		testutil.Want(t, closed.Close(t.Context()), nil)
		next := w.Client("next")
		to := a.MustAcquire("kept", nil)
		testutil.Want(t, to.StepDown(&tenure.StepDownOptions{To: "next", Reason: "moves"}), nil)
		mustRelease(a, to)
		a.Partition()
		next.Partition()
		for i := range 40 { // more than are written at once
			name := fmt.Sprintf("many/%02d", i)
			rec := driver.Record{Key: name, Version: name, Beat: name, Owner: "a", Lease: lease, State: driver.Held}
			if _, _, err := w.Store().Claim(t.Context(), rec); err != nil {
				t.Fatal(err)
			}
		}
		if rec := w.MustRecord("kept"); rec.State != driver.Reserved {
			t.Fatalf("%q: the test has lost its point", rec.State)
		}
		before := map[string]driver.Record{}
		for _, name := range []string{"held", "free", "under", "kept", "many/07"} {
			before[name] = w.MustRecord(name)
		}
		history := len(keys(w))

		ops := w.Client("ops")
		var seen []admin.RaiseProgress
		var n admin.RaisedTokens
		testutil.Want(t, testutil.Within(t, lease, lease+5*time.Second, func() (err error) {
			n, err = admin.RaiseTokens(t.Context(), ops.Client, "", 1000, &admin.RaiseOptions{
				Reason: "restored", OnProgress: func(p admin.RaiseProgress) { seen = append(seen, p) },
			})

			return err
		}), nil)
		if want := (admin.RaisedTokens{Locks: 44, Sessions: 1}); n != want {
			t.Errorf("%+v, want %+v", n, want)
		}
		first, last := seen[0], seen[len(seen)-1]
		if first.Locks != 44 || first.Remaining != lease || last.Remaining != 0 || last.Done != n || len(seen) < 8 {
			t.Errorf("%d times progress, from %+v to %+v", len(seen), first, last)
		}
		if now := len(keys(w)); now != history {
			t.Errorf("%d records, and there were %d", now, history)
		}
		for name, was := range before {
			rec := w.MustRecord(name)
			if rec.State != driver.Released || rec.Token != was.Token+1000 || rec.Owner != "ops" || string(rec.Data) != string(was.Data) ||
				rec.Session != "" || rec.End != driver.EndRaised || rec.Version == was.Version || rec.Beat == was.Beat || rec.Until.IsZero() {
				t.Errorf("%q is %+v", name, rec)
			}
			prev := was.Term(driver.EndExpired)
			if rec.Prev == nil || rec.Prev.Token != was.Token || rec.Prev.Owner != prev.Owner || rec.Prev.End != prev.End || rec.Asked.Token != was.Token {
				t.Errorf("%q: the tenure before is %+v, want %+v", name, rec.Prev, prev)
			}
		}
		if rec := w.MustRecord(driver.SessionKey(s.ID())); rec.State != driver.Closed || rec.Token != 1 {
			t.Errorf("the session is %+v", rec)
		}
		b := w.Client("b")
		for name, was := range before {
			next := b.MustAcquire(name, &tenure.AcquireOptions{History: true})
			if next.Token() != was.Token+1001 {
				t.Errorf("%q: token %d, want %d", name, next.Token(), was.Token+1001)
			}
			if former, ok := next.Previous(); !ok || string(former.Data) != string(was.Data) || former.End != tenure.EndRaised {
				t.Errorf("%q: before it was %+v", name, former)
			}
			mustRelease(b, next)
		}
		expectHistory(b, "free", "1004 b released", "1003 ops raised (raise by ops: restored)",
			"3 a released", "2 a released", "1 a released")
		expectHistory(b, "held", "1002 b released", "1001 ops raised (raise by ops: restored)", "1 a expired")
		expectHistory(b, "under", "1002 b released", "1001 ops raised (raise by ops: restored)", "1 a expired")
	})
}

// A prefix bounds the locks that are watched and raised, and not the sessions.
func TestRaiseTokensBelowAPrefix(t *testing.T) {
	inPages(t, 3, func(t *testing.T, w *world) {
		a, alive := w.Client("a"), w.Client("alive")
		for _, name := range []string{"job/1", "job/2", "other"} {
			mustRelease(a, a.MustAcquire(name, nil))
		}
		mustOpen(a)
		a.Partition()
		held := alive.MustAcquire("living", nil)
		if n := mustRaise(w.Client("ops"), "job/"); n != (admin.RaisedTokens{Locks: 2, Sessions: 1}) {
			t.Errorf("%+v", n)
		}
		if one, other := w.MustRecord("job/1").Token, w.MustRecord("other").Token; one != 1001 || other != 1 {
			t.Errorf("tokens %d and %d", one, other)
		}
		testutil.Want(t, held.Check(), nil)
		mustRelease(alive, held)
	})
}

// RaiseTokens waits for the longest lease, also of a free lock: it may have been taken in
// the lost time. The rest of the wait has its test in internal/protocol.
func TestRaiseTokensWaitsForTheLongestLease(t *testing.T) {
	for _, rec := range []driver.Record{
		{Lease: time.Minute, State: driver.Released},
		{Key: driver.SessionKey("s"), Lease: time.Minute, State: driver.Alive},
	} {
		inPages(t, 3, func(t *testing.T, w *world) {
			plant(w, rec)
			ops := w.Client("ops")
			testutil.Want(t, testutil.Within(t, time.Minute, time.Minute+lease/2, func() error {
				_, err := admin.RaiseTokens(t.Context(), ops.Client, "", 1, nil)
				return err
			}), nil)
		})
	}
}

// expectHistory fails the test unless the terms of a lock, in a few words, are these.
func expectHistory(m *machine, name string, want ...string) {
	t := m.World().T()
	t.Helper()
	var got []string
	for _, h := range testutil.Must(m.History(t.Context(), name))(t) {
		words := fmt.Sprintf("%d %s %s", h.Token, h.Owner, h.End)
		if q := h.Request; q != nil {
			words += fmt.Sprintf(" (%s by %s: %s)", q.Kind, q.By, q.Reason)
		}
		got = append(got, words)
	}
	if !slices.Equal(got, want) {
		t.Errorf("history %q, want %q", got, want)
	}
}

// plant stores a record, whatever was there before, and fills in empty fields.
func plant(w *world, rec driver.Record) {
	w.T().Helper()
	if rec.State == "" {
		return
	}
	if rec.Key == "" {
		rec.Key = "x"
	}
	want, beat := rec, "planted"
	if rec.Beat == "none" {
		beat = ""
	}
	claim := driver.Record{Key: rec.Key, Version: "claimed", Beat: "b", Owner: "planted", Lease: lease, State: driver.Held}
	if rec.State.OfSession() {
		claim.State = driver.Alive
	}
	now, _, err := w.Store().Claim(w.T().Context(), claim)
	if err != nil {
		w.T().Fatal(err)
	}
	want.Version, want.Beat, want.Owner, want.Token = "planted", beat, "planted", max(rec.Token, 1)
	if want.Token > now.Token+1 {
		up := now
		up.Version, up.State, up.Token = "up", driver.Released, want.Token-1
		if now, err = w.Store().Raise(w.T().Context(), now, up); err != nil {
			w.T().Fatal(err)
		}
	}
	if _, err := w.Store().Swap(w.T().Context(), now, want); err != nil {
		w.T().Fatal(err)
	}
}

// Locks of another client are left alone if Tenure has never given a token for them, and
// no program of that client is in the way then.
func TestRaiseTokensOfAnotherClient(t *testing.T) {
	inPages(t, 3, func(t *testing.T, w *world) {
		plant(w, driver.Record{Key: "never", State: driver.Held, Lease: lease, Beat: "none", Token: 1})
		plant(w, driver.Record{Key: "once", State: driver.Held, Lease: lease, Beat: "none", Token: 4})
		go func() {
			time.Sleep(mid)
			rec := w.MustRecord("never")
			next := rec
			next.Version = "renewed"
			if _, err := w.Store().Swap(t.Context(), rec, next); err != nil {
				t.Error(err)
			}
		}()
		n, err := admin.RaiseTokens(t.Context(), w.Client("ops").Client, "", 1000, nil)
		if err != nil || n != (admin.RaisedTokens{Locks: 1, Foreign: 1}) {
			t.Errorf("%+v, %v", n, err)
		}
		if never, once := w.MustRecord("never"), w.MustRecord("once"); never.Token != 1 || never.State != driver.Held || once.Token != 1004 || once.State != driver.Released {
			t.Errorf("%+v, %+v", never, once)
		}
	})
}

// Records that cannot be decoded are left alone, the rest is done, and the error says so.
func TestRaiseTokensLeavesAloneWhatIsUnreadable(t *testing.T) {
	inPages(t, 3, func(t *testing.T, w *world) {
		plant(w, driver.Record{Key: "a", State: driver.Released, Lease: lease})
		plant(w, driver.Record{Key: "b", State: "hibernating", Lease: lease})
		plant(w, driver.Record{Key: "c", State: driver.Released, Lease: lease})
		plant(w, driver.Record{Key: "d", State: driver.Released, Lease: lease})
		was := w.MustRecord("b")
		ops := testutil.Must(tenure.New(&refusing{Store: w.Store(), key: "d"}, &tenure.Options{Clock: tenure.MonotonicClock()}))(t)
		defer ops.Close(t.Context())
		for round := range uint64(2) {
			n, err := admin.RaiseTokens(t.Context(), ops, "", 1000, nil)
			testutil.Want(t, err, tenure.ErrUnreadable)
			contains(t, err, `2 records cannot be read and were left`)
			contains(t, err, `"b": `)
			contains(t, err, `"d": `)
			if n != (admin.RaisedTokens{Locks: 2, Unreadable: 2}) {
				t.Errorf("%+v", n)
			}
			if a, b, c := w.MustRecord("a"), w.MustRecord("b"), w.MustRecord("c"); a.Token != 1001+round*1000 || b.Version != was.Version || c.Token != a.Token {
				t.Errorf("%+v, %+v, %+v", a, b, c)
			}
		}
	})
}

// refusing is a store that never writes over one of its records.
type refusing struct {
	*memstore.Store
	key string
}

func (r *refusing) Raise(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	if prev.Key == r.key {
		return driver.Record{}, driver.Unsupported(errors.New("written by another client"))
	}
	return r.Store.Raise(ctx, prev, next)
}

// Errors in the options are reported before anything is written.
func TestRaiseTokensRefuses(t *testing.T) {
	inPages(t, 3, func(t *testing.T, w *world) {
		plant(w, driver.Record{Key: "a", State: driver.Released, Lease: lease})
		plant(w, driver.Record{Key: "high", State: driver.Released, Lease: lease, Token: driver.MaxToken - 5})
		ops := w.Client("ops")
		for _, tc := range []struct {
			prefix, reason string
			by             uint64
			is             error
			says           string
		}{
			{"", "", 0, nil, "by 0 has no effect"},
			{"", "", driver.MaxToken + 1, tenure.ErrTokenLimit, "the highest token is"},
			{"tenure/", "", 1, nil, "names are for records of Tenure itself"},
			{"", "\x00", 1, nil, "reason"},
			{"", "", 6, tenure.ErrTokenLimit, `"high" has token`},
		} {
			n, err := admin.RaiseTokens(t.Context(), ops.Client, tc.prefix, tc.by, &admin.RaiseOptions{Reason: tc.reason})
			contains(t, err, tc.says)
			if n != (admin.RaisedTokens{}) || tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("%+v, %v", n, err)
			}
		}
		if ops.Faults().Count(faultstore.OpRaise, faultstore.OpClose) != 0 || w.MustRecord("a").Token != 1 {
			t.Error("something was written")
		}
		if n, err := admin.RaiseTokens(t.Context(), ops.Client, "", 5, nil); err != nil || n.Locks != 2 || w.MustRecord("high").Token != driver.MaxToken {
			t.Errorf("by as much as there is: %+v, %v", n, err)
		}
		// The highest token is the last: no process gets the lock any more, or a lower token.
		if _, err := ops.TryAcquire(t.Context(), "high", nil); err == nil {
			t.Error("a token beyond the highest was granted")
		}

		simple := testutil.Must(tenure.New(struct{ driver.Store }{memstore.New()}, &tenure.Options{Clock: tenure.MonotonicClock()}))(t)
		_, err := admin.RaiseTokens(t.Context(), simple, "", 1, nil)
		testutil.Want(t, err, errors.ErrUnsupported)
		simple.Close(t.Context())
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = admin.RaiseTokens(canceled, ops.Client, "", 1, nil)
		testutil.Want(t, err, context.Canceled)
		ops.Close(t.Context())
		_, err = admin.RaiseTokens(t.Context(), ops.Client, "", 1, nil)
		testutil.Want(t, err, tenure.ErrClosed)
	})
}

// A raise that was interrupted is repeated as a whole. It succeeds wherever that was, and
// a lock that was raised twice has a higher token, but the same history.
func TestRaiseTokensIsRepeated(t *testing.T) {
	for at := range 8 {
		inPages(t, 3, func(t *testing.T, w *world) {
			a := w.Client("a")
			s := mustOpen(a)
			testutil.Must(s.Acquire(t.Context(), "x/under", nil))(t)
			names := []string{"x/under"}
			for i := range 20 {
				name := fmt.Sprintf("x/%02d", i)
				names = append(names, name)
				mustRelease(a, a.MustAcquire(name, nil))
			}
			a.Partition()
			ops := w.Client("ops")
			// It ends in the middle of its writes: all that come later fail.
			ops.Faults().Inject(faultstore.Rule{
				Ops: []faultstore.Op{faultstore.OpClose, faultstore.OpRaise}, Skip: 3 * at, Fault: faultstore.LoseRequest(),
			})
			_, err := admin.RaiseTokens(t.Context(), ops.Client, "", 1000, nil)
			testutil.Want(t, err, faultstore.ErrInjected)
			raised := 0
			for _, name := range names {
				if w.MustRecord(name).Token > 1000 {
					raised++
				}
			}
			if want := max(0, 3*at-1); raised != min(want, len(names)) {
				t.Errorf("%d were raised before the end, want %d", raised, want)
			}
			again := w.Client("again")
			n := mustRaise(again, "")
			if n.Locks != len(names) {
				t.Errorf("%+v", n)
			}
			for _, name := range names {
				rec := w.MustRecord(name)
				if rec.State != driver.Released || rec.Token != 1001 && rec.Token != 2001 || rec.Asked.Token != 1 || rec.Prev == nil || rec.Prev.Token != 1 || rec.Prev.Owner != "a" {
					t.Errorf("%q is %+v, after %+v", name, rec, rec.Prev)
				}
			}
			if rec := w.MustRecord(driver.SessionKey(s.ID())); rec.State != driver.Closed {
				t.Errorf("the session is %q", rec.State)
			}
		})
	}
}

// Lost replies, refusals, and a store that is away for less than a lease only cost
// time: each token is raised once.
func TestRaiseTokensOverAStoreThatFails(t *testing.T) {
	for name, f := range map[string]faultstore.Fault{
		"lost replies": faultstore.LoseReply(), "lost replies that hang": faultstore.LoseReplyHang(), "lost requests": faultstore.LoseRequest(),
		"refusals": faultstore.Refuse(), "duplicates": faultstore.Duplicate(requestTimeout), "late": faultstore.LateAfterError(requestTimeout / 2),
	} {
		t.Run(name, func(t *testing.T) {
			inPages(t, 3, func(t *testing.T, w *world) {
				a := w.Client("a")
				s := mustOpen(a)
				testutil.Must(s.Acquire(t.Context(), "under", nil))(t)
				for i := range 5 {
					mustRelease(a, a.MustAcquire(fmt.Sprint("x", i), nil))
				}
				a.Partition()
				ops := w.Client("ops")
				reads := []faultstore.Op{faultstore.OpGet}
				if !f.Hang { // a list may take as long as it does
					reads = append(reads, faultstore.OpList)
				}
				ops.Faults().Inject(faultstore.Rule{Fault: f, Ops: reads, Count: 4})
				for _, key := range []string{"under", driver.SessionKey(s.ID()), "x0", "x1", "x2", "x3"} {
					ops.Faults().Inject(faultstore.Rule{Fault: f, Key: key, Match: func(c faultstore.Call) bool { return c.Op.IsWrite() }, Count: 2})
				}
				n, err := admin.RaiseTokens(t.Context(), ops.Client, "", 1000, nil)
				if err != nil || n != (admin.RaisedTokens{Locks: 6, Sessions: 1}) {
					t.Errorf("%+v, %v", n, err)
				}
				ops.Faults().Wait()
				for _, name := range []string{"under", "x0", "x1", "x2", "x3", "x4"} {
					if rec := w.MustRecord(name); rec.Token != 1001 || rec.State != driver.Released {
						t.Errorf("%q is %+v", name, rec)
					}
				}
			})
		})
	}
}

// A store that is away for longer ends it.
func TestRaiseTokensGivesUp(t *testing.T) {
	inPages(t, 3, func(t *testing.T, w *world) {
		plant(w, driver.Record{State: driver.Released, Lease: lease})
		ops := w.Client("ops")
		ops.Inject(faultstore.OpRaise, 0, 0, faultstore.LoseRequest())
		testutil.Want(t, testutil.Within(t, 2*lease, 2*lease+10*time.Second, func() error {
			_, err := admin.RaiseTokens(t.Context(), ops.Client, "", 1000, nil)
			return err
		}), faultstore.ErrInjected)
	})
}

// A list may be stale: listed records are read strongly.
func TestRaiseTokensOverStaleLists(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a")
		mustRelease(a, a.MustAcquire("x", nil))
		a.MustAcquire("y", nil)
		time.Sleep(2 * heartbeat)
		a.Partition()
		ops := w.Client("ops")
		ops.Inject(faultstore.OpList, 0, 0, faultstore.Stale(1))
		if n, err := admin.RaiseTokens(t.Context(), ops.Client, "", 1000, nil); err != nil || n.Locks != 2 {
			t.Errorf("%+v, %v", n, err)
		}
	})
}

// The history continues below a raised token, however often it was raised, and says
// that the lost terms are unknown.
func TestHistoryGoesOnBelowARaise(t *testing.T) {
	inPages(t, 3, func(t *testing.T, w *world) {
		a := w.Client("a")
		hold := func(n int) {
			for range n {
				held := a.MustAcquire("x", &tenure.AcquireOptions{History: true})
				time.Sleep(time.Minute)
				mustRelease(a, held)
			}
		}
		begun := time.Now()
		hold(3)
		lost := time.Now()
		time.Sleep(time.Hour)
		mustRaise(a, "")
		mustRaise(a, "") // repeated
		hold(2)
		time.Sleep(time.Hour)
		mustRaise(a, "")
		expectHistory(a, "x", "3005 a raised (raise by a: restored)", "2005 a released", "2004 a released",
			"2003 a raised (raise by a: restored)", "3 a released", "2 a released", "1 a released")
		hold(2)
		expectHistory(a, "x", "3007 a released", "3006 a released", "3005 a raised (raise by a: restored)", "2005 a released", "2004 a released",
			"2003 a raised (raise by a: restored)", "3 a released", "2 a released", "1 a released")
		short := w.Client("short", func(o *tenure.Options) { o.HistoryLimit = 5 })
		expectHistory(short, "x", "3007 a released", "3006 a released", "3005 a raised (raise by a: restored)", "2005 a released", "2004 a released")
		if _, ok, certain := tenure.HolderAt(testutil.Must(a.History(t.Context(), "x"))(t), lost.Add(time.Minute)); ok || certain {
			t.Errorf("it is said to be known who held the lock in the lost time: %v", certain)
		}
		if h, ok, _ := tenure.HolderAt(testutil.Must(a.History(t.Context(), "x"))(t), begun); !ok || h.Token != 1 {
			t.Errorf("at first %+v held it, %v", h, ok)
		}

		// A sweep takes all of it.
		time.Sleep(aged)
		if n, err := admin.SweepReleased(t.Context(), a.Client, "", restart); err != nil || n.Locks != 1 || len(keys(w)) != 0 {
			t.Errorf("swept %+v, %v; left %q", n, err, keys(w))
		}
		// So it does when the raise is the last that there was.
		hold(3)
		mustRaise(a, "")
		time.Sleep(aged)
		if n, err := admin.SweepReleased(t.Context(), a.Client, "", restart); err != nil || n.Locks != 1 || len(keys(w)) != 0 {
			t.Errorf("swept %+v, %v; left %q", n, err, keys(w))
		}
	})
}

// A restore also sets back the tokens that a store keeps of deleted locks: they are raised,
// too.
func TestRaiseTokensThatAreKept(t *testing.T) {
	inPages(t, 3, func(t *testing.T, w *world) {
		plant(w, driver.Record{Key: "there", State: driver.Released, Lease: lease})
		k := &keeping{Store: w.Store(), kept: map[string]uint64{"job/gone": 7, "job/high": driver.MaxToken - 1, "other": 3}}
		ops := testutil.Must(tenure.New(k, &tenure.Options{Owner: "ops", Clock: tenure.MonotonicClock()}))(t)
		defer ops.Close(t.Context())
		_, err := admin.RaiseTokens(t.Context(), ops, "job/", 1000, nil)
		testutil.Want(t, err, tenure.ErrTokenLimit)
		delete(k.kept, "job/high")
		n, err := admin.RaiseTokens(t.Context(), ops, "job/", 1000, nil)
		if rec := w.MustRecord("job/gone"); err != nil || n.Locks != 1 || rec.Token != 1007 || rec.State != driver.Released || rec.Prev != nil {
			t.Errorf("%+v, %v: %+v", n, err, rec)
		}
		if len(k.kept) != 1 || w.MustRecord("there").Token != 1 {
			t.Errorf("others were raised: %v", k.kept)
		}
		next, err := ops.Acquire(t.Context(), "job/gone", nil)
		if err != nil || next.Token() != 1008 {
			t.Errorf("%v, %v", next, err)
		}
		testutil.Want(t, next.Release(t.Context()), nil)
		// A lock that is taken meanwhile is a sign of life.
		go func() {
			time.Sleep(mid)
			k.keep("other", 0)
			plant(w, driver.Record{Key: "other", State: driver.Released, Lease: lease, Token: 4})
		}()
		_, err = admin.RaiseTokens(t.Context(), ops, "", 1000, nil)
		testutil.Want(t, err, tenure.ErrAlive)
		// So is a token that rises.
		k.keep("more", 5)
		go func() {
			time.Sleep(mid)
			k.keep("more", 6)
		}()
		n, err = admin.RaiseTokens(t.Context(), ops, "", 1000, nil)
		testutil.Want(t, err, tenure.ErrAlive)
		contains(t, err, `lock "more"`)
		if n != (admin.RaisedTokens{}) {
			t.Errorf("%+v was done", n)
		}
	})
}

// keeping is a store that keeps tokens of deleted locks.
type keeping struct {
	*memstore.Store
	mu   sync.Mutex
	kept map[string]uint64
}

// keep keeps a token of a lock, or with 0 none.
func (k *keeping) keep(key string, token uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept[key] = token; token == 0 {
		delete(k.kept, key)
	}
}

func (k *keeping) KeepsTokens() bool { return true }

func (k *keeping) ListTokens(_ context.Context, prefix, cursor string) (page driver.Page, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var keys []string
	for key := range k.kept {
		if strings.HasPrefix(key, prefix) && key > cursor {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	if len(keys) > 1 {
		keys, page.Cursor = keys[:1], keys[0]
	}
	for _, key := range keys {
		page.Records = append(page.Records, driver.Record{Key: key, Token: k.kept[key]})
	}
	return page, nil
}

func (k *keeping) Raise(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	if prev.Version != "" {
		return k.Store.Raise(ctx, prev, next)
	}
	k.mu.Lock()
	is := k.kept[prev.Key]
	k.mu.Unlock()
	if is != prev.Token {
		return driver.Record{}, &driver.ConflictError{Key: prev.Key, Absent: true}
	}
	k.keep(prev.Key, 0)
	claim := next
	claim.State = driver.Held
	now, _, err := k.Claim(ctx, claim)
	if err != nil {
		return now, err
	}
	next.Version += "-"
	_, err = k.Store.Raise(ctx, now, next)
	return next, err
}

// With any program alive nothing is raised.
func TestRaiseIsRefusedWhileAProgramLives(t *testing.T) {
	for name, tc := range map[string]struct {
		live func(t *testing.T, w *world, m *machine) // does something in the time of the wait
		in   string
	}{
		"a holder":                 {func(_ *testing.T, _ *world, m *machine) { m.MustAcquire("x", nil) }, `lock "x", of "alive"`},
		"a holder of another lock": {func(_ *testing.T, _ *world, m *machine) { m.MustAcquire("y", nil) }, `lock "y", of "alive"`},
		"a session without a lock": {func(_ *testing.T, _ *world, m *machine) { mustOpen(m) }, `, of "alive"`},
		"a process that comes": {func(_ *testing.T, _ *world, m *machine) {
			go func() {
				time.Sleep(mid)
				mustRelease(m, m.MustAcquire("free", nil))
			}()
		}, `lock "free", of "alive"`},
		"a process that makes a lock": {func(_ *testing.T, _ *world, m *machine) {
			go func() {
				time.Sleep(mid)
				mustRelease(m, m.MustAcquire("new", nil))
			}()
		}, `lock "new", of "alive"`},
		"an acquirer that takes over from the dead": {func(_ *testing.T, _ *world, m *machine) {
			go func() { m.MustAcquire("dead", nil) }()
			time.Sleep(mid) // it takes it before the end of the wait
		}, `lock "dead", of "`},
		"a process that asks the dead": {func(t *testing.T, _ *world, m *machine) {
			t.Helper()
			go func() {
				time.Sleep(mid)
				_ = m.StepDown(t.Context(), "dead", &tenure.StepDownOptions{Reason: "hurry"}) // nobody answers
			}()
		}, `lock "dead", of "dead"`},
		"a process that deletes": {func(t *testing.T, w *world, _ *machine) {
			t.Helper()
			go func() {
				time.Sleep(mid)
				testutil.Want(t, w.Store().Delete(t.Context(), w.MustRecord("free")), nil)
			}()
		}, `lock "free"`},
	} {
		t.Run(name, func(t *testing.T) {
			inPages(t, 3, func(t *testing.T, w *world) {
				dead := w.Client("dead")
				dead.MustAcquire("dead", nil)
				mustRelease(dead, dead.MustAcquire("free", nil))
				mustOpen(dead)
				dead.Partition()
				m := w.Client("alive")
				tc.live(t, w, m)
				ops := w.Client("ops")
				n, err := admin.RaiseTokens(t.Context(), ops.Client, "", 1000, nil)
				testutil.Want(t, err, tenure.ErrAlive)
				contains(t, err, tc.in)
				contains(t, err, "stop all programs that use the store first")
				if n != (admin.RaisedTokens{}) || ops.Faults().Count(faultstore.OpRaise, faultstore.OpClose) != 0 {
					t.Errorf("%+v was done, by %d writes", n, ops.Faults().Count(faultstore.OpRaise, faultstore.OpClose))
				}
				m.Close(t.Context())
			})
		})
	}
}

// The last heartbeat of a program may still be on its way when no record has changed for long
// enough.
func TestRaiseIsRefusedByALateHeartbeat(t *testing.T) {
	for _, session := range []bool{false, true} {
		inPages(t, 3, func(t *testing.T, w *world) {
			a := w.Client("a")
			op := faultstore.OpRaise
			if session {
				op = faultstore.OpClose
				mustOpen(a)
			} else {
				a.MustAcquire("x", nil)
			}
			a.Partition()
			ops := w.Client("ops")
			// It comes at the moment in which the write is sent.
			ops.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{op}, Count: 1, Decide: func(c faultstore.Call) faultstore.Fault {
				next := c.Prev.Clone()
				next.Version, next.Beat = "late", "late"
				if _, err := w.Store().Swap(t.Context(), c.Prev, next); err != nil {
					t.Error(err)
				}
				return faultstore.Fault{}
			}})
			n, err := admin.RaiseTokens(t.Context(), ops.Client, "", 1000, nil)
			testutil.Want(t, err, tenure.ErrAlive)
			if n != (admin.RaisedTokens{}) {
				t.Errorf("%+v was done", n)
			}
		})
	}
}

// So may a heartbeat that comes after the last read, and before the write.
func TestRaiseIsRefusedByAHeartbeatAfterTheLastLook(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, w *world){
		"written": func(t *testing.T, w *world) {
			t.Helper()
			rec := w.MustRecord("x")
			next := rec.Clone()
			next.Version, next.Beat = "late", "late"
			if _, err := w.Store().Swap(t.Context(), rec, next); err != nil {
				t.Error(err)
			}
		},
		"deleted": func(t *testing.T, w *world) {
			t.Helper()
			testutil.Want(t, w.Store().Delete(t.Context(), w.MustRecord("x")), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inPages(t, 3, func(t *testing.T, w *world) {
				a := w.Client("a")
				a.MustAcquire("x", nil)
				mustOpen(a)
				a.Partition()
				ops := w.Client("ops")
				ops.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpClose}, Count: 1, Decide: func(faultstore.Call) faultstore.Fault {
					change(t, w)
					return faultstore.Fault{}
				}})
				n, err := admin.RaiseTokens(t.Context(), ops.Client, "", 1000, nil)
				testutil.Want(t, err, tenure.ErrAlive)
				contains(t, err, `lock "x"`)
				if n != (admin.RaisedTokens{Sessions: 1}) {
					t.Errorf("%+v was done", n)
				}
			})
		})
	}
}

// When the program has stopped its session is closed: its last heartbeat, which may
// be on its way for long, does not bring it back, whatever the prefix.
func TestRaiseClosesSessions(t *testing.T) {
	for _, prefix := range []string{"", "x", "another"} {
		inPages(t, 3, func(t *testing.T, w *world) {
			a, b := w.Client("a"), w.Client("b")
			mustRelease(b, b.MustAcquire("x", nil))
			s := mustOpen(a)
			first := testutil.Must(s.Acquire(t.Context(), "x", nil))(t)
			// The next heartbeat is delayed for far longer than any should be, and the
			// program hangs.
			a.Inject(faultstore.OpHeartbeat, 0, 1, faultstore.LateAfterError(3*lease))
			time.Sleep(heartbeat)
			a.Partition()
			n, err := admin.RaiseTokens(t.Context(), w.Client("ops").Client, prefix, 1000, nil)
			if err != nil || n.Sessions != 1 {
				t.Fatalf("%+v, %v", n, err)
			}
			testutil.Want(t, first.Check(), tenure.ErrLost)
			second := b.MustAcquire("x", nil)
			time.Sleep(2 * lease)
			if rec := w.MustRecord(driver.SessionKey(s.ID())); rec.State != driver.Closed {
				t.Errorf("the session is %q after the late heartbeat", rec.State)
			}
			testutil.Want(t, first.Check(), tenure.ErrLost)
			testutil.Want(t, second.Check(), nil)
			mustRelease(b, second)
		})
	}
}
