// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command chaos has real processes work under locks on real engines, and a nemesis do to
// them what happens to programs, and judges what they did. It needs Linux, and the engines
// that it runs on: scripts/engines install NAME. What the processes do is the workload:
//
//	go run ./test/chaos -duration 10m -engines sqlite,etcd,postgres -seed 1 -report chaos.html
//	go run ./test/chaos -workload readers -duration 10m
//	go run ./test/chaos -workload once -duration 10m
//	go run ./test/chaos -workload service -duration 10m
//
// Replicas contend for one lock, read and write one register, or run jobs once for each
// occasion; clients in three languages hold a lock by the lock service. They are killed, stopped,
// suspended, cut off from the engine, started in time namespaces; their clocks are moved; the
// engine is stopped, locked, or killed and started again. What is
// judged is told in docs/evidence/README.md; -log keeps all that was said and done.
//
//	go run ./test/chaos -workload shards
//
// measures a group of package shard under faults. Package trial has the judge of them all, and
// package replica the process of all but the service: this program starts itself.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/test/bed/machine"
	"github.com/tenurelock/tenure/test/bed/page"
	"github.com/tenurelock/tenure/test/bed/proc"
	"github.com/tenurelock/tenure/test/chaos/replica"
	"github.com/tenurelock/tenure/test/peers"
)

// roles are what this program can be in place of the nemesis.
var roles = map[string]proc.Role{replica.RoleName: replica.Role}

func main() {
	proc.Play(roles)
	proc.Main("chaos", run)
}

// settings are what the command line says.
type settings struct {
	plan
	name     string // of the workload
	engines  []string
	duration time.Duration // of all rounds together
	log      string

	readers, writers int

	clients        []peers.Kind
	each, replicas int // clients of a language, and replicas of the service
	write          bool

	quick bool // of shards
}

// drift is nearly what the locks allow for by default.
const drift = 0.085

// everywhere are the flags of all workloads.
const everywhere = " workload duration round lease seed faults log"

// workloads are what -workload names, each with its other flags, and with the flags that have
// another default there.
var workloads = map[string]struct {
	flags    string
	defaults map[string]string
}{
	"lock":    {"engines drift replicas", nil},
	"readers": {"engines drift readers writers", map[string]string{"lease": "2s", "engines": "sqlite,postgres,dynoxide"}},
	"once":    {"engines drift replicas", map[string]string{"lease": "2s", "engines": "sqlite,postgres,dynoxide,etcd"}},
	"service": {"replicas clients each write", map[string]string{"lease": "2s", "round": "1m", "replicas": "3"}},
	"shards":  {"engines quick write", map[string]string{"engines": "sqlite,dynoxide"}},
}

func parse(args []string, stderr io.Writer) (*settings, error) {
	s := &settings{}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.name, "workload", "lock", "what processes do: lock, readers, once, service or shards")
	engines := flags.String("engines", strings.Join(engineNames(), ","), "`engines` to run on, in turn")
	flags.DurationVar(&s.duration, "duration", 2*time.Minute, "how long all rounds together take at least")
	flags.DurationVar(&s.Length, "round", 30*time.Second, "how long a round is under faults; 1m for the service")
	flags.DurationVar(&s.Lease, "lease", 1500*time.Millisecond, "lease duration; 2s for readers, once and the service")
	flags.IntVar(&s.replicas, "replicas", 4, "replicas of a round; 3 of the service")
	flags.Uint64Var(&s.Seed, "seed", 1, "seed of the first round; the next one has the next seed")
	flags.Float64Var(&s.Drift, "drift", drift,
		"by what `part` of it the rate of a replica's clocks may differ; the locks allow for 0.09")
	flags.StringVar(&s.log, "log", "", "`folder` for all that the replicas say; none if empty")
	faults := flags.String("faults", "", "`kinds` of faults, of "+strings.Join(slices.Sorted(maps.Keys(traits)), ", ")+
		"; all if empty")
	flags.IntVar(&s.readers, "readers", 3, "processes that read")
	flags.IntVar(&s.writers, "writers", 2, "processes that write")
	clients := flags.String("clients", "python,typescript,java", "languages of the clients of the service")
	flags.IntVar(&s.each, "each", 2, "how many clients of each language")
	flags.BoolVar(&s.write, "write", false,
		"write test/chaos/results.json, and a part of docs/evidence: faults.md of the service, performance.md of shards")
	flags.BoolVar(&s.quick, "quick", false, "look whether all of it works with shards; the times mean nothing then")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	of, known := workloads[s.name]
	if !known {
		return nil, fmt.Errorf("workload %q is not known: there are %s", s.name,
			strings.Join(slices.Sorted(maps.Keys(workloads)), ", "))
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	given, may := map[string]bool{}, strings.Fields(of.flags+everywhere)
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name := range given {
		if !slices.Contains(may, name) {
			return nil, fmt.Errorf("-%s is not for the workload %s", name, s.name)
		}
	}
	for name, value := range of.defaults {
		if !given[name] {
			_ = flags.Set(name, value) // it is a good one
		}
	}
	s.engines = strings.Split(*engines, ",")
	if *faults != "" {
		s.Only = strings.Split(*faults, ",")
	}
	for _, name := range s.Only {
		if traits[name].meaning == "" {
			return nil, fmt.Errorf("-faults: %q is not known", name)
		}
	}
	for name := range strings.SplitSeq(*clients, ",") {
		s.clients = append(s.clients, peers.Kind(name))
	}
	return s, s.check()
}

