// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Run plays seeded schedules of many processes and a store with faults on the
// protocol's own machines, and checks after every step what must always hold.
// Without -seeds and -hours it goes on until it is stopped. The first violation
// ends it with status 1: it prints the seed, shrinks what the seed has chosen, and
// prints what happened.
//
//	run [-seeds N] [-hours H] [-faults LIST] [-first SEED] [-workers N] [-all]
//	run -seed SEED [-trace FILE]
//	run -tape FILE [-trace FILE]
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/internal/sim"
	"github.com/tenurelock/tenure/internal/trace"
)

type options struct {
	seeds, first uint64
	hours        float64
	faults       string
	workers      int
	seed         string
	tape, trace  string
	lines        int
	all          bool
	sessions     bool
	clients      bool
}

func main() {
	var o options
	flag.Uint64Var(&o.seeds, "seeds", 0, "how many schedules to run; 0: until stopped")
	flag.Uint64Var(&o.first, "first", 1, "the first seed")
	flag.Float64Var(&o.hours, "hours", 0, "for how long to run; 0: until stopped")
	flag.StringVar(&o.faults, "faults", "all", "kinds of faults, separated by commas: cutoffs, pauses, crashes, outages, steps, messages, stale, late; or all, or none")
	flag.IntVar(&o.workers, "workers", runtime.NumCPU(), "how many schedules to run at a time")
	flag.StringVar(&o.seed, "seed", "", "replay the schedule of this seed")
	flag.StringVar(&o.tape, "tape", "", "replay the choices in this file, as a failure has printed them")
	flag.StringVar(&o.trace, "trace", "", "write what the model knows of a replay to this file, as lines of JSON")
	flag.IntVar(&o.lines, "lines", 200, "how many of the last lines of a replay to print; 0: all")
	flag.BoolVar(&o.sessions, "sessions", false, "have all schedules use sessions")
	flag.BoolVar(&o.clients, "clients", false, "have all schedules use clients of a lock service")
	flag.BoolVar(&o.all, "all", false, "fail if a transition of the core was not seen")
	flag.Parse()
	debug.SetGCPercent(800) // worlds are small, and many
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "run: unexpected argument %q; see -help\n", flag.Arg(0))
		os.Exit(2)
	}
	os.Exit(run(o, os.Stdout))
}

func run(o options, out io.Writer) int {
	faults, err := sim.ParseFaults(o.faults)
	if err != nil {
		fmt.Fprintf(os.Stderr, "run: -faults: %v\n", err)
		return 2
	}
	if o.workers < 1 || o.hours < 0 {
		fmt.Fprintf(os.Stderr, "run: -workers %d, -hours %v: want one worker at least, and no negative time\n", o.workers, o.hours)
		return 2
	}
	shape := func(c *sim.Config) {
		c.Without = faults.Except()
		c.Sessions = c.Sessions || o.sessions
		if o.clients {
			c.Served()
		}
	}
	switch {
	case o.seed != "":
		var seed uint64
		if _, err := fmt.Sscan(o.seed, &seed); err != nil {
			fmt.Fprintf(os.Stderr, "run: -seed %q is not a whole number\n", o.seed)
			return 2
		}
		return replay(o, out, sim.Seed(seed), shape)
	case o.tape != "":
		b, err := os.ReadFile(o.tape)
		var choices []int
		if err == nil {
			err = json.Unmarshal(b, &choices)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "run: -tape: %v\n", err)
			return 2
		}
		return replay(o, out, sim.Play(choices), shape)
	}
	return explore(o, out, shape)
}

func explore(o options, out io.Writer, shape func(*sim.Config)) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if o.hours > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, time.Duration(o.hours*float64(time.Hour)))
		defer cancel()
	}
	begun := time.Now()
	shown := begun
	sum, failed := sim.Explore(ctx, o.first, o.seeds, o.workers, shape, func(s sim.Sum) {
		if time.Since(shown) >= 10*time.Second {
			shown = time.Now()
			fmt.Fprintf(out, "%d schedules, %.0f a second\n", s.Schedules, float64(s.Schedules)/time.Since(begun).Seconds())
		}
	})
	missing := report(out, sum, time.Since(begun))
	if failed == nil && o.all && missing > 0 {
		fmt.Fprintf(out, "the faults do not reach everything any more\n")
		return 1
	}
	if failed == nil {
		return 0
	}
	fmt.Fprintf(out, "\nseed %d: %s\n", failed.Seed, failed.Err.What)
	tape := sim.Record(sim.Seed(failed.Seed))
	if _, err := sim.RunSource(tape, shape, nil); err == nil {
		fmt.Fprintf(out, "it does not fail again: the simulator itself is at fault\n")
		return 1
	}
	few := sim.Shrink(tape.Choices, failed.Err.Rule, 4000, func(src sim.Source) error {
		_, err := sim.RunSource(src, shape, nil)
		return err
	})
	b, _ := json.Marshal(few)
	fmt.Fprintf(out, "%d choices, shrunk to %d; save this line and replay it with -tape FILE:\n%s\n", len(tape.Choices), len(few), b)
	replay(o, out, sim.Play(few), shape)
	return 1
}

func report(out io.Writer, s sim.Sum, took time.Duration) (unseen int) {
	share := func(n uint64) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(max(1, s.Schedules))) }
	fmt.Fprintf(out, "%d schedules in %.0f s, %.0f a second; %.0f events each, at least %d\n",
		s.Schedules, took.Seconds(), float64(s.Schedules)/took.Seconds(), float64(s.Events)/float64(max(1, s.Schedules)), s.Least)
	fmt.Fprintf(out, "schedules with a takeover %s, a request %s, a late write %s, a wrong clock %s, a step of a wall clock %s, a pause %s, a crash %s, a stale write refused %s\n",
		share(s.WithTakeover), share(s.WithRequest), share(s.WithLateWrite), share(s.WithWrongClock), share(s.WithStep), share(s.WithPause), share(s.WithCrash), share(s.WithRefusal))
	fmt.Fprintf(out, "%d grants, %d of them takeovers; %d tenures hidden by two crashes in a row\n", s.Grants, s.Takeovers, s.Holes)
	seen, all, missing := s.Seen.Coverage()
	fmt.Fprintf(out, "transitions of the core: %d of %d\n", seen, all)
	if len(missing) > 0 {
		fmt.Fprintf(out, "not seen: %s\n", strings.Join(missing, "; "))
	}
	return len(missing)
}

func replay(o options, out io.Writer, src sim.Source, shape func(*sim.Config)) int {
	t := &sim.Trace{}
	if o.trace != "" {
		t.Events = trace.NewRecorder()
	}
	tally, err := sim.RunSource(src, shape, t)
	fmt.Fprint(out, t.Text(o.lines))
	fmt.Fprintf(out, "%d events, %d grants\n", tally.Events, tally.Grants)
	if o.trace != "" {
		if err := write(o.trace, t.Events.Events()); err != nil {
			fmt.Fprintf(os.Stderr, "run: -trace: %v\n", err)
			return 2
		}
	}
	if err != nil {
		return 1
	}
	return 0
}

func write(path string, events []trace.Event) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	return trace.Write(f, events)
}
