// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package faultstore_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
)

// read returns the version that a read shows, "absent" if it shows none.
func read(t *testing.T, s driver.Store, key string, c driver.Consistency) string {
	t.Helper()
	rec, err := s.Get(t.Context(), key, c)
	if errors.Is(err, driver.ErrNotFound) {
		return "absent"
	}
	if err != nil {
		t.Fatal(err)
	}
	return rec.Version
}

func listed(t *testing.T, s driver.Store) []string {
	t.Helper()
	page, err := s.List(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, rec := range page.Records {
		all = append(all, rec.Key+" "+rec.Version)
	}
	return all
}

// Two stores with faults onto the same records: one reads the writes of the
// other late, as far back as requested, but Strong reads are never late.
func TestStale(t *testing.T) {
	records := memstore.New()
	a, b := faultstore.New(records.Open(), nil), faultstore.New(records.Open(), nil)
	defer a.Close()
	defer b.Close()
	now, _, err := a.Claim(t.Context(), held("k", "v1"))
	if err != nil {
		t.Fatal(err)
	}
	for n := 2; n <= 4; n++ {
		if now, err = records.Swap(t.Context(), now, heartbeat(now, fmt.Sprint("v", n))); err != nil { // past all faults
			t.Fatal(err)
		}
	}
	for ago, want := range []string{"v4", "v3", "v2", "v1", "absent", "absent"} {
		remove := b.Inject(faultstore.Rule{Fault: faultstore.Stale(ago)})
		if got := read(t, b, "k", driver.Eventual); got != want {
			t.Errorf("%d writes ago: %s, want %s", ago, got, want)
		}
		list := []string{"k " + want}
		if want == "absent" {
			list = nil
		}
		if got := listed(t, b); !slices.Equal(got, list) {
			t.Errorf("listed %d writes ago: %q, want %q", ago, got, list)
		}
		if got := read(t, b, "k", driver.Strong); got != "v4" {
			t.Errorf("a strong read shows %s", got)
		}
		remove()
	}
	if got := read(t, b, "k", driver.Eventual); got != "v4" {
		t.Errorf("without the rule a read shows %s", got)
	}

	// A deleted record is still shown, and later records not yet.
	if err := a.Delete(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	b.Inject(faultstore.Rule{Fault: faultstore.Stale(1)})
	if got := read(t, b, "k", driver.Eventual); got != "v4" || !slices.Equal(listed(t, b), []string{"k v4"}) {
		t.Errorf("after the deletion a stale read shows %s, a list %q", got, listed(t, b))
	}
	if _, _, err := a.Claim(t.Context(), held("k", "w1")); err != nil {
		t.Fatal(err)
	}
	if got := read(t, b, "k", driver.Eventual); got != "absent" || listed(t, b) != nil {
		t.Errorf("after the new claim a stale read shows %s, a list %q", got, listed(t, b))
	}
}

// A write that changes nothing is no past.
func TestStaleCountsWhatWasWritten(t *testing.T) {
	f := newFixture(t)
	defer f.Close()
	remove := f.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Fault: faultstore.Stale(1)})
	now, err := f.Swap(t.Context(), f.rec, heartbeat(f.rec, "v2"))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := f.Swap(t.Context(), f.rec, heartbeat(f.rec, "v3")); err == nil {
			t.Fatal("a swap from an older version was applied")
		}
		if _, _, err := f.Claim(t.Context(), held("k", "v4")); err == nil {
			t.Fatal("a held lock was claimed")
		}
	}
	if got := read(t, f, "k", driver.Eventual); got != "v1" {
		t.Errorf("one write ago: %s, want v1", got)
	}
	for n := 3; n < 3+2*faultstore.MaxStale; n++ {
		if now, err = f.Swap(t.Context(), now, heartbeat(now, fmt.Sprint("v", n))); err != nil {
			t.Fatal(err)
		}
	}
	remove()
	f.Inject(faultstore.Rule{Fault: faultstore.Stale(1000)})
	if got, want := read(t, f, "k", driver.Eventual), fmt.Sprint("v", 2+faultstore.MaxStale); got != want {
		t.Errorf("as old as can be: %s, want %s", got, want)
	}
}

// States before the first store with faults are not known.
func TestStaleKnowsNothingEarlier(t *testing.T) {
	records := memstore.New()
	if _, _, err := records.Claim(t.Context(), held("k", "v1")); err != nil {
		t.Fatal(err)
	}
	f := faultstore.New(records.Open(), nil)
	defer f.Close()
	f.Inject(faultstore.Rule{Fault: faultstore.Stale(5)})
	if got := read(t, f, "k", driver.Eventual); got != "v1" {
		t.Errorf("a stale read shows %s, want v1", got)
	}
}

// bare is a store that cannot show its past.
type bare struct{ driver.Store }

func TestStaleNeedsAPast(t *testing.T) {
	f := faultstore.New(bare{memstore.New()}, nil)
	defer f.Close()
	f.Inject(faultstore.Rule{Fault: faultstore.Stale(1)})
	if _, err := f.Get(t.Context(), "k", driver.Strong); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("a strong read: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a stale read was silently fresh")
		}
	}()
	_, _ = f.Get(t.Context(), "k", driver.Eventual)
}