// check completes the plan, and looks for what no round can be.
func (s *settings) check() error {
	least, lengths, few := 500*time.Millisecond, time.Duration(1), 2
	s.Seats = s.replicas
	switch s.name {
	case "service":
		least, lengths, few, s.Seats = time.Second, 5, 1, s.each*len(s.clients)
		s.engines = []string{"service"}
	case "readers":
		s.Seats = s.readers + s.writers
		s.workload = newReplicas(s.writers, false)
	default:
		s.workload = newReplicas(0, s.name == "once")
	}
	for _, engine := range s.engines {
		if err := checkEngine(engine); err != nil && s.name != "service" {
			return fmt.Errorf("-engines: %w", err)
		}
	}
	switch {
	case s.name != "readers" && (s.replicas < few || s.replicas > 9):
		return fmt.Errorf("-replicas %d: want %d to 9", s.replicas, few)
	case s.each < 1 || s.each > 9:
		return fmt.Errorf("-each %d: want 1 to 9", s.each)
	case s.readers < 1 || s.writers < 1:
		return fmt.Errorf("-readers %d, -writers %d: want 1 of each at least", s.readers, s.writers)
	case s.Lease < least:
		return fmt.Errorf("-lease %v: want %v at least, which a busy machine can keep", s.Lease, least)
	case s.Drift < 0 || s.Drift > 0.5:
		return fmt.Errorf("-drift %v: want 0 to 0.5", s.Drift)
	case s.Length < lengths*s.Lease || s.duration <= 0:
		return fmt.Errorf("-round %v, -duration %v: a round takes %s at least", s.Length, s.duration,
			page.Plural(int(lengths), "lease"))
	}
	return nil
}

func run(ctx context.Context, args []string, out, stderr io.Writer) error {
	s, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if s.name == "shards" {
		return s.runShards(ctx, out, stderr)
	}
	rep := &report{
		Command: strings.Join(append([]string{"go run ./test/chaos"}, args...), " "), Began: time.Now(),
		Machine: machine.Here(), Replicas: s.replicas, Whole: len(s.Only) == 0,
	}
	if s.name == "service" {
		dir, err := os.MkdirTemp("", "tenure-chaos-service-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }() // it is the system's to clean, then
		s.workload, err = newClients(ctx, dir, s.clients, s.each, s.replicas)
		if err != nil {
			return err
		}
	} else {
		if err := tryNamespace(ctx); err != nil {
			rep.Missing = fmt.Sprintf("replicas in time namespaces of their own: %v", err)
		}
		s.namespaces = rep.Missing == ""
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
		fmt.Fprint(out, x)
	}
	rep.Took, rep.Machine.LoadAfter = time.Since(rep.Began), machine.Load()
	fmt.Fprint(out, rep)
	if n := rep.violations(); n > 0 {
		return errors.New(page.Plural(n, "violation"))
	}
	if !s.write {
		return nil
	}
	return publish(ctx, "service", rep, rep.markdown())
}

func (s *settings) runShards(ctx context.Context, out, stderr io.Writer) error {
	size := full
	if s.quick {
		size = quick
	}
	found, err := measureShards(ctx, s.engines, size, func(format string, args ...any) {
		fmt.Fprintf(stderr, "shards: "+format+"\n", args...)
	})
	if err != nil {
		return err
	}
	fmt.Fprint(out, found.markdown())
	if s.write {
		err = publish(ctx, "shards", found, found.markdown())
	}
	return errors.Join(err, found.missed())
}

// publish writes what was found as a part of the results, and the tables into its page.
func publish(ctx context.Context, name string, found any, tables string) error {
	root, err := proc.ModuleDir(ctx, thisModule)
	if err != nil {
		return err
	}
	return page.PublishPart(name, found, tables, command+name, filepath.Join(root, resultsFile),
		filepath.Join(root, pages[name]))
}

// tryNamespace returns why this program cannot start a process in a time
// namespace, nil if it can.
func tryNamespace(ctx context.Context) error {
	args := (&timespace{Monotonic: 1000, Boot: 2000}).command()
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
