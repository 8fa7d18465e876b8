// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/memstore"
)

func TestStatusShowsTheRecord(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a", func(o *tenure.Options) { o.Label = "v1" })
		b := w.Client("b")
		status := func() tenure.Status {
			t.Helper()
			s, err := b.Status(t.Context(), "x")
			testutil.Want(t, err, nil)
			if s.Name != "x" {
				t.Errorf("name %q", s.Name)
			}
			return s
		}
		if s := status(); s.Held || s.Token != 0 || s.Owner != "" || s.Previous != nil {
			t.Errorf("never taken: %+v", s)
		}
		since := time.Now()
		l := a.MustAcquire("x", &tenure.AcquireOptions{Data: []byte("d")})
		s := status()
		if !s.Held || s.Owner != "a" || s.Token != 1 || s.Host != "host-of-a" || s.Label != "v1" || !s.Since.Equal(since) ||
			!s.Until.IsZero() || string(s.Data) != "d" || s.Lease != lease || s.Heartbeat != heartbeat || s.Previous != nil {
			t.Errorf("held: %+v", s)
		}
		if s.Unchanged != 0 || s.FreeIn != lease {
			t.Errorf("unchanged for %v, free in %v", s.Unchanged, s.FreeIn)
		}
		time.Sleep(heartbeat / 4)
		if s := status(); s.Unchanged != heartbeat/4 || s.FreeIn != lease-heartbeat/4 {
			t.Errorf("unchanged for %v, free in %v", s.Unchanged, s.FreeIn)
		}
		until := time.Now()
		mustRelease(a, l)
		if s := status(); s.Held || s.Owner != "a" || s.Token != 1 || !s.Until.Equal(until) || s.FreeIn != 0 {
			t.Errorf("released: %+v", s)
		}
		a.MustAcquire("x", nil)
		s = status()
		if p := s.Previous; !s.Held || s.Token != 2 || p == nil || p.Owner != "a" || p.Token != 1 || p.End != "released" || !p.Until.Equal(until) {
			t.Errorf("held again: %+v, previous %+v", s, p)
		}
		a.Partition()
		status()
		time.Sleep(lease)
		if s := status(); s.Held || s.Owner != "a" || s.FreeIn != 0 || s.Unchanged < lease {
			t.Errorf("dead: %+v", s)
		}
	})
}

// newPagedWorld is newWorld with pages of that size in lists of the memory store.
func newPagedWorld(t *testing.T, pageSize int) *world {
	if engine != nil {
		return newWorld(t)
	}
	records := memstore.New()
	records.PageSize = pageSize
	return worldOn(t, func() driver.Store { return records.Open() })
}

func TestLocksListsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPagedWorld(t, 7)
		m := w.Client("a")
		for _, name := range names(20) {
			m.MustAcquire("jobs/"+name, nil)
		}
		m.MustAcquire("other", nil)
		list := func(prefix string, most int) (got []string) {
			for s, err := range m.Locks(t.Context(), &tenure.ListOptions{Prefix: prefix}) {
				testutil.Want(t, err, nil)
				if !s.Held || s.Owner != "a" {
					t.Errorf("%+v", s)
				}
				if got = append(got, s.Name); len(got) == most {
					break
				}
			}
			return got
		}
		if got := list("jobs/", -1); len(got) != 20 || !slices.IsSorted(got) {
			t.Errorf("got %q", got)
		}
		if got := list("", -1); len(got) != 21 || got[20] != "other" {
			t.Errorf("got %q", got)
		}
		if got := list("", 3); len(got) != 3 {
			t.Errorf("got %q", got)
		}
		for i, name := range list("jobs/", -1) {
			var after []string
			for s, err := range m.Locks(t.Context(), &tenure.ListOptions{Prefix: "jobs/", After: name}) {
				testutil.Want(t, err, nil)
				after = append(after, s.Name)
			}
			if !slices.Equal(after, list("jobs/", -1)[i+1:]) {
				t.Errorf("after %q: %q", name, after)
			}
		}
		for _, bad := range []string{"a\x00", "\xff"} {
			for _, err := range m.Locks(t.Context(), &tenure.ListOptions{After: bad}) {
				testutil.Want(t, err, tenure.ErrInvalid)
			}
		}
		if got := list("nothing", -1); got != nil {
			t.Errorf("got %q", got)
		}
	})
}

