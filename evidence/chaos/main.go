// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/chaos/replica"
	"github.com/tenurelock/tenure/evidence/chaos/service"
	"github.com/tenurelock/tenure/evidence/chaos/shards"
)

// roles are what this program can be in place of the nemesis.
var roles = map[string]proc.Role{replica.RoleName: replica.Role, readerRole: serveReader}

// workloads are what -workload names, each with flags of its own.
var workloads = map[string]func(ctx context.Context, args []string, out, stderr io.Writer) error{
	"lock": run, "readers": runReaders, "service": service.Run, "shards": shards.Run,
}

func main() {
	maps.Copy(roles, shards.Roles)
	proc.Play(roles)
	proc.Main("chaos", func(ctx context.Context, args []string, out, stderr io.Writer) error {
		name := "lock"
		if len(args) > 1 && (args[0] == "-workload" || args[0] == "--workload") {
			name, args = args[1], args[2:]
		}
		run, known := workloads[name]
		if !known {
			return fmt.Errorf("workload %q is not known: there are %s", name,
				strings.Join(slices.Sorted(maps.Keys(workloads)), ", "))
		}
		return run(ctx, args, out, stderr)
	})
}

// settings are what the command line says.
type settings struct {
	plan
	engines  []string
	duration time.Duration // of all rounds together
	report   string
	log      string
}

// drift is nearly what the locks allow for by default.
const drift = 0.085

