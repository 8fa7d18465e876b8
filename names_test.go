// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
)

// unprintable are texts that look like others, or steer what shows them, and what
// is said of each.
var unprintable = map[string]string{
	"a\nb":        "U+000A at byte 1",
	"\x1b[31mred": "U+001B at byte 0",
	"grüße\x7f":   "U+007F at byte 7",
	"\u009b31m":   "U+009B at byte 0",
	"web\u202e7":  "U+202E at byte 3",
	"web\u200b7":  "U+200B at byte 3",
	"web\u20287":  "U+2028 at byte 3",
	"\ufeffweb":   "U+FEFF at byte 0",
	"web\ufffe":   "U+FFFE at byte 3",
	"web\u00a07":  "U+00A0 at byte 3",
	"web\ue007":   "U+E007 at byte 3", // for private use
}

// What is written for people to read is printable, rune by rune.
func TestTextThatCannotBePrintedIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		for text, part := range unprintable {
			refused := func(what string, err error) {
				t.Helper()
				if err == nil || !strings.Contains(err.Error(), " has "+part+": only printable characters and the ordinary space are allowed") {
					t.Errorf("%s %q: %v", what, text, err)
				}
			}
			for what, o := range map[string]tenure.Options{"owner": {Owner: text}, "host": {Host: text}, "label": {Label: text}} {
				c, err := tenure.New(memstore.New(), &o)
				if refused(what, err); err == nil {
					c.Close(t.Context())
				}
			}
			ctx := t.Context()
			_, err := m.Acquire(ctx, text, nil)
			refused("name to acquire", err)
			_, err = m.TryAcquire(ctx, text, nil)
			refused("name to try", err)
			refused("name to run under", m.Run(ctx, text, nil, nil))
			refused("name to campaign for", m.Election(text, nil).Run(ctx, nil))
			refused("reason", m.StepDown(ctx, "x", text))
			refused("reason", m.Transfer(ctx, "x", "b", text))
			refused("reason", m.ReleaseDead(ctx, "x", text))
			refused("reason", m.Revoke(ctx, "x", text))
			refused("heir", m.Transfer(ctx, "x", text, "why"))
		}
		if n := m.faults.Count(); n != 0 {
			t.Errorf("%d requests", n)
		}
		for _, name := range []string{"a b", "grüße", "東京", "e\u0301", "🎉", "\ufffd"} {
			m.mustRelease(m.mustAcquire(name, nil))
		}
	})
}

// TestSpacesAtTheEndsOfNames: a name that people read as another one is no lock. Text that is
// no name may have such spaces.
func TestSpacesAtTheEndsOfNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		ctx := t.Context()
		for name, part := range map[string]string{" a": "byte 0", "a ": "byte 1", "grüße  ": "byte 7", " ": "byte 0"} {
			refused := func(what string, err error) {
				t.Helper()
				if !errors.Is(err, tenure.ErrInvalid) || !strings.Contains(err.Error(), "a space at "+part) {
					t.Errorf("%s %q: %v", what, name, err)
				}
			}
			_, err := m.Acquire(ctx, name, nil)
			refused("to acquire", err)
			_, err = m.TryAcquire(ctx, name, nil)
			refused("to try", err)
			refused("to run under", m.Run(ctx, name, nil, nil))
			refused("to campaign for", m.Election(name, nil).Run(ctx, nil))
			_, err = m.Remote().TryAcquire(ctx, name, tenure.RemoteOptions{})
			refused("to take for a client", err)
		}
		if n := m.faults.Count(); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}

// What another client has written under a name that nobody can print can be looked
// at, and released.
func TestUnprintableNamesCanBeReadAndReleased(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		ctx := t.Context()
		for _, name := range append(slices.Collect(maps.Keys(unprintable)), " a", "a ") {
			rec := driver.Record{Key: name, Version: "v", Beat: "v", State: driver.Held, Owner: "b", Token: 1, Lease: lease, Since: time.Now()}
			if _, _, err := w.records.Claim(ctx, rec); err != nil {
				t.Fatal(err)
			}
			if st, err := m.Status(ctx, name); err != nil || !st.Held || st.Owner != "b" {
				t.Errorf("status of %q: %+v, %v", name, st, err)
			}
			if list, errs := m.Statuses(ctx, []string{name}); errs[0] != nil || !list[0].Held {
				t.Errorf("statuses of %q: %+v, %v", name, list, errs)
			}
			if list, err := m.History(ctx, name); err != nil || len(list) != 1 {
				t.Errorf("history of %q: %v, %v", name, list, err)
			}
			if l, err := m.Election(name, nil).Leader(ctx); err != nil || l.Owner != "b" {
				t.Errorf("leader of %q: %v, %v", name, l, err)
			}
			for l, err := range m.Election(name, nil).Observe(ctx) {
				if err != nil || l.Owner != "b" {
					t.Errorf("observed of %q: %v, %v", name, l, err)
				}
				break
			}
			if err := m.StepDown(ctx, name, "why"); !errors.Is(err, tenure.ErrUnanswered) {
				t.Errorf("step-down of %q: %v", name, err)
			}
			if err := m.ReleaseDead(ctx, name, "why"); err != nil {
				t.Errorf("release of %q: %v", name, err)
			}
			if st, err := m.Status(ctx, name); err != nil || st.Held || st.State != tenure.StateReleased {
				t.Errorf("status of %q afterwards: %+v, %v", name, st, err)
			}
		}
	})
}