// TestLocksListsWhatIsThere: a late duplicate of a claim brings its version back under the next
// token. A client that knows the version shows the token that is listed.
func TestLocksListsWhatIsThere(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		claim := driver.Record{Key: "x", Version: "v", Beat: "v", Owner: "other", Lease: lease, State: driver.Held}
		first, _, err := w.Records().Claim(t.Context(), claim)
		testutil.Want(t, err, nil)
		m := w.Client("a")
		_, err = m.TryAcquire(t.Context(), "x", nil)
		testutil.Want(t, err, tenure.ErrHeld)
		free := first
		free.Version, free.State = "w", driver.Released
		_, err = w.Records().Swap(t.Context(), first, free)
		testutil.Want(t, err, nil)
		_, _, err = w.Records().Claim(t.Context(), claim)
		testutil.Want(t, err, nil)
		for st, err := range m.Locks(t.Context(), nil) {
			if testutil.Want(t, err, nil); st.Token != first.Token+1 {
				t.Errorf("token %d is listed, want %d", st.Token, first.Token+1)
			}
		}
	})
}

func TestReadsReturnTheStoresError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		m.Faults().Inject(faultstore.Rule{Fault: faultstore.LoseRequest()})
		_, err := m.Status(t.Context(), "x")
		testutil.Want(t, err, faultstore.ErrInjected)
		if e, ok := errors.AsType[*tenure.Error](err); !ok || e.Op != "status" || e.Key != "x" {
			t.Errorf("error %#v", err)
		}
		_, err = m.Election("x", nil).Leader(t.Context())
		testutil.Want(t, err, faultstore.ErrInjected)
		n := 0
		for _, err := range m.Locks(t.Context(), nil) {
			n++
			testutil.Want(t, err, faultstore.ErrInjected)
		}
		if n != 1 {
			t.Errorf("%d errors", n)
		}
	})
}

// unreadable is a store with an unreadable record.
type unreadable struct{ driver.Store }

func (s unreadable) List(ctx context.Context, prefix, cursor string) (driver.Page, error) {
	page, err := s.Store.List(ctx, prefix, cursor)
	if cursor == "" {
		page.Unreadable = map[string]error{"2": fmt.Errorf("no number: %w", driver.ErrUnreadable)}
	}
	return page, err
}

func TestLocksGoesOnAfterAnUnreadableRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPagedWorld(t, 1)
		m := w.Client("a")
		m.MustAcquire("1", nil)
		m.MustAcquire("3", nil)
		c, err := tenure.New(unreadable{w.Records()}, &tenure.Options{Clock: tenure.MonotonicClock()})
		testutil.Want(t, err, nil)
		defer c.Close(t.Context())
		var got []string
		for s, err := range c.Locks(t.Context(), nil) {
			if s.Name == "2" {
				testutil.Want(t, err, tenure.ErrUnreadable)
			} else {
				testutil.Want(t, err, nil)
			}
			got = append(got, s.Name)
		}
		if !slices.Equal(got, []string{"1", "2", "3"}) {
			t.Errorf("got %q", got)
		}
	})
}

// TestEventualStatusesAnswerAsStatuses: of locks of all kinds, in the order of the names.
func TestEventualStatusesAnswerAsStatuses(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		a.MustAcquire("held", nil)
		mustRelease(a, a.MustAcquire("free", nil))
		names := []string{"free", "never", "", "held", "free"}
		for range 3 {
			_, _ = b.Statuses(t.Context(), names, &tenure.ReadOptions{Eventual: true}) // the first ones are strong
		}
		list, errs := b.Statuses(t.Context(), names, &tenure.ReadOptions{Eventual: true})
		strong, strongErrs := b.Statuses(t.Context(), names, nil)
		for i, name := range names {
			if got, want := list[i], strong[i]; got.State != want.State || got.Held != want.Held || got.Owner != want.Owner || got.Token != want.Token || got.Name != name {
				t.Errorf("%q: %+v, want %+v", name, got, want)
			}
			if (errs[i] == nil) != (strongErrs[i] == nil) || name == "" && !errors.Is(errs[i], tenure.ErrInvalid) {
				t.Errorf("%q: error %v, want %v", name, errs[i], strongErrs[i])
			}
		}
	})
}

