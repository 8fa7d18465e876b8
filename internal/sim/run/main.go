// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Run plays seeded schedules of many processes and a store with faults on the protocol's own
// machines, and checks after every step what must always hold. Without -seeds and -hours it
// goes on until it is stopped. The first violation ends it with status 1: it prints the seed,
// shrinks what the seed has chosen, and prints what happened.
//
//	run [-seeds N] [-hours H] [-faults LIST] [-losing] [-first SEED] [-all]
//	run -seed SEED [-losing] [-trace FILE]
//	run -tape FILE [-losing] [-trace FILE]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/internal/sim"
	"github.com/tenurelock/tenure/internal/trace"
)

type options struct {
	seeds, first uint64
	hours        float64
	without      sim.Fault
	losing, all  bool
	src          sim.Source // to replay, or nil
	trace        string
	lines        int
}

func main() {
	var o options
	flag.Uint64Var(&o.seeds, "seeds", 0, "how many schedules to run; 0: until stopped")
	flag.Uint64Var(&o.first, "first", 1, "the first seed")
	flag.Float64Var(&o.hours, "hours", 0, "for how long to run; 0: until stopped")
	flag.Func("faults", "kinds of faults, separated by commas: "+
		"cutoffs, pauses, crashes, outages, steps, messages, stale, late (default: all)", func(list string) error {
		with, err := sim.ParseFaults(list)
		o.without = with.Except()
		return err
	})
	flag.BoolVar(&o.losing, "losing", false, "put all schedules on an engine that loses what it has answered")
	flag.BoolVar(&o.all, "all", false, "fail if a transition of the core was not seen")
	flag.Func("seed", "replay the schedule of this seed", func(s string) error {
		seed, err := strconv.ParseUint(s, 10, 64)
		o.src = sim.Seed(seed)
		return err
	})
	flag.Func("tape", "replay the choices in this file, as a failure has printed them", func(file string) error {
		var choices []int
		b, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(b, &choices)
		}
		o.src = sim.Play(choices)
		return err
	})
	flag.StringVar(&o.trace, "trace", "", "write what the model knows of a replay to this file, as lines of JSON")
	flag.IntVar(&o.lines, "lines", 200, "how many of the last lines of a replay to print; 0: all")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "run: unexpected argument %q; see -help\n", flag.Arg(0))
		os.Exit(2)
	}
	debug.SetGCPercent(800) // worlds are small, and many
	do := o.explore
	if o.src != nil {
		do = func(out io.Writer) bool { return o.replay(out, o.src) }
	}
	if !do(os.Stdout) {
		os.Exit(1)
	}
}

// shape changes what a schedule has drawn.
func (o *options) shape(c *sim.Config) {
	c.Without = o.without
	if o.losing {
		c.OnLosingEngine()
	}
}

// explore runs schedules, and replays the first that fails when it has become small.
func (o *options) explore(out io.Writer) bool {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if o.hours != 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, time.Duration(o.hours*float64(time.Hour)))
		defer cancel()
	}
	begun := time.Now()
	shown := begun
	shape := func(_ uint64, c *sim.Config) { o.shape(c) }
	sum, failed := sim.Explore(ctx, o.first, o.seeds, shape, func(s sim.Sum) {
		if time.Since(shown) >= 10*time.Second {
			shown = time.Now()
			fmt.Fprintf(out, "%d schedules, %.0f a second\n", s.Schedules, float64(s.Schedules)/time.Since(begun).Seconds())
		}
	})
	missing := report(out, sum, time.Since(begun))
	switch {
	case failed == nil && o.all && missing > 0:
		fmt.Fprintf(out, "the faults do not reach everything any more\n")
		return false
	case failed == nil:
		return true
	}
	fmt.Fprintf(out, "\nseed %d: %s\n", failed.Seed, failed.What)
	tape := sim.Record(sim.Seed(failed.Seed))
	run := func(src sim.Source) error {
		_, err := sim.Run(src, o.shape, nil)
		return err
	}
	if run(tape) == nil {
		fmt.Fprintf(out, "it does not fail again: the simulator itself is at fault\n")
		return false
	}
	few := sim.Shrink(tape.Choices, failed.Rule, 4000, run)
	b, _ := json.Marshal(few)
	fmt.Fprintf(out, "%d choices, shrunk to %d; save this line and replay it with -tape FILE:\n%s\n",
		len(tape.Choices), len(few), b)
	return o.replay(out, sim.Play(few))
}

func report(out io.Writer, s sim.Sum, took time.Duration) (unseen int) {
	n := float64(max(1, s.Schedules))
	fmt.Fprintf(out, "%d schedules in %.0f s, %.0f a second; %.0f events each, at least %d\n", s.Schedules, took.Seconds(),
		float64(s.Schedules)/took.Seconds(), float64(s.Events)/n, s.Least)
	for _, of := range slices.Sorted(maps.Keys(s.With)) {
		fmt.Fprintf(out, "%-35s %9d, in %5.1f %% of the schedules\n", of, s.Total[of], 100*float64(s.With[of])/n)
	}
	seen, all, missing := s.Seen.Coverage()
	fmt.Fprintf(out, "transitions of the core: %d of %d\n", seen, all)
	if len(missing) > 0 {
		fmt.Fprintf(out, "not seen: %s\n", strings.Join(missing, "; "))
	}
	return len(missing)
}

func (o *options) replay(out io.Writer, src sim.Source) bool {
	t := &sim.Trace{}
	if o.trace != "" {
		t.Events = trace.NewRecorder()
	}
	tally, violated := sim.Run(src, o.shape, t)
	fmt.Fprint(out, t.Text(o.lines))
	fmt.Fprintf(out, "%d events, %d grants\n", tally.Events, tally.Of[sim.Grant])
	if o.trace != "" {
		file, err := os.Create(o.trace)
		if err == nil {
			err = errors.Join(trace.Write(file, t.Events.Events()), file.Close())
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "run: -trace: %v\n", err)
			return false
		}
	}
	return violated == nil
}
