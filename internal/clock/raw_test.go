// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestRaw slews the other clocks by the worst that a kernel allows, and by what time services
// do, beside suspends and steps.
func TestRaw(t *testing.T) {
	for _, tt := range []struct {
		name              string
		events            []event
		holder, contender time.Duration
		elapsed           time.Duration // holder of the clock that is slewed
	}{
		{"slow", repeat(100, slew(s, s*917/1000)), 100 * s, 100 * s, 91700 * ms},
		{"fast", repeat(100, slew(s, s*1083/1000)), 100 * s, 100 * s, 108300 * ms},
		{"slowest", repeat(100, slew(s, s*2/5)), 100 * s, 100 * s, 40 * s},
		{
			"slow, and a suspend",
			[]event{slew(10*s, 9*s), suspend(time.Hour), slew(10*s, 9*s)},
			time.Hour + 20*s, time.Hour + 20*s, time.Hour + 18*s,
		},
		{"slow, and a step", []event{slew(10*s, 9*s), step(5 * s), slew(10*s, 9*s)}, 25 * s, 20 * s, 23 * s},
		{"fast, and a step back", []event{slew(10*s, 11*s), step(-5 * s), slew(10*s, 11*s)}, 20 * s, 20 * s, 22 * s},
		{
			"slow, and the wall clock set forward at the end of a suspend",
			[]event{slew(10*s, 9*s), unseen(suspend(10*s), step(5*s)), slew(10*s, 9*s)},
			35 * s, 30 * s, 33 * s,
		},
	} {
		m := newMachine()
		elapsed := From(m, Options{})
		raw, ok := elapsed.Raw()
		if !ok || raw.Elapsed() != elapsed {
			t.Fatal("no raw clock, or of another")
		}
		follow(t, tt.name, m, raw, tt.events, tt.holder, tt.contender)
		if got := elapsed.Holder(); got != tt.elapsed {
			t.Errorf("%s: slewed, %v have passed; want %v", tt.name, got, tt.elapsed)
		}
	}
}

// TestRawBegins makes a raw clock when the other has been counting for a while.
func TestRawBegins(t *testing.T) {
	m := newMachine()
	elapsed := From(m, Options{})
	for _, happen := range []event{pass(s), suspend(time.Hour), pass(s), step(time.Hour), pass(s)} {
		happen(m)
		elapsed.Holder()
	}
	raw, _ := elapsed.Raw()
	follow(t, "later", m, raw, []event{pass(s), suspend(s), step(s)}, 3*s, 2*s)
}

// TestRawLost has a raw clock that cannot be read any more: no lease goes on, and no wait ends.
func TestRawLost(t *testing.T) {
	m := newMachine()
	raw, _ := From(m, Options{}).Raw()
	pass(s)(m)
	m.rawless = true
	if h, c := raw.Holder(), raw.Contender(); h < time.Hour*24*365*50 || c > 0 {
		t.Errorf("holder %v, contender %v", h, c)
	}
	if _, ok := From(m, Options{}).Raw(); ok {
		t.Error("a clock that nothing reads")
	}
}

// sourceOnly hides that a source has a raw clock.
type sourceOnly struct{ Source }

// TestNoRaw asks for a raw clock where none can be read: in a bubble, and from a source that has none.
func TestNoRaw(t *testing.T) {
	if _, ok := From(sourceOnly{newMachine()}, Options{}).Raw(); ok {
		t.Error("a source without a raw clock has one")
	}
	synctest.Test(t, func(t *testing.T) {
		if _, ok := New(Options{}).Raw(); ok {
			t.Error("a bubble has one")
		}
	})
	for _, tt := range []struct {
		before, between, after time.Duration
		want                   bool
	}{{1, 1, 1, false}, {1, 2, 3, false}, {1, 1, 3, false}, {1, 3, 3, false}, {2, 1, 3, true}, {1, 4, 3, true}} {
		if distinct(tt.before, tt.between, tt.after) != tt.want {
			t.Errorf("%+v", tt)
		}
	}
}

// TestRealRaw compares the raw clock of this machine with its monotonic clock, which runs at no
// less than 1/MaxSlowdown of its rate.
func TestRealRaw(t *testing.T) {
	elapsed := New(Options{})
	raw, ok := elapsed.Raw()
	if !ok {
		t.Skip("this machine has no raw clock that is known to differ from the monotonic one")
	}
	for range 3 {
		quick, from := elapsed.Holder(), raw.Holder()
		for begun := time.Now(); time.Since(begun) < 5*ms; {
		}
		passed := raw.Holder() - from
		shown := elapsed.Holder() - quick
		if passed <= 0 || shown < passed/MaxSlowdown {
			t.Errorf("%v passed, shown as %v", passed, shown)
		}
	}
}