// TestEventualStatusesCost: a client that polls each refresh period reads locks cheaply, and
// a session when its next heartbeat is near; it finds a crash as soon as with strong reads.
func TestEventualStatusesCost(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	cheap := &tenure.ReadOptions{Eventual: true}
	for name, alive := range map[string]func(t *testing.T, b *machine, id string) bool{
		"locks": func(t *testing.T, b *machine, _ string) bool {
			list, errs := b.Statuses(t.Context(), names(10), cheap)
			testutil.Want(t, errors.Join(errs...), nil)
			return list[0].Held && list[9].Held
		},
		"session": func(t *testing.T, b *machine, id string) bool {
			st, err := b.SessionStatus(t.Context(), id, cheap)
			if testutil.Want(t, err, nil); st.ID != id {
				t.Errorf("%+v", st)
			}
			return st.Alive
		},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a, b := w.Client("a"), w.Client("b")
			s := mustOpen(a, nil)
			for _, name := range names(10) {
				mustTake(a, s, name)
			}
			for range 10 {
				alive(t, b, s.ID())
				time.Sleep(refresh)
			}
			b.Faults().ResetLog()
			const beats = 100
			for range beats * int(heartbeat/refresh) {
				if !alive(t, b, s.ID()) {
					t.Fatal("not alive")
				}
				time.Sleep(refresh)
			}
			units := 0 // of a cheap read of the session; a strong one of anything costs two
			for _, c := range b.Faults().Log() {
				switch {
				case c.Consistency == driver.Strong:
					units += 2
				case c.Key == driver.SessionKey(s.ID()):
					units++
				}
			}
			if units > beats*17/4 {
				t.Errorf("%d cheap reads, with a strong one as two, in %d heartbeat periods", units, beats)
			}
			a.Partition()
			crashed := time.Now()
			for alive(t, b, s.ID()) && time.Since(crashed) < 3*lease {
				time.Sleep(refresh)
			}
			if took := time.Since(crashed); took < lease-heartbeat-refresh || took > lease+2*refresh {
				t.Errorf("seen to be dead after %v", took)
			}
			testutil.Must(b.TryAcquire(t.Context(), "lock-00000", nil))(t)
		})
	}
}

// TestEventualStatusesNeverGoBack: whatever old state a cheap read shows, and a living holder
// never counts as dead.
func TestEventualStatusesNeverGoBack(t *testing.T) {
	notOnEngines(t, noStaleReads)
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		begun := time.Now()
		b.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Decide: func(faultstore.Call) faultstore.Fault {
			at := time.Since(begun) % (20 * heartbeat)
			if behind := int(at/heartbeat) + 1; at < 8*heartbeat {
				return faultstore.Stale(behind) // it stands still, for longer than a lease
			}
			return faultstore.Stale(rand.IntN(7)) // by more than a lease, at the most
		}})
		s := mustOpen(a, nil)
		var token uint64
		for range 50 {
			x := mustTake(a, s, "x")
			y := a.MustAcquire("y", nil)
			time.Sleep(2 * refresh) // the first look at a new term may not see it
			for range 20 {
				list, errs := b.Statuses(t.Context(), []string{"x", "y"}, &tenure.ReadOptions{Eventual: true})
				testutil.Want(t, errors.Join(errs...), nil)
				if list[0].Token < token || list[1].Token < token {
					t.Fatalf("tokens %d and %d after %d", list[0].Token, list[1].Token, token)
				}
				for _, st := range list {
					if st.Token == x.Token() && st.State == tenure.StateHeld && !st.Held {
						t.Fatalf("%s counts as dead, and is held: %+v", st.Name, st)
					}
				}
				time.Sleep(refresh)
			}
			token = x.Token() - 1
			mustRelease(a, x)
			mustRelease(a, y)
		}
	})
}

// TestStatusesWithoutSessions: they read no session, and never report a lock as absent because
// of a stale read.
func TestStatusesWithoutSessions(t *testing.T) {
	notOnEngines(t, noStaleReads)
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c := w.Client("a"), w.Client("b"), w.Client("c")
		s := mustOpen(a, nil)
		mustTake(a, s, "x")
		mustRelease(a, a.MustAcquire("free", nil))
		list := []string{"x", "free", "never", ""}
		look := func(m *machine) []tenure.Status {
			t.Helper()
			sts, errs := m.Statuses(t.Context(), list, &tenure.ReadOptions{Eventual: true, WithoutSessions: true})
			testutil.Want(t, errors.Join(errs[:3]...), nil)
			testutil.Want(t, errs[3], tenure.ErrInvalid)
			return sts
		}
		for range 3 {
			sts := look(b)
			if x := sts[0]; !x.Held || x.FreeIn != 0 || x.Session != s.ID() || sts[1].State != tenure.StateReleased || sts[2].State != "" {
				t.Errorf("%+v", sts)
			}
		}
		strong := 0
		for _, call := range b.Faults().Log() {
			if call.Key == driver.SessionKey(s.ID()) {
				t.Error("a session was read")
			}
			if call.Consistency == driver.Strong {
				strong++
			}
		}
		if strong != 3 { // the first of each
			t.Errorf("%d strong reads", strong)
		}
		c.Inject(faultstore.OpGet, 0, 0, faultstore.Stale(faultstore.MaxStale))
		if x := look(c)[0]; !x.Held { // its record is new, and cheap reads do not show it
			t.Errorf("%+v", x)
		}
	})
}

