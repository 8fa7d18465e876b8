// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command bench measures Tenure beside its peers. Its parts are
//
//   - bench: two other lock clients, cirello.io/dynamolock and
//     com.amazonaws:dynamodb-lock-client, on one DynamoDB engine;
//   - native: the locks that etcd, ZooKeeper, PostgreSQL and Kubernetes bring, or their clients;
//   - load: the lock service beside the JSON interfaces of etcd and Consul.
//
// A run writes its part of results.json and of docs/evidence/performance.md, and leaves the others:
//
//	scripts/engines run dynoxide -- go run ./evidence/bench -json evidence/bench/results.json \
//	    -markdown docs/evidence/performance.md bench
//
// What is compared takes turns, so that a ratio is of two measurements within seconds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/bed/machine"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/peers/serve"
)

// parts are what can be measured, by the target of the Makefile.
var parts = map[string]func(ctx context.Context, o *options, p *part) error{
	"bench": measureClients, "native": measureEngines, "load": measureService,
}

// options are what a run was asked for.
type options struct {
	size    size
	engine  string // of DynamoDB
	clients string
	steps   string
	consul  string
	say     func(format string, args ...any)
}

func main() {
	proc.Play(serve.Roles)
	proc.Main("bench", run)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	o := &options{size: full}
	o.say = func(format string, args ...any) { fmt.Fprintf(stderr, "bench: "+format+"\n", args...) }
	var (
		small  = flags.Bool("quick", false, "look whether all of it works; the times mean nothing then")
		toJSON = flags.String("json", "", "write what was found into this `file`, which may have other parts")
		toPage = flags.String("markdown", "", "write the tables into this `file`, between the marks of the part")
		locks  = flags.Int("locks", 0, "in the step session, hold so many `locks` of Tenure, and nothing else")
		hold   = flags.Duration("hold", 0, "how long the locks of the step session are held, if not as by default")
	)
	flags.StringVar(&o.engine, "engine", os.Getenv(dynamo.EngineEnv), "the `URL` of a DynamoDB engine")
	flags.StringVar(&o.clients, "clients", strings.Join(clientNames, ","), "which clients to measure on DynamoDB")
	flags.StringVar(&o.steps, "steps", stepNames(), "which steps to make on DynamoDB")
	flags.StringVar(&o.consul, "consul", "", "the `program` consul; without it there is none beside the lock service")
	if err := flags.Parse(args); err != nil {
		return err
	}
	measure := parts[flags.Arg(0)]
	if measure == nil || flags.NArg() > 1 {
		return fmt.Errorf("want one part: bench, native or load, after the flags; got %q", flags.Args())
	}
	if *small {
		o.size = quick
	}
	if *locks > 0 {
		o.clients, o.size.crowds = tenureName, map[string][]int{tenureName: {*locks}}
	}
	if *hold > 0 {
		o.size.crowd.hold = *hold
	}
	began := time.Now()
	p := &part{Date: began.UTC().Format(time.DateTime) + " UTC", Machine: machine.Here(), Quick: *small}
	if err := measure(ctx, o, p); err != nil {
		return err
	}
	p.Machine.LoadAfter, p.Took = machine.Load(), time.Since(began).Seconds()
	if err := publish(p, flags.Arg(0), stdout, *toJSON, *toPage); err != nil {
		return err
	}
	if len(p.Wrong) > 0 {
		return errors.New("what must not be: " + strings.Join(p.Wrong, "; "))
	}
	return nil
}
