// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package service is the workload of chaos in which programs in Python, TypeScript and Java
// hold one lock in turn, by a lock service of three replicas, while a nemesis does to all of
// them what happens to programs and networks: clients and replicas are killed, stopped and
// started again; the network is cut; the store is slow; a gate before each client loses,
// delays, doubles, replays and cuts calls, and answers in the place of the service. The
// holder writes to a resource behind a fence. What the clients, the resource and the
// service's own history say of it is judged.
package service

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/machine"
	"github.com/tenurelock/tenure/evidence/bed/page"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/service"
)

// thisModule is where the results stand.
const thisModule = "github.com/tenurelock/tenure/evidence"

// settings are what the command line says.
type settings struct {
	plan
	duration time.Duration // of all rounds together
	kinds    []peers.Kind
	each     int
	write    bool
}

func parse(args []string, stderr io.Writer) (*settings, error) {
	s := &settings{}
	flags := flag.NewFlagSet("chaos -workload service", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var names []string
	for _, kind := range service.Kinds {
		names = append(names, string(kind))
	}
	clients := flags.String("clients", strings.Join(names, ","), "languages of the clients")
	flags.IntVar(&s.each, "each", 2, "how many clients of each language")
	flags.DurationVar(&s.duration, "duration", 2*time.Minute, "how long all rounds together take at least")
	flags.DurationVar(&s.Length, "round", time.Minute, "how long a round is under faults")
	flags.DurationVar(&s.Lease, "lease", 2*time.Second, "lease duration")
	flags.IntVar(&s.Replicas, "replicas", 3, "replicas of the service")
	flags.Uint64Var(&s.Seed, "seed", 1, "seed of the first round; the next one has the next seed")
	flags.BoolVar(&s.write, "write", false,
		"write evidence/chaos/service/results.json, and its part of docs/evidence/faults.md")
	flags.Func("faults", "`names` of faults, with commas between; all if empty", func(text string) error {
		for name := range strings.SplitSeq(text, ",") {
			if !slices.ContainsFunc(faults, func(f fault) bool { return f.name == name }) {
				return fmt.Errorf("%q is not known", name)
			}
			s.Only = append(s.Only, name)
		}
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(*clients, ",") {
		s.kinds = append(s.kinds, peers.Kind(name))
	}
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case s.Replicas < 1 || s.Replicas > 9:
		return nil, fmt.Errorf("-replicas %d: want 1 to 9", s.Replicas)
	case s.each < 1 || s.each > 9:
		return nil, fmt.Errorf("-each %d: want 1 to 9", s.each)
	case s.Lease < time.Second:
		return nil, fmt.Errorf("-lease %v: want 1s at least, which a busy machine can keep", s.Lease)
	case s.Length < 5*s.Lease || s.duration <= 0:
		return nil, fmt.Errorf("-round %v, -duration %v: a round takes five leases at least", s.Length, s.duration)
	}
	return s, nil
}

// Run runs what the arguments say.
func Run(ctx context.Context, args []string, out, stderr io.Writer) error {
	s, err := parse(args, stderr)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "tenure-chaos-service-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is the system's to clean, then
	if s.Tenured, err = service.BuildTenured(ctx, dir); err != nil {
		return err
	}
	began := time.Now()
	r := &report{
		Date: began.UTC().Format(time.DateTime) + " UTC", Machine: machine.Here(), Lease: s.Lease,
		Replicas: s.Replicas, Clients: s.each * len(s.kinds), Versions: map[string]string{},
	}
	if err := s.build(ctx, r); err != nil {
		return err
	}
	for n := 0; n == 0 || time.Since(began) < s.duration; n++ {
		p := s.plan
		p.Seed += uint64(n)
		v, err := p.play(ctx)
		if err != nil {
			return fmt.Errorf("seed %d: %w", p.Seed, err)
		}
		x := result{p.Seed, p.Length, *v}
		x.show(out)
		r.Rounds = append(r.Rounds, x)
	}
	r.Took, r.Machine.LoadAfter = time.Since(began), machine.Load()
	if wrong := r.wrong(); len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	if !s.write {
		return nil
	}
	root, err := proc.ModuleDir(ctx, thisModule)
	if err != nil {
		return err
	}
	return page.Publish(r, r.markdown(), command, out, filepath.Join(root, resultsFile),
		filepath.Join(root, pageFile))
}

// build builds the clients, and asks them what they run on.
func (s *settings) build(ctx context.Context, r *report) error {
	for _, kind := range s.kinds {
		program, err := service.Build(ctx, kind)
		if err != nil {
			return err
		}
		one, err := program.Start(ctx)
		if err != nil {
			return err
		}
		r.Versions[string(kind)] = one.Ready.Runtime
		one.Kill()
		for range s.each {
			s.Programs = append(s.Programs, program)
		}
	}
	return nil
}
