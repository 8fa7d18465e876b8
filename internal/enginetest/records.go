// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Claim claims a record, which must not fail.
func Claim(tb testing.TB, s driver.Store, next driver.Record) driver.Record {
	tb.Helper()
	now, _, err := s.Claim(tb.Context(), next)
	if err != nil {
		tb.Fatal(err)
	}
	return now
}

// Swap replaces a record by another, and fails the test on an error.
func Swap(tb testing.TB, s driver.Store, prev, next driver.Record) driver.Record {
	tb.Helper()
	now, err := s.Swap(tb.Context(), prev, next)
	if err != nil {
		tb.Fatal(err)
	}
	return now
}

// Get reads a record strongly, which must not fail.
func Get(tb testing.TB, s driver.Store, key string) driver.Record {
	tb.Helper()
	rec, err := s.Get(tb.Context(), key, driver.Strong)
	if err != nil {
		tb.Fatal(err)
	}
	return rec
}

// patience is how long a test waits for an event that must come.
const patience = time.Minute

// Eventually tries until there is no error, and fails the test after a timeout.
func Eventually(tb testing.TB, what string, try func(context.Context) error) {
	tb.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); <-time.After(5 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(tb.Context(), 5*time.Second)
		err = try(ctx)
		cancel()
		if err == nil {
			return
		}
	}
	tb.Fatalf("%s did not come: %v", what, err)
}

// Watched returns a channel that gets the hints of a watch.
func Watched(tb testing.TB, s driver.Watcher, key string) (hints chan struct{}, stop func()) {
	tb.Helper()
	hints = make(chan struct{}, 1000)
	stop, err := s.Watch(tb.Context(), key, func() { hints <- struct{}{} })
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(stop)
	return hints, stop
}

// WantHint waits for a hint.
func WantHint(tb testing.TB, hints <-chan struct{}, what string) {
	tb.Helper()
	select {
	case <-hints:
	case <-time.After(patience):
		tb.Fatalf("no hint of %s", what)
	}
}

// CheckNested fails the test unless each of the stores, which are in one engine under the
// names in the map, has only its own records.
func CheckNested(tb testing.TB, stores map[string]driver.Store) {
	tb.Helper()
	keys := []string{"00", "a/lock", "h/lock", "lock", "r/lock", "w/x/r/lock", "x", "x/lock", "x/r/lock"}
	claimed := map[string]driver.Record{}
	for name, s := range stores {
		for _, key := range keys {
			version := name + "-" + key
			rec := Claim(tb, s, driver.Record{
				Key: key, Version: version, Beat: version, Owner: name + "o", Lease: time.Minute, State: driver.Held,
			})
			if rec.Token != 1 {
				tb.Errorf("store %q: %q has token %d: it is a record of another store", name, key, rec.Token)
			}
			claimed[name+"\x00"+key] = rec
		}
	}
	for name, s := range stores {
		for _, key := range keys {
			next := claimed[name+"\x00"+key]
			next.Version += "-2"
			next.State, next.End = driver.Released, driver.EndReleased
			Swap(tb, s, claimed[name+"\x00"+key], next)
		}
	}
	for name, s := range stores {
		var listed []string
		for cursor := ""; ; {
			page, err := s.List(tb.Context(), "", cursor)
			if err != nil || len(page.Unreadable) > 0 {
				tb.Fatalf("store %q: list: %v, unreadable %v", name, err, page.Unreadable)
			}
			for _, rec := range page.Records {
				listed = append(listed, rec.Key)
				if rec.Owner != name+"o" || rec.State != driver.Released {
					tb.Errorf("store %q: it has %+v", name, rec)
				}
			}
			if cursor = page.Cursor; cursor == "" {
				break
			}
		}
		if !slices.Equal(listed, keys) {
			tb.Errorf("store %q: it lists %q, want %q", name, listed, keys)
		}
	}
}

// Findings returns findings as lines, "LEVEL CHECK: FINDING; ADVICE" each, and reports those of
// the wanted pieces of lines that are missing. A piece that begins with "!" must be missing.
func Findings(t *testing.T, all []driver.Finding, want ...string) (lines string) {
	t.Helper()
	for _, f := range all {
		lines += fmt.Sprintf("%s %s: %s; %s\n", f.Level, f.Check, f.Finding, f.Advice)
	}
	for _, w := range want {
		if unwanted, not := strings.CutPrefix(w, "!"); strings.Contains(lines, unwanted) == not {
			t.Errorf("%q is wanted in:\n%s", w, lines)
		}
	}
	return lines
}
