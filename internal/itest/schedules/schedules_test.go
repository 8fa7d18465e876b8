// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package schedules_test

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure/internal/itest/schedules"
)

var (
	first    = flag.Uint64("first", 1, "the first seed")
	seeds    = flag.Uint64("seeds", 20, "how many schedules to run; 0: until stopped")
	duration = flag.Duration("for", 0, "for how long to run schedules; 0: as many as -seeds says")
	one      = flag.Uint64("seed", 0, "run the schedule of this seed alone, and print what happens")
	lines    = flag.Int("lines", 150, "how many of the last lines of a schedule to print when it fails; 0: all")
	shrink   = flag.Int("shrink", 40, "how many shorter schedules to try when one fails")
)

// One processor, so that a seed gives the same schedule again, and no
// collection of garbage in the middle of one.
func TestMain(m *testing.M) {
	flag.Parse()
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(1 << 30)
	os.Exit(m.Run())
}

// run carries out a plan in a bubble.
func run(t *testing.T, p *schedules.Plan) (r schedules.Result) {
	t.Helper()
	runtime.GC()
	cryptotest.SetGlobalRandom(t, p.Seed)
	t.Run(fmt.Sprint("seed=", p.Seed), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { r = schedules.Run(t, p) })
	})
	return r
}

func TestSchedules(t *testing.T) {
	if *one != 0 {
		p := schedules.NewPlan(*one)
		r := run(t, p)
		t.Logf("%v\n%s\n%v", p, strings.Join(r.Log, "\n"), r.Tally)
		if len(r.Wrong) > 0 {
			t.Errorf("seed %d:\n%s", *one, strings.Join(r.Wrong, "\n"))
		}
		return
	}
	begun := time.Now()
	sum := map[string]int{}
	n := uint64(0)
	for ; (*seeds == 0 || n < *seeds || *duration > 0) && (*duration == 0 || time.Since(begun) < *duration); n++ {
		p := schedules.NewPlan(*first + n)
		r := run(t, p)
		for what, count := range r.Tally {
			sum[what] += count
		}
		if len(r.Wrong) > 0 {
			failed(t, p, r)
			return
		}
		if t.Failed() {
			return // something was left behind
		}
	}
	t.Logf("%d schedules in %v: %v", n, time.Since(begun).Round(time.Millisecond), sum)
}

// failed prints a schedule that failed, as short as it could be made.
func failed(t *testing.T, p *schedules.Plan, r schedules.Result) {
	t.Helper()
	p, r = shorten(t, p, r)
	var text strings.Builder
	fmt.Fprintf(&text, "%vsteps:\n", p)
	for _, s := range p.Steps {
		fmt.Fprintf(&text, "  %v\n", s)
	}
	log := r.Log
	if *lines > 0 && len(log) > *lines {
		log = log[len(log)-*lines:]
	}
	fmt.Fprintf(&text, "what happened last:\n%s\n", strings.Join(log, "\n"))
	t.Errorf("%s\nseed %d:\n%s\nrun it alone: go test ./internal/itest/schedules -run TestSchedules -v -args -seed %d",
		text.String(), p.Seed, strings.Join(r.Wrong, "\n"), p.Seed)
}

// shorten leaves out steps as long as the schedule still fails.
func shorten(t *testing.T, p *schedules.Plan, r schedules.Result) (*schedules.Plan, schedules.Result) {
	t.Helper()
	tries := *shrink
	for size := len(p.Steps) / 2; size > 0 && tries > 0; size /= 2 {
		for from := 0; from < len(p.Steps) && tries > 0; {
			tries--
			shorter := *p
			shorter.Steps = slices.Delete(slices.Clone(p.Steps), from, min(from+size, len(p.Steps)))
			if again := run(t, &shorter); len(again.Wrong) > 0 {
				p, r = &shorter, again
			} else {
				from += size
			}
		}
	}
	return p, r
}

// The same seed gives the same plan, and the same schedule for a good part of it:
// the order of goroutines that become ready at one instant is the runtime's.
func TestSeedsReplay(t *testing.T) {
	same, all := 0, 0
	for seed := uint64(1); seed <= 4; seed++ {
		p, q := schedules.NewPlan(seed), schedules.NewPlan(seed)
		if !reflect.DeepEqual(p, q) {
			t.Fatalf("seed %d gives two plans:\n%v\n%v", seed, p, q)
		}
		a, b := run(t, p), run(t, q)
		n := 0
		for n < min(len(a.Log), len(b.Log)) && a.Log[n] == b.Log[n] {
			n++
		}
		t.Logf("seed %d: %d of %d lines are the same", seed, n, len(a.Log))
		same, all = same+n, all+len(a.Log)
	}
	if same < all/10 {
		t.Errorf("of %d lines only %d are the same", all, same)
	}
}