// A client that polls rarely, with reads that may be stale, takes no living holder for
// dead: a holder that seems dead is read again, strongly.
func TestSeldomEventualStatusesOfTheLiving(t *testing.T) {
	notOnEngines(t, noStaleReads)
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		const behind = 6 // heartbeats: more than a lease
		b.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Decide: func(faultstore.Call) faultstore.Fault {
			return faultstore.Stale(behind)
		}})
		a.MustAcquire("x", nil)
		time.Sleep(2 * behind * heartbeat)
		look := func() tenure.Status {
			list, errs := b.Statuses(t.Context(), []string{"x"}, &tenure.ReadOptions{Eventual: true})
			testutil.Want(t, errs[0], nil)
			return list[0]
		}
		for i := range 20 {
			look()
			// Until the reply is as stale as an earlier one, whose lease is over.
			time.Sleep(lease + time.Duration(i)*refresh/2)
			if st := look(); !st.Held {
				t.Fatalf("%d: counts as dead, and is held: %+v", i, st)
			}
		}
	})
}

// A client that polls rarely, with reads that may be stale, finds a deleted lock by its
// second read: when a cheap read shows no lock, the next one is strong.
func TestSeldomEventualStatusesOfTheDeleted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		mustRelease(a, a.MustAcquire("x", nil))
		look := func() tenure.Status {
			list, errs := b.Statuses(t.Context(), []string{"x"}, &tenure.ReadOptions{Eventual: true})
			testutil.Want(t, errs[0], nil)
			return list[0]
		}
		look()
		testutil.Want(t, w.Records().Delete(t.Context(), w.MustRecord("x")), nil)
		for range 2 {
			time.Sleep(3 * refresh)
			look()
		}
		if st := look(); st.State != "" {
			t.Errorf("a lock that was deleted: %+v", st)
		}
	})
}

// A caller that changes data that it got does not change the record.
func TestDataAreTheCallersOwn(t *testing.T) {
	spoil := func(data []byte) {
		for i := range data {
			data[i] = 'x'
		}
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.Client("a"), w.Client("b")
		a.MustAcquire("x", &tenure.AcquireOptions{Data: []byte("of a")})
		var observing sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		observing.Go(func() {
			for seen, err := range b.Election("x", nil).Observe(ctx) {
				if err == nil { // the takeover has a fault
					spoil(seen.Data)
				}
			}
		})
		a.Partition()
		b.Inject(faultstore.OpTakeover, 0, 1, faultstore.LoseReply())
		l := b.MustAcquire("x", nil)
		p, _ := l.Previous()
		spoil(p.Data)
		testutil.Want(t, l.Renew(t.Context()), nil)
		if data := string(w.MustRecord("x").Data); data != "of a" {
			t.Errorf("data %q", data)
		}
		stop()
		observing.Wait()
	})
}

// A list counts how long a holder has shown no life, and a strong read shows whether it is dead.
// Without an answer to that read, the list's own result stays: it proves nothing, and is no failure
// of the list.
func TestListsTellTheDeadByAStrongRead(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		a.MustAcquire("x", nil)
		s := mustOpen(a, nil)
		list := func() (x tenure.Status, session tenure.SessionStatus) {
			t.Helper()
			for st, err := range b.Locks(t.Context(), nil) {
				testutil.Want(t, err, nil)
				x = st
			}
			for st, err := range b.Sessions(t.Context()) {
				testutil.Want(t, err, nil)
				session = st
			}
			return x, session
		}
		a.Partition()
		list()
		time.Sleep(lease)
		mute := b.Inject(faultstore.OpGet, 0, 0, faultstore.LoseRequest())
		if x, session := list(); !x.Held || x.FreeIn != 0 || x.Unchanged < lease || !session.Alive || session.ID != s.ID() {
			t.Errorf("nothing but lists has shown them: %+v, %+v", x, session)
		}
		mute()
		if x, session := list(); x.Held || session.Alive {
			t.Errorf("strong reads have shown them dead: %+v, %+v", x, session)
		}
	})
}
