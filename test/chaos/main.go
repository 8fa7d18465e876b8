// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command chaos runs real processes under locks on real engines while a nemesis injects
// the faults that happen to programs, and judges the results. It needs Linux, and its
// engines: scripts/engines install NAME. The workload is what the processes do:
//
//	go run ./test/chaos -duration 10m -engines sqlite,etcd,postgres -seed 1
//	go run ./test/chaos -workload readers -duration 10m
//	go run ./test/chaos -workload once -duration 10m
//	go run ./test/chaos -workload service -duration 10m
//
// Replicas contend for one lock, read and write one register, or run jobs once for each
// occasion; clients in four languages hold a lock through the lock service, half of them under
// a session. They are killed, stopped,
// suspended, cut off from the engine, started in time namespaces; their clocks are moved; the
// engine is stopped, locked, or killed and restarted. docs/evidence/README.md lists
// what is judged; -log keeps the logs of all processes.
//
//	go run ./test/chaos -workload shards
//
// measures a group of package shard under faults. Package trial has the judge of all workloads,
// and package replica the process of all but the service: this program starts itself.
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

	"github.com/tenurelock/tenure/test/chaos/replica"
	"github.com/tenurelock/tenure/test/harness/machine"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/page"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/peers/serve"
	"github.com/tenurelock/tenure/test/peers/service"
)

// roles are what this program can be in place of the nemesis.
var roles = map[string]proc.Role{replica.RoleName: replica.Role, serve.Service.Name: serve.Service.Role}

func main() {
	proc.Play(roles)
	proc.Main(run)
}

// settings are what the command line says.
type settings struct {
	plan
	name     string // of the workload
	engines  []string
	duration time.Duration // of all rounds together
	log      string
	write    bool

	readers, writers int
}

const (
	// drift is nearly what the locks allow for by default.
	drift = 0.085
	// contenders are the replicas of a round that has no readers and writers.
	contenders = 4
	// clientsEach are the clients of a language, and serviceReplicas the replicas of their service.
	clientsEach, serviceReplicas = 2, 3
)

// workloads are what -workload names, each with the flags that have another default there.
var workloads = map[string]map[string]string{
	"lock":    {},
	"readers": {"lease": "2s", "engines": "sqlite,postgres,dynoxide"},
	"once":    {"lease": "2s", "engines": "sqlite,postgres,dynoxide,etcd"},
	"service": {"lease": "2s", "round": "1m", "engines": ""},
	"shards":  {"engines": "sqlite,dynoxide"},
}

func parse(args []string, stderr io.Writer) (*settings, error) {
	s := &settings{}
	s.Drift = drift
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.name, "workload", "lock", "what processes do: lock, readers, once, service or shards")
	engines := flags.String("engines", strings.Join(engineNames(), ","), "`engines` to run on, in turn")
	flags.DurationVar(&s.duration, "duration", 2*time.Minute, "how long all rounds together take at least")
	flags.DurationVar(&s.Length, "round", 30*time.Second, "how long a round is under faults; 1m for the service")
	flags.DurationVar(&s.Lease, "lease", 1500*time.Millisecond, "lease duration; 2s for readers, once and the service")
	flags.Uint64Var(&s.Seed, "seed", 1, "seed of the first round; the next one has the next seed")
	flags.StringVar(&s.log, "log", "", "`folder` for all that the replicas say; none if empty")
	faults := flags.String("faults", "", "`kinds` of faults, as nemesis.go names them, with commas between; all if empty")
	flags.IntVar(&s.readers, "readers", 3, "processes that read")
	flags.IntVar(&s.writers, "writers", 2, "processes that write")
	flags.BoolVar(&s.write, "write", false,
		"write test/chaos/results.json, and a part of docs/evidence: faults.md of the service, performance.md of shards")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if workloads[s.name] == nil || flags.NArg() > 0 {
		return nil, fmt.Errorf("workload %q, %q: there are %s", s.name, flags.Args(),
			strings.Join(slices.Sorted(maps.Keys(workloads)), ", "))
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range workloads[s.name] {
		if !given[name] {
			_ = flags.Set(name, value) // it is a good one
		}
	}
	s.engines = strings.Split(*engines, ",")
	if *faults != "" {
		s.Only = strings.Split(*faults, ",")
	}
	return s, s.check()
}

// check completes the plan, and looks for what no round can be.
func (s *settings) check() error {
	least, lengths := 500*time.Millisecond, time.Duration(1)
	s.Seats = contenders
	switch s.name {
	case "service":
		least, lengths, s.Seats = time.Second, 5, clientsEach*len(service.Kinds)
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
		if isRedis(engine) && engine != "redis-single" && s.name != "lock" {
			return fmt.Errorf("-engines: %s may lose a part of what rests on several records: it has locks alone", engine)
		}
	}
	switch {
	case s.readers < 1 || s.writers < 1:
		return fmt.Errorf("-readers %d, -writers %d: want 1 of each at least", s.readers, s.writers)
	case s.Lease < least:
		return fmt.Errorf("-lease %v: want %v at least, which a busy machine can keep", s.Lease, least)
	case s.Length < lengths*s.Lease || s.duration <= 0:
		return fmt.Errorf("-round %v, -duration %v: a round takes %s at least", s.Length, s.duration,
			page.Plural(int(lengths), "lease"))
	}
	return nil
}

func run(ctx context.Context) {
	s := must.Have(parse(os.Args[1:], os.Stderr))
	if s.name == "shards" {
		found := measureShards(ctx, s.engines, full, proc.Logf)
		fmt.Fprint(os.Stdout, found.markdown())
		if s.write {
			must.Do(parts["shards"].Write(found, found.markdown()))
		}
		must.Do(found.missed())
		return
	}
	rep := &report{Began: time.Now(), Machine: machine.Here(), Whole: len(s.Only) == 0}
	if s.name == "service" {
		dir := must.Have(os.MkdirTemp("", "tenure-chaos-service-"))
		defer func() { _ = os.RemoveAll(dir) }() // it is the system's to clean, then
		s.workload = newClients(ctx, dir)
	} else if err := tryNamespace(ctx); err != nil {
		proc.Logf("no replica is started in a time namespace of its own: %v", err)
	} else {
		s.namespaces = true
	}
	for n := 0; n == 0 || time.Since(rep.Began) < s.duration; n++ {
		p := s.plan
		p.Engine, p.Seed = s.engines[n%len(s.engines)], s.Seed+uint64(n)
		r, err := p.play(ctx)
		if err != nil {
			must.Do(fmt.Errorf("round %d on %s, seed %d: %w", n+1, p.Engine, p.Seed, err))
		}
		if s.log != "" {
			must.Do(r.save(filepath.Join(s.log, fmt.Sprintf("round-%d.json", n+1))))
		}
		x := r.judge(n + 1)
		rep.Rounds = append(rep.Rounds, x)
		fmt.Fprint(os.Stdout, x)
	}
	rep.Took, rep.Machine.LoadAfter = time.Since(rep.Began), machine.Load()
	fmt.Fprint(os.Stdout, rep)
	if n := rep.violations(); n > 0 {
		must.Do(errors.New(page.Plural(n, "violation")))
	}
	if s.write {
		must.Do(parts["service"].Write(rep, rep.markdown()))
	}
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
