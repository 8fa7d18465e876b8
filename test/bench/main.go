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
//	scripts/engines run dynoxide -- go run ./test/bench -json test/bench/results.json \
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

	"github.com/tenurelock/tenure/test/bed/dynamo"
	"github.com/tenurelock/tenure/test/bed/machine"
	"github.com/tenurelock/tenure/test/bed/proc"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/serve"
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
	proc.Main("bench", measure)
}

// measure measures what its arguments ask for.
func measure(ctx context.Context, args []string, stdout, stderr io.Writer) error {
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
	flags.StringVar(&o.steps, "steps", "", "which steps to make on DynamoDB, with commas between; all by default")
	flags.StringVar(&o.consul, "consul", "", "the `program` consul; without it there is none beside the lock service")
	if err := flags.Parse(args); err != nil {
		return err
	}
	found := parts[flags.Arg(0)]
	if found == nil || flags.NArg() > 1 {
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
	if err := found(ctx, o, p); err != nil {
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

// size is how much a run does.
type size struct {
	// On DynamoDB.
	locks      int          // for counting one operation
	hold       []int        // locks that a process holds
	waiters    int          // of one lock
	atOnce     int          // clients, where each of them is a load
	everyday   peers.Timing // of holding, waiting, hand-overs and throughput, and of what is priced by the month
	periods    int          // heartbeat periods that holding and waiting are counted for
	takeover   peers.Timing
	handovers  int
	bells      int // hand-overs with a bell
	kills      int // of each pair
	pairs      int // of Tenure; of the others one
	failover   peers.Timing
	throughput time.Duration // of one run
	loads      []workload
	runs       int
	crowds     map[string][]int // locks in one process, by the client
	crowd      crowdSize
	counted    time.Duration // what is priced by the month

	// Beside the engines' own locks.
	times           int
	native          time.Duration // of a run of pairs
	nativeHandOvers int

	service serviceSize
}

// workload is how the throughput is measured.
type workload struct {
	goroutines int
	delay      time.Duration // added to each request
}

// crowdSize is how long, and how, one process holds many locks.
type crowdSize struct {
	peers.Timing
	delay time.Duration // added to each request
	hold  time.Duration
}

// serviceSize is how much is done with the lock service.
type serviceSize struct {
	rounds    int
	length    time.Duration // of a run of pairs, and of heartbeats
	callers   []int         // of pairs
	handOvers int           // a round
	beating   int           // locks whose heartbeats are sent as fast as it goes
	held      int           // locks that are held at once
	hold      time.Duration // how long
	lease     time.Duration
}

var (
	// full has the times that dynamolock and the Java client use where nothing is set.
	full = size{
		locks: 10, hold: []int{1, 100, 1000}, waiters: 50, atOnce: 1, periods: 3,
		everyday:  timing(20*time.Second, 5*time.Second, time.Second),
		takeover:  timing(20*time.Second, 5*time.Second, time.Second),
		handovers: 20, bells: 50,
		kills: 14, pairs: 3, failover: timing(3*time.Second, 600*time.Millisecond, 600*time.Millisecond),
		throughput: 1500 * time.Millisecond, loads: []workload{{1, 0}, {32, 0}, {1, 5 * time.Millisecond}}, runs: 5,
		crowds: map[string][]int{tenureName: {1000, 10_000, 100_000}, dynamolockName: {100, 400, 1000}},
		// A lease at which a heartbeat for each lock is a load.
		crowd: crowdSize{
			timing(2*time.Second, 400*time.Millisecond, 400*time.Millisecond), 10 * time.Millisecond, 20 * time.Second,
		},
		counted: 30 * time.Second,
		times:   5, native: time.Second, nativeHandOvers: 7,
		service: serviceSize{
			rounds: 5, length: 1500 * time.Millisecond, callers: []int{1, 16, 64}, handOvers: 60, beating: 1000,
			held: 10_000, hold: 30 * time.Second, lease: time.Minute,
		},
	}
	// quick looks whether all of it works. A shorter lease is a shorter time that the store may
	// fail to answer, on a machine that is busy with other tests.
	quick = size{
		locks: 3, hold: []int{1, 20}, waiters: 2, atOnce: 3, periods: 2,
		everyday:  timing(4*time.Second, time.Second, 200*time.Millisecond),
		takeover:  timing(2*time.Second, 400*time.Millisecond, 200*time.Millisecond),
		handovers: 2, bells: 2,
		kills: 1, pairs: 1, failover: timing(time.Second, 200*time.Millisecond, 200*time.Millisecond),
		throughput: 200 * time.Millisecond, loads: []workload{{4, 0}, {1, time.Millisecond}}, runs: 2,
		crowds: map[string][]int{tenureName: {20, 200}, dynamolockName: {20}},
		crowd: crowdSize{
			timing(10*time.Second, 500*time.Millisecond, 200*time.Millisecond), time.Millisecond, 2 * time.Second,
		},
		counted: 2 * time.Second,
		times:   1, native: 50 * time.Millisecond, nativeHandOvers: 1,
		service: serviceSize{
			rounds: 1, length: 300 * time.Millisecond, callers: []int{1, 4}, handOvers: 3, beating: 20,
			held: 200, hold: time.Second, lease: time.Minute,
		},
	}
	// longTimes are so long that no heartbeat falls into a count of something else.
	longTimes = timing(10*time.Minute, 150*time.Second, time.Second)
)

func timing(lease, heartbeat, refresh time.Duration) peers.Timing {
	return peers.Timing{Lease: lease, Heartbeat: heartbeat, Refresh: refresh}
}
