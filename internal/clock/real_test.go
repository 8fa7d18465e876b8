// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// TestRealClocks lets some time pass, without sleeping, on the machine's own
// clocks. It would fail if somebody set the time within these milliseconds.
func TestRealClocks(t *testing.T) {
	for _, tt := range []struct {
		name  string
		clock Clock
	}{
		{"New", New(Options{})},
		{"New, trusting", New(Options{TrustBootClock: true})},
		{"From System", From(System(), Options{})},
		{"Go", Go()},
	} {
		for what, ask := range map[string]func() time.Duration{"holder": tt.clock.Holder, "contender": tt.clock.Contender} {
			outer := time.Now()
			from := ask()
			inner := time.Now()
			for time.Since(inner) < 5*ms {
				runtime.Gosched()
			}
			least := time.Since(inner)
			passed := ask() - from
			most := time.Since(outer)
			if passed < least-tolerance || passed > most+tolerance {
				t.Errorf("%s: %s advanced by %v; time.Now by %v to %v", tt.name, what, passed, least, most)
			}
		}
	}
}

// TestRealBootClock finds the boot clock readable and in step with the others.
func TestRealBootClock(t *testing.T) {
	if runtime.GOOS != "linux" {
		if _, ok := readBoot(); ok {
			t.Fatalf("a boot clock on %s", runtime.GOOS)
		}
		t.Skip("only Linux has a boot clock")
	}
	src := System()
	first, second := src.Read(), src.Read()
	for _, r := range []Reading{first, second} {
		if !r.HasBoot || r.Boot <= 0 {
			t.Fatalf("boot clock: %+v", r)
		}
	}
	boot, mono := second.Boot-first.Boot, second.Mono-first.Mono
	if off := (boot - mono).Abs(); off > first.Span+second.Span {
		t.Errorf("boot advanced by %v, mono by %v, more than the spans %v and %v apart", boot, mono, first.Span, second.Span)
	}
}

// TestBootClockIsUptime compares with the uptime that the kernel tells, which is
// the boot clock too. On a machine that never slept the monotonic clock says the
// same; "unshare --time --boottime 1000000 go test" makes the difference.
func TestBootClockIsUptime(t *testing.T) {
	before, ok := readBoot()
	text, err := os.ReadFile("/proc/uptime")
	after, _ := readBoot()
	if !ok || err != nil {
		t.Skipf("no boot clock (%v), or no uptime: %v", ok, err)
	}
	var uptime float64
	if _, err := fmt.Sscan(string(text), &uptime); err != nil {
		t.Fatal(err)
	}
	const rounding = 10 * ms
	if got := time.Duration(uptime * float64(s)); got < before-rounding || got > after+rounding {
		t.Errorf("uptime %v; boot clock %v to %v", got, before, after)
	}
}

func TestNoAllocations(t *testing.T) {
	machine, golang := New(Options{}), Go()
	raw, ok := machine.Raw()
	if !ok {
		raw, _ = From(newMachine(), Options{}).Raw()
	}
	m := newMachine()
	torn := From(m, Options{})
	m.torn, m.gap = math.MaxInt, 5*ms
	for _, tt := range []struct {
		name string
		f    func()
	}{
		{"Holder", func() { machine.Holder() }},
		{"Contender", func() { machine.Contender() }},
		{"Go", func() { golang.Holder() }},
		{"Read", func() { machine.system.Read() }},
		{"Raw", func() { _, _ = raw.Holder(), raw.Contender() }},
		{"slow path that settles nothing", func() { torn.Holder() }},
	} {
		if n := testing.AllocsPerRun(1000, tt.f); n != 0 {
			t.Errorf("%s: %v allocations", tt.name, n)
		}
	}
}

// TestBubble reads the time of bubbles by a clock that was made outside of them all,
// and by another that was made in an earlier bubble.
func TestBubble(t *testing.T) {
	outside := Go()
	former := outside
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			for i := range 3 {
				want := time.Duration(i) * time.Hour
				for name, clock := range map[string]Clock{"made here": Go(), "made outside": outside, "made in a bubble before": former} {
					if h, c := clock.Holder(), clock.Contender(); h != want || c != want {
						t.Errorf("%s: holder %v, contender %v; want %v", name, h, c, want)
					}
				}
				time.Sleep(time.Hour)
			}
			former = Go()
		})
	}
	before := time.Since(processStart)
	got := former.Holder()
	if after := time.Since(processStart); got < before || got > after || got <= 0 {
		t.Errorf("made in a bubble, used outside: %v; want %v to %v", got, before, after)
	}
}

// TestBubbleOfAges lets a bubble's time go beyond what time.Now has a monotonic
// part for.
func TestBubbleOfAges(t *testing.T) {
	const century = 100 * 365 * 24 * time.Hour
	synctest.Test(t, func(t *testing.T) {
		clock := Go()
		for i := range 3 {
			if got, want := clock.Holder(), time.Duration(i)*century; got != want {
				t.Errorf("%v; want %v", got, want)
			}
			time.Sleep(century)
		}
	})
}

func TestInBubble(t *testing.T) {
	if InBubble() {
		t.Error("in a bubble, outside of all")
	}
	synctest.Test(t, func(t *testing.T) {
		for range 2 {
			if !InBubble() {
				t.Errorf("outside, in a bubble at %v", time.Now())
			}
			time.Sleep(150 * 365 * 24 * time.Hour)
		}
	})
	if InBubble() {
		t.Error("in a bubble, when that has ended")
	}
}
