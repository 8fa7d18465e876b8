// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/sqlitestore"
)

func options(t *testing.T, o tenure.Options) tenure.Options {
	t.Helper()
	c, err := tenure.New(memstore.New(), &o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }()
	return c.Options()
}

// examine returns the findings as lines.
func examine(t *testing.T, p Patient) (lines string, bad bool, err error) {
	t.Helper()
	var b strings.Builder
	p.Tell = func(f driver.Finding) { fmt.Fprintf(&b, "%s %s: %s; %s\n", f.Level, f.Check, f.Finding, f.Advice) }
	bad, err = Examine(t.Context(), p)
	return b.String(), bad, err
}

func wantLines(t *testing.T, lines string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(lines, w) {
			t.Errorf("no %q in:\n%s", w, lines)
		}
	}
}

func TestHealthySQLite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	open := func() (driver.Store, error) { return sqlitestore.Open(file, nil) }
	first, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	diagnose := func(ctx context.Context, _ driver.Timing) []driver.Finding { return sqlitestore.Diagnose(ctx, file) }
	lines, bad, err := examine(t, Patient{
		Diagnose: diagnose, Open: open,
		Options: options(t, tenure.Options{LeaseDuration: time.Minute}),
	})
	if bad || err != nil {
		t.Errorf("bad %v, %v:\n%s", bad, err, lines)
	}
	wantLines(t, lines, "ok lease: lease 1m0s", "ok store: can be read and written", "latency: writes take",
		"a waiter is notified of a release after", "locks.db", "MB are free")
	page, err := first.List(t.Context(), driver.OwnPrefix, "")
	if err != nil || len(page.Records) != 0 {
		t.Errorf("left behind: %v, %v", page.Records, err)
	}
}

// A store that cannot be written, a store that loses writes, a store that cannot be
// opened, and a store that does not answer in time.
func TestSickStores(t *testing.T) {
	o, lost, slow := options(t, tenure.Options{}), faultstore.LoseRequest(), faultstore.Slow(5*time.Millisecond, 0)
	none := faultstore.Fault{Effect: lost.Effect, Err: errors.ErrUnsupported}
	closed := func() (driver.Store, error) { return nil, errors.New("no permission") }
	sick := func(op faultstore.Op, f faultstore.Fault) func() (driver.Store, error) {
		s := faultstore.New(memstore.New(), nil)
		t.Cleanup(func() { _ = s.Close() })
		s.Inject(faultstore.Rule{Ops: []faultstore.Op{op}, Fault: f})
		return func() (driver.Store, error) { return s.Driver(), nil }
	}
	guarded := func(opened bool) func() (driver.Store, error) {
		s := memstore.New()
		s.Guard(time.Minute)
		s.Lose(s.Copy())
		shown, err := s.Get(t.Context(), "lock", driver.Strong)
		if err != nil {
			t.Fatal(err)
		}
		if opened {
			_, _, _ = s.Claim(t.Context(), driver.Record{ // a conflict
				Key: "lock", Version: "v", Beat: "v", Owner: "o", State: driver.Held, Lease: time.Second,
				Opens: driver.OpeningOf(shown.Life, time.Now()),
			})
		}
		return func() (driver.Store, error) { return s.Open(), nil }
	}
	for name, tc := range map[string]struct {
		open func() (driver.Store, error)
		want string
	}{
		"grants nothing":     {guarded(false), "warn store: grants no lock for now"},
		"grants again":       {guarded(true), "ok store: can be read and written"},
		"takes over late":    {guarded(true), "ok lease: with this store, a crashed holder's lock is free 1m0s after"},
		"cannot be opened":   {closed, "bad store: cannot be opened: no permission"},
		"cannot be written":  {sick(faultstore.OpClaim, lost), "bad store: cannot be written"},
		"cannot be renewed":  {sick(faultstore.OpHeartbeat, lost), "bad store: a record cannot be renewed"},
		"cannot be read":     {sick(faultstore.OpGet, lost), "reading it back gave"},
		"cannot be watched":  {sick(faultstore.OpWatch, lost), "warn watch: the store cannot watch for a release"},
		"has no watch":       {sick(faultstore.OpWatch, none), "ok watch: this store has no watch"},
		"does not tell":      {sick(faultstore.OpHint, lost), "warn watch: a waiter was not notified"},
		"cannot be cleared":  {sick(faultstore.OpDelete, lost), "could not be deleted"},
		"too slow for lease": {sick(faultstore.OpHeartbeat, slow), "with this store, use --lease"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := o
			if strings.HasPrefix(name, "too slow") {
				o = options(t, tenure.Options{LeaseDuration: 20 * time.Millisecond})
			}
			lines, bad, err := examine(t, Patient{Open: tc.open, Options: o})
			wantLines(t, lines, tc.want)
			if strings.HasPrefix(tc.want, "bad") && (!bad || err == nil) {
				t.Errorf("bad %v, %v:\n%s", bad, err, lines)
			}
		})
	}
}

func TestJudgements(t *testing.T) {
	o := options(t, tenure.Options{})
	ms := func(least, median, most int) latency {
		const unit = time.Millisecond
		return latency{time.Duration(least) * unit, time.Duration(median) * unit, time.Duration(most) * unit}
	}
	for _, tc := range []struct {
		got  driver.Finding
		want driver.Level
		text string
	}{
		{judgeWrites(ms(1, 2, 30), o), driver.LevelOK, "median 2ms"},
		{judgeWrites(ms(1, 2, 600), o), driver.LevelWarn, "--lease 37s or more"},
		{judgeWrites(ms(900, 1600, 2000), o), driver.LevelBad, "--lease 2m1s or more"},
		{judgeSource("tsc"), driver.LevelOK, "tsc"},
		{judgeSource("jiffies"), driver.LevelWarn, "jiffies"},
		{judgeDiscipline(false, 0, 10_000, 0.09, false), driver.LevelOK, "0.0000 %"},
		{judgeDiscipline(true, 65536*20, 10_000, 0.09, false), driver.LevelWarn, "no time service sets"},
		{judgeDiscipline(false, 0, 10_800, 0.09, false), driver.LevelWarn, "8.0000 %"},
		{judgeDiscipline(false, 0, 9_000, 0.01, true), driver.LevelOK, "10.0000 %, which leases do not notice"},
		{judgeDiscipline(true, 0, 9_000, 0.01, true), driver.LevelWarn, "no time service sets"},
		{judgeDiscipline(false, 0, 9_000, 0.09, false), driver.LevelBad, "no lease is safe"},
	} {
		text := tc.got.Finding + "; " + tc.got.Advice
		if tc.got.Level != tc.want || !strings.Contains(text, tc.text) {
			t.Errorf("%+v, want %s with %q", tc.got, tc.want, tc.text)
		}
	}
	for _, f := range Numbers(options(t, tenure.Options{HeartbeatPeriod: 7 * time.Second})) {
		if f.Level == driver.LevelWarn {
			return
		}
	}
	t.Error("a heartbeat of half the lease is no reason for a warning")
}
