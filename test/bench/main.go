// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command bench compares Tenure with its peers. Its parts are
//
//   - bench: two other lock clients, cirello.io/dynamolock and
//     com.amazonaws:dynamodb-lock-client, on one DynamoDB engine;
//   - native: the locks of etcd, ZooKeeper, PostgreSQL, Redis and Kubernetes, or of their clients;
//   - load: the lock service, and the JSON interfaces of etcd and Consul.
//
// With -write a run writes its part of results.json and of docs/evidence/performance.md, and leaves
// the others unchanged:
//
//	scripts/engines run dynoxide -- go run ./test/bench -write bench
//
// The contestants take turns, so that a ratio compares two measurements within seconds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tenurelock/tenure/test/harness/machine"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/serve"
)

// parts are the measurements, by the target of the Makefile.
var parts = map[string]func(context.Context, *harness){
	"bench": measureClients, "native": measureEngines, "load": measureService,
}

// options are what a run was asked for.
type options struct {
	quick  bool
	steps  string
	consul string
	say    func(format string, args ...any)
}

// harness is shared by the steps of a part.
type harness struct {
	*part
	*options
	peers.Scope // of the whole part

	// Of DynamoDB.
	engine  string           // where it is
	db      *dynamodb.Client // of the harness itself, past all gates
	clients []*peers.Program
}

func main() {
	proc.Play(serve.Roles)
	proc.Main(run)
}

// run measures what its arguments ask for, and writes it to stdout or to the files.
func run(ctx context.Context) {
	o := &options{say: proc.Logf}
	var (
		write = flag.Bool("write", false, "write test/bench/results.json and docs/evidence/performance.md")
		page  = flag.Bool("page", false, "write docs/evidence/performance.md from the last results; run nothing")
	)
	flag.BoolVar(&o.quick, "quick", false, "only check that everything works; the times mean nothing")
	flag.StringVar(&o.steps, "steps", "", "run only these `steps` on DynamoDB, separated by commas")
	flag.StringVar(&o.consul, "consul", "", "the `program` consul, to compare Consul with the lock service")
	flag.Parse()
	name := flag.Arg(0)
	if parts[name] == nil || flag.NArg() > 1 {
		must.Do(fmt.Errorf("got %q after the flags: want one of bench, native and load", flag.Args()))
	}
	p := &part{}
	if *page {
		must.Do(at(name).Read(p))
	} else {
		p = must.Have(measure(ctx, name, o))
	}
	text := must.Have(p.markdown(name))
	if *write || *page {
		must.Do(at(name).Write(p, text))
	} else {
		fmt.Fprint(os.Stdout, text)
	}
	if len(p.Wrong) > 0 {
		must.Do(errors.New("wrong results: " + strings.Join(p.Wrong, "; ")))
	}
}

// measure measures a part.
func measure(ctx context.Context, name string, o *options) (*part, error) {
	p := &part{Date: time.Now().UTC().Format(time.DateTime) + " UTC", Machine: machine.Here(), Quick: o.quick}
	err := must.Try(func() {
		r := &harness{part: p, options: o}
		r.Run(func() { parts[name](ctx, r) })
	})
	p.Machine.LoadAfter = machine.Load()
	return p, err
}

// folder creates a folder that is removed at the end.
func (r *harness) folder() string {
	dir := must.Have(os.MkdirTemp("", "tenure-bench-"))
	r.After(func() { _ = os.RemoveAll(dir) }) // else it is the system's to clean
	return dir
}

// sized returns the full or the quick size of a run. A quick run only checks that all of it works.
func sized[T any](p *part, full, quick T) T {
	if p.Quick {
		return quick
	}
	return full
}

// everyday are the times that dynamolock and the Java client use where nothing is set. A shorter
// lease is a shorter time that the store may fail to answer, on a machine that is busy with tests.
func (p *part) everyday() peers.Timing {
	return sized(p, timing(20*time.Second, 5*time.Second, time.Second),
		timing(4*time.Second, time.Second, 200*time.Millisecond))
}

// longTimes are so long that no heartbeat falls into a count of something else.
var longTimes = timing(10*time.Minute, 150*time.Second, time.Second)

func timing(lease, heartbeat, refresh time.Duration) peers.Timing {
	return peers.Timing{Lease: lease, Heartbeat: heartbeat, Refresh: refresh}
}
