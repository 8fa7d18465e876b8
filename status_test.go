// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

func TestStatusShowsTheRecord(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.machine("a", func(o *tenure.Options) { o.Label = "v1" })
		b := w.machine("b")
		status := func() tenure.Status {
			t.Helper()
			s, err := b.Status(t.Context(), "x")
			want(t, err, nil)
			if s.Name != "x" {
				t.Errorf("name %q", s.Name)
			}
			return s
		}
		if s := status(); s.Held || s.Token != 0 || s.Owner != "" || s.Previous != nil {
			t.Errorf("never taken: %+v", s)
		}
		since := time.Now()
		l := a.mustAcquire("x", &tenure.AcquireOptions{Data: []byte("d")})
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
		a.mustRelease(l)
		if s := status(); s.Held || s.Owner != "a" || s.Token != 1 || !s.Until.Equal(until) || s.FreeIn != 0 {
			t.Errorf("released: %+v", s)
		}
		a.mustAcquire("x", nil)
		s = status()
		if p := s.Previous; !s.Held || s.Token != 2 || p == nil || p.Owner != "a" || p.Token != 1 || p.End != "released" || !p.Until.Equal(until) {
			t.Errorf("held again: %+v, previous %+v", s, p)
		}
		a.crash()
		status()
		time.Sleep(lease)
		if s := status(); s.Held || s.Owner != "a" || s.FreeIn != 0 || s.Unchanged < lease {
			t.Errorf("dead: %+v", s)
		}
	})
}

func TestLocksListsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPagedWorld(t, 7)
		m := w.machine("a")
		for _, name := range names(20) {
			m.mustAcquire("jobs/"+name, nil)
		}
		m.mustAcquire("other", nil)
		list := func(prefix string, most int) (got []string) {
			for s, err := range m.Locks(t.Context(), prefix) {
				want(t, err, nil)
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
			for s, err := range m.LocksAfter(t.Context(), "jobs/", name) {
				want(t, err, nil)
				after = append(after, s.Name)
			}
			if !slices.Equal(after, list("jobs/", -1)[i+1:]) {
				t.Errorf("after %q: %q", name, after)
			}
		}
		for _, bad := range []string{"a\x00", "\xff"} {
			for _, err := range m.LocksAfter(t.Context(), "", bad) {
				want(t, err, tenure.ErrInvalid)
			}
		}
		if got := list("nothing", -1); got != nil {
			t.Errorf("got %q", got)
		}
	})
}

func TestReadsReturnTheStoresError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		m.faults.Inject(faultstore.Rule{Fault: faultstore.LoseRequest()})
		_, err := m.Status(t.Context(), "x")
		want(t, err, faultstore.ErrInjected)
		if e, ok := errors.AsType[*tenure.Error](err); !ok || e.Op != "status" || e.Key != "x" {
			t.Errorf("error %#v", err)
		}
		_, err = m.Election("x", nil).Leader(t.Context())
		want(t, err, faultstore.ErrInjected)
		n := 0
		for _, err := range m.Locks(t.Context(), "") {
			n++
			want(t, err, faultstore.ErrInjected)
		}
		if n != 1 {
			t.Errorf("%d errors", n)
		}
	})
}

// unreadable is a store with a record that cannot be understood.
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
		m := w.machine("a")
		m.mustAcquire("1", nil)
		m.mustAcquire("3", nil)
		c, err := tenure.New(unreadable{w.records}, &tenure.Options{Clock: tenure.MonotonicClock()})
		want(t, err, nil)
		defer c.Close(t.Context())
		var got []string
		for s, err := range c.Locks(t.Context(), "") {
			if s.Name == "2" {
				want(t, err, tenure.ErrUnreadable)
			} else {
				want(t, err, nil)
			}
			got = append(got, s.Name)
		}
		if !slices.Equal(got, []string{"1", "2", "3"}) {
			t.Errorf("got %q", got)
		}
	})
}

// Of more locks than can be remembered whole it is known since when their holders
// have shown no life.
func TestUnchangedOutlivesWhatIsRemembered(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		a.mustAcquire("x", nil)
		a.crash()
		unchanged := func() time.Duration {
			s, err := b.Status(t.Context(), "x")
			want(t, err, nil)
			return s.Unchanged
		}
		unchanged()
		time.Sleep(time.Second)
		if got := unchanged(); got != time.Second {
			t.Errorf("unchanged for %v", got)
		}
		for _, name := range names(10_000) {
			if _, err := b.Status(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if got := unchanged(); got != 2*time.Second {
			t.Errorf("unchanged for %v", got)
		}
	})
}