func parse(args []string) (*settings, error) {
	s := &settings{}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	engines := flags.String("engines", strings.Join(engineNames(), ","), "`engines` to run on, in turn")
	wrong := flags.String("wrong", "", "a `mistake` to make on purpose: no-check, slow-clock, go-clock, or open-fence")
	flags.DurationVar(&s.duration, "duration", 2*time.Minute, "how long all rounds together take at least")
	flags.DurationVar(&s.Length, "round", 30*time.Second, "how long a round is under faults")
	flags.DurationVar(&s.Lease, "lease", 1500*time.Millisecond, "lease duration")
	flags.IntVar(&s.Replicas, "replicas", 4, "replicas of a round")
	flags.Uint64Var(&s.Seed, "seed", 1, "seed of the first round; the next one has the next seed")
	flags.Float64Var(&s.Drift, "drift", drift, "by what `part` of it the rate of a replica's clocks may differ; the locks allow for 0.09")
	flags.StringVar(&s.report, "report", "chaos.html", "`file` for the report; none if empty")
	flags.StringVar(&s.log, "log", "", "`folder` for all that the replicas say; none if empty")
	flags.Func("faults", "`kinds` of faults, of "+kinds()+"; all if empty", func(text string) error {
		for name := range strings.SplitSeq(text, ",") {
			if meaning[kind(name)] == "" {
				return fmt.Errorf("%q is not known", name)
			}
			s.Only = append(s.Only, kind(name))
		}
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	s.engines = strings.Split(*engines, ",")
	switch w := replica.Wrong(*wrong); w {
	case replica.Right, replica.NoCheck, replica.SlowClock, replica.GoClock:
		s.Wrong = w
	case "open-fence":
		s.Open = true
	default:
		return nil, fmt.Errorf("-wrong %s is not known", w)
	}
	for _, engine := range s.engines {
		if err := checkEngine(engine); err != nil {
			return nil, fmt.Errorf("-engines: %w", err)
		}
	}
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case s.Replicas < 2 || s.Replicas > 9:
		return nil, fmt.Errorf("-replicas %d: want 2 to 9", s.Replicas)
	case s.Lease < 500*time.Millisecond:
		return nil, fmt.Errorf("-lease %v: want 500ms at least, which a busy machine can keep", s.Lease)
	case s.Drift < 0 || s.Drift > 0.5:
		return nil, fmt.Errorf("-drift %v: want 0 to 0.5", s.Drift)
	case s.Length < s.Lease || s.duration <= 0:
		return nil, fmt.Errorf("-round %v, -duration %v: a round takes a lease at least", s.Length, s.duration)
	}
	return s, nil
}

// kinds names the faults that can be chosen.
func kinds() string {
	var names []string
	for k := range meaning {
		if k != start {
			names = append(names, string(k))
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func run(ctx context.Context, args []string, out, _ io.Writer) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	rep := &report{
		Command: strings.Join(append([]string{"go run ./evidence/chaos"}, args...), " "), Began: time.Now(),
		Versions: versions(ctx, s.engines), Whole: len(s.Only) == 0,
	}
	if err := tryNamespace(ctx); err != nil {
		rep.Missing = append(rep.Missing, fmt.Sprintf("replicas in time namespaces of their own: %v", err))
	} else {
		s.namespaces = true
	}
	for n := 0; n == 0 || time.Since(rep.Began) < s.duration; n++ {
		p := s.plan
		p.Engine, p.Seed = s.engines[n%len(s.engines)], s.Seed+uint64(n)
		r, err := p.play(ctx)
		if err != nil {
			return fmt.Errorf("round %d on %s, seed %d: %w", n+1, p.Engine, p.Seed, err)
		}
		if s.log != "" {
			if err := r.save(filepath.Join(s.log, fmt.Sprintf("round-%d.jsonl", n+1))); err != nil {
				return err
			}
		}
		x := r.result(n + 1)
		rep.Rounds = append(rep.Rounds, x)
		x.print(out)
	}
	rep.Took = time.Since(rep.Began)
	rep.print(out)
	if s.report != "" {
		if err := rep.save(s.report); err != nil {
			return err
		}
		fmt.Fprintln(out, "report:", s.report)
	}
	if n := rep.Violations(); n > 0 {
		return fmt.Errorf("%s", plural(n, "violation"))
	}
	return nil
}

// result judges a round.
func (r *round) result(number int) result {
	v := r.judge()
	return result{
		Number: number, Plan: r.plan, Verdict: v, Drawing: r.draw(v), Events: r.events,
		Recovery: r.recovery, Bound: r.bound, Late: r.late, Began: r.began,
	}
}

func (x result) print(out io.Writer) {
	v := x.Verdict
	fmt.Fprintf(out, "round %d: %s, seed %d: %s; %d faults, %d kills, %d stops, %d tenures, %d takeovers, %d operations, %d overlaps; "+
		"late: %d refused by the fence, %d unfenced; a leader after %s\n",
		x.Number, x.Plan.Engine, x.Plan.Seed, plural(len(v.Violations), "violation"), v.AllFaults(), v.Kills, v.Stops,
		v.counts.Tenancies, v.Takeovers, v.Operations, v.Overlaps, v.Refused, v.LatePast, shown(x.Recovery))
	for _, sin := range v.Violations {
		fmt.Fprintf(out, "  %s: %s\n", sin.Sin, sin.Text)
	}
}

func (r *report) print(out io.Writer) {
	t := r.Total()
	fmt.Fprintf(out, "%s in %v: %s\n", plural(len(r.Rounds), "round"), r.Took.Round(time.Second),
		plural(r.Violations(), "violation"))
	fmt.Fprintf(out, "  %d faults; %d kills and %d stops of replicas; %d processes, %d in time namespaces\n",
		t.AllFaults(), t.Kills, t.Stops, t.Lives, t.Namespaces)
	fmt.Fprintf(out, "  %d tenures, %d takeovers; %d operations; %d overlaps\n", t.Tenancies, t.Takeovers,
		t.Operations, t.Overlaps)
	fmt.Fprintf(out, "  late writes stopped by the fence: %d; late writes that reached the unfenced register: %d\n", t.Refused, t.LatePast)
	if missing := r.Unproved(); missing != "" {
		fmt.Fprintf(out, "  nothing shows that these faults had any effect: %s\n", missing)
	}
	for _, missing := range r.Missing {
		fmt.Fprintf(out, "  not available here: %s\n", missing)
	}
}

// tryNamespace returns why this program cannot start a process in a time
// namespace, nil if it can.
func tryNamespace(ctx context.Context) error {
	args, err := (&timespace{Monotonic: 1000, Boot: 2000}).command()
	if err != nil {
		return err
	}
	args = append(args[:len(args)-1], "cat", "/proc/self/timens_offsets")
	text, err := proc.Run(ctx, "", args[0], args[1:]...)
	if err != nil {
		return err
	}
	if !strings.Contains(text, "2000") {
		return fmt.Errorf("unshare has no effect: %q", text)
	}
	return nil
}
