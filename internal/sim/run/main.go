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
	"bytes"
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
	seeds, first           uint64
	hours                  float64
	faults                 string
	workers, lines         int
	seed, tape, trace      string
	all, sessions, clients bool

	without sim.Fault
}

func main() {
	var o options
	flag.Uint64Var(&o.seeds, "seeds", 0, "how many schedules to run; 0: until stopped")
	flag.Uint64Var(&o.first, "first", 1, "the first seed")
	flag.Float64Var(&o.hours, "hours", 0, "for how long to run; 0: until stopped")
	flag.StringVar(&o.faults, "faults", "all", "kinds of faults, separated by commas: "+
		"cutoffs, pauses, crashes, outages, steps, messages, stale, late; or all, or none")
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
	src, err := o.source()
	ok := false
	switch {
	case err != nil:
		fmt.Fprintf(os.Stderr, "run: %v; see -help\n", err)
		os.Exit(2)
	case src == nil:
		ok = o.explore(os.Stdout)
	default:
		ok = o.replay(os.Stdout, src)
	}
	if !ok {
		os.Exit(1)
	}
}

// source checks the flags, and returns the source to replay, nil if there is none.
func (o *options) source() (src sim.Source, err error) {
	if o.without, err = sim.ParseFaults(o.faults); err != nil {
		return nil, fmt.Errorf("-faults: %w", err)
	}
	o.without = o.without.Except()
	switch {
	case flag.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	case o.workers < 1 || o.hours < 0:
		return nil, fmt.Errorf("-workers %d, -hours %v: want one worker at least, and no negative time", o.workers, o.hours)
	case o.seed != "":
		var seed uint64
		if _, err := fmt.Sscan(o.seed, &seed); err != nil {
			return nil, fmt.Errorf("-seed %q is not a whole number", o.seed)
		}
		return sim.Seed(seed), nil
	case o.tape != "":
		var choices []int
		b, err := os.ReadFile(o.tape)
		if err == nil {
			err = json.Unmarshal(b, &choices)
		}
		if err != nil {
			return nil, fmt.Errorf("-tape: %w", err)
		}
		return sim.Play(choices), nil
	}
	return nil, nil
}

// shape changes what a schedule has drawn.
func (o *options) shape(c *sim.Config) {
	c.Without = o.without
	c.Sessions = c.Sessions || o.sessions
	if o.clients {
		c.Served()
	}
}

// explore runs schedules, and replays the first that fails when it has become small.
func (o *options) explore(out io.Writer) bool {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if o.hours > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, time.Duration(o.hours*float64(time.Hour)))
		defer cancel()
	}
	begun := time.Now()
	shown := begun
	shape := func(_ uint64, c *sim.Config) { o.shape(c) }
	sum, failed := sim.Explore(ctx, o.first, o.seeds, o.workers, shape, func(s sim.Sum) {
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
		_, err := sim.RunSource(src, o.shape, nil)
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
	fmt.Fprintf(out, "%d schedules in %.0f s, %.0f a second; %.0f events each, at least %d\n", s.Schedules, took.Seconds(),
		float64(s.Schedules)/took.Seconds(), float64(s.Events)/float64(max(1, s.Schedules)), s.Least)
	share := func(of sim.Happening) float64 { return 100 * float64(s.With[of]) / float64(max(1, s.Schedules)) }
	fmt.Fprintf(out, "schedules with a takeover %.1f %%, a request %.1f %%, a late write %.1f %%, a wrong clock %.1f %%, "+
		"a step of a wall clock %.1f %%, a pause %.1f %%, a crash %.1f %%, a stale write refused %.1f %%\n",
		share(sim.Takeover), share(sim.Request), share(sim.LateWrite), share(sim.WrongClock),
		share(sim.Step), share(sim.Pause), share(sim.Crash), share(sim.Refusal))
	fmt.Fprintf(out, "%d grants, %d of them takeovers; %d terms hidden by two crashes in a row\n",
		s.Total[sim.Grant], s.Total[sim.Takeover], s.Total[sim.Hole])
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
	tally, violated := sim.RunSource(src, o.shape, t)
	fmt.Fprint(out, t.Text(o.lines))
	fmt.Fprintf(out, "%d events, %d grants\n", tally.Events, tally.Of[sim.Grant])
	if o.trace != "" {
		var b bytes.Buffer
		err := trace.Write(&b, t.Events.Events())
		if err == nil {
			err = os.WriteFile(o.trace, b.Bytes(), 0o600)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "run: -trace: %v\n", err)
			return false
		}
	}
	return violated == nil
}
