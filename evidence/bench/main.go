// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command bench measures Tenure beside two other lock clients, cirello.io/dynamolock
// and com.amazonaws:dynamodb-lock-client, on one DynamoDB engine in one run.
//
//	scripts/engines run dynoxide -- go run ./evidence/bench -json evidence/bench/results.json -markdown docs/evidence/performance.md
//
// The clients run as processes, each kind behind a gate of its own that counts
// its requests; from these follow units and prices. Throughput alone is measured
// without the gate.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/machine"
	"github.com/tenurelock/tenure/evidence/bed/page"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
)

func main() {
	proc.Play(roles)
	proc.Main("bench", run)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var (
		small   = flags.Bool("quick", false, "look whether all of it works; the times mean nothing then")
		toJSON  = flags.String("json", "", "write what was found to this `file`")
		toPage  = flags.String("markdown", "", "write the tables into this `file`, between its marks")
		engine  = flags.String("engine", os.Getenv(dynamo.EngineEnv), "the `URL` of a DynamoDB engine")
		clients = flags.String("clients", strings.Join(clientNames, ","), "which clients to measure")
		list    = flags.String("steps", stepNames(), "which steps to make")
	)
	if err := flags.Parse(args); err != nil {
		return err
	}
	steps, err := chosen(*list)
	if err != nil {
		return err
	}
	if *engine == "" {
		return dynamo.NoEngine("bench")
	}
	began := time.Now()
	r := &rig{engine: *engine, db: dynamo.Connect(*engine), size: full}
	if *small {
		r.size = quick
	}
	r.report = &report{
		Date: began.UTC().Format(time.DateTime) + " UTC", Machine: machine.Here(), Clients: map[string]string{}, Quick: *small,
		Units: gate.UnitRule, Prices: gate.PriceSource,
	}
	r.say = func(format string, args ...any) { fmt.Fprintf(stderr, "bench: "+format+"\n", args...) }
	if r.report.Engine, err = machine.Engine(ctx, *engine); err != nil {
		return err
	}
	if r.clients, err = build(ctx, strings.Split(*clients, ",")); err != nil {
		return err
	}
	for _, c := range r.clients {
		r.report.Order = append(r.report.Order, string(c.Kind))
	}
	if err := r.make(ctx, steps); err != nil {
		return err
	}
	r.report.Largest, r.report.Took = r.largest, time.Since(began).Seconds()
	r.report.Machine.LoadAfter = machine.Load()
	return r.report.write(stdout, *toJSON, *toPage)
}

// build makes the programs of the clients.
func build(ctx context.Context, names []string) (clients []*peers.Program, err error) {
	for _, name := range names {
		var c *peers.Program
		switch name {
		case tenureName, dynamolockName:
			c = peers.Own(peers.Kind(name))
		case javaName:
			c, err = peers.BuildJava(ctx)
		default:
			err = fmt.Errorf("there is no client %q; there are %s", name, strings.Join(clientNames, ","))
		}
		if err != nil {
			return nil, err
		}
		clients = append(clients, c)
	}
	return clients, nil
}

// command makes the part of docs/evidence/performance.md that is made.
const command = "make bench"

// write writes the tables to stdout, or to a page, and everything as JSON.
func (r *report) write(stdout io.Writer, toJSON, toPage string) error {
	return page.Publish(r, r.markdown(), command, stdout, toJSON, toPage)
}

// step is a part of a run that can be asked for by name.
type step struct {
	name string
	run  func(context.Context, *rig) error
	// quiet steps wait for most of the time, and count: they are made at once.
	quiet bool
}

var steps = []step{
	{"single", single, false},
	{"variants", variants, false},
	{"takeover", takeover, true},
	{"waiters", waiters, true},
	{"month", months, true},
	{"hold", hold, false},
	{"processes", processes, false},
	{"handover", handover, false},
	{"bell", rung, false},
	{"failover", failover, false},
	{"throughput", throughput, false},
	{"session", sessions, false},
}

// make makes steps, quiet neighbours at once, and puts what they found in order.
func (r *rig) make(ctx context.Context, chosen []step) error {
	for len(chosen) > 0 {
		n := max(1, slices.IndexFunc(append(slices.Clone(chosen), step{}), func(s step) bool { return !s.quiet }))
		err := wait.AtOnce(ctx, n, n, func(ctx context.Context, i int) error {
			start := time.Now()
			if err := chosen[i].run(ctx, r); err != nil {
				return fmt.Errorf("%s: %w", chosen[i].name, err)
			}
			r.say("%s: %.1f s", chosen[i].name, time.Since(start).Seconds())
			return nil
		})
		if err != nil {
			return err
		}
		chosen = chosen[n:]
	}
	place := func(r row) int { return slices.IndexFunc(steps, func(s step) bool { return s.name == r.Step }) }
	slices.SortStableFunc(r.report.Rows, func(a, b row) int { return place(a) - place(b) })
	return nil
}

func stepNames() string {
	var names []string
	for _, s := range steps {
		names = append(names, s.name)
	}
	return strings.Join(names, ",")
}

// chosen returns the steps of a list.
func chosen(list string) ([]step, error) {
	var chosen []step
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(steps, func(s step) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no step %q; there are %s", name, stepNames())
		}
		chosen = append(chosen, steps[i])
	}
	return chosen, nil
}
