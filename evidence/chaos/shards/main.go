// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package shards is the workload of chaos that measures package shard: workers of a group, a
// process each, are killed, stopped and started again. It fails if a partition is ever owned
// twice, or is without an owner for too long.
package shards

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/machine"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/chaos/trial"
	"github.com/tenurelock/tenure/evidence/peers"
)

// Roles are what a program that calls Run can be in place of it.
var Roles = map[string]proc.Role{roleName: serveWorker}

// Run runs what the arguments say.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("chaos -workload shards", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var (
		small  = flags.Bool("quick", false, "look whether all of it works; the times mean nothing then")
		parts  = flags.String("parts", partSQLite+","+partDynamo, "what to measure on")
		toJSON = flags.String("json", "", "write what was found to this `file`; what it holds of other parts stays")
		toPage = flags.String("markdown", "", "write the tables into this `file`, between its marks")
		engine = flags.String("engine", os.Getenv(dynamo.EngineEnv), "the `URL` of a DynamoDB engine")
	)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *engine == "" {
		return dynamo.NoEngine("chaos -workload shards")
	}
	r := &rig{engine: *engine, size: full}
	if *small {
		r.size = quick
	}
	r.say = func(format string, args ...any) { fmt.Fprintf(stderr, "shards: "+format+"\n", args...) }
	if r.name, err = machine.Engine(ctx, *engine); err != nil {
		return err
	}
	return r.measure(ctx, *parts, *toJSON, *toPage, stdout)
}

// rig is what both stores share.
type rig struct {
	engine string // the URL of a DynamoDB engine
	name   string // of the engine
	size   size
	say    func(format string, args ...any)
}

// measure runs parts of what is measured of package shard, as listed with commas
// between, and fails if something was not as it must be. What toJSON holds of other
// parts stays.
func (r *rig) measure(ctx context.Context, parts, toJSON, toPage string, stdout io.Writer) error {
	all, err := earlier(toJSON)
	if err != nil {
		return err
	}
	size := r.size
	set := setting{
		size.workers, size.partitions, size.Lease.Seconds(),
		size.Heartbeat.Seconds(), size.Refresh.Seconds(), size.claims, size.drain.Seconds(), size.write.Seconds(),
	}
	if all.Setting != set {
		all.Stores = nil
	}
	all.Machine, all.Quick, all.Setting = machine.Here(), size.quick, set
	dir, err := os.MkdirTemp("", "tenure-chaos-shards-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left is in a folder for that
	var missed []string
	for part := range strings.SplitSeq(parts, ",") {
		var f *finding
		switch part {
		case partSQLite:
			f, err = r.onFile(ctx, dir)
		case partDynamo:
			f, err = r.onTable(ctx)
		default:
			err = fmt.Errorf("shards have no part %q; there are %s", part,
				strings.Join([]string{partSQLite, partDynamo}, ","))
		}
		if err != nil {
			return err
		}
		if f != nil {
			all.put(f)
			for _, m := range f.Missed {
				missed = append(missed, f.Store+": "+m)
			}
		}
	}
	all.Machine.LoadAfter = machine.Load()
	if err := all.write(stdout, toJSON, toPage); err != nil {
		return err
	}
	if len(missed) > 0 {
		return errors.New("MISSED: " + strings.Join(missed, "; "))
	}
	return nil
}

func (r *rig) onFile(ctx context.Context, dir string) (*finding, error) {
	at := place{Kind: onSQLite, Path: filepath.Join(dir, "locks.db")}
	alone := place{Kind: onSQLite, Path: filepath.Join(dir, "alone.db")}
	return r.stage(ctx, at, alone, nil, &finding{Store: "SQLite, a file", Watch: true})
}

func (r *rig) onTable(ctx context.Context) (f *finding, err error) {
	proxy, err := gate.NewMetered(r.engine)
	if err != nil {
		return nil, err
	}
	defer proxy.Close()
	var tables [2]*dynamo.Table
	for i := range tables {
		if tables[i], err = dynamo.NewTable(ctx, dynamo.Connect(r.engine), "tenure-shards"); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, tables[i].Drop(ctx)) }()
	}
	at := place{Kind: onDynamo, Endpoint: proxy.Address(), Table: tables[0].Name}
	alone := place{Kind: onDynamo, Endpoint: r.engine, Table: tables[1].Name}
	return r.stage(ctx, at, alone, proxy, &finding{Store: "DynamoDB's API: " + r.name})
}

// stage makes all scenes on one store.
func (r *rig) stage(ctx context.Context, at, alone place, proxy *gate.HTTP, f *finding) (*finding, error) {
	began := time.Now()
	f.Date, f.LoadBefore = began.UTC().Format(time.DateTime)+" UTC", machine.Load()
	say := func(format string, args ...any) { r.say(f.Store+": "+format, args...) }
	for _, part := range []struct {
		name  string
		place place
		run   func(context.Context, *group) error
	}{
		{"many", at, func(ctx context.Context, g *group) error { return f.many(ctx, g, proxy, say) }},
		{"alone", alone, f.alone},
	} {
		// The partitions of both groups have the same names.
		to := trial.OpenResource(proc.Monotonic, false)
		g := newGroup(r.size, part.place, to)
		err := part.run(ctx, g)
		log, closed := g.close()
		to.Close()
		f.take(log)
		f.Lost = append(f.Lost, g.lost...)
		if err := errors.Join(err, closed); err != nil {
			f.miss("%s: %v", part.name, err)
			break
		}
	}
	f.Took, f.LoadAfter = time.Since(began).Seconds(), machine.Load()
	f.judge(r.size)
	return f, context.Cause(ctx)
}

// size is how much the scenes of shards do.
type size struct {
	peers.Timing
	workers    int
	partitions int
	claims     int           // that a worker has under way, where there are many workers
	kills      int           // of a worker; and one of the coordinator
	steady     time.Duration // in which requests are counted
	write      time.Duration // how often a handler writes to the resource
	drain      time.Duration // how long it works on when it is told to stop
	quick      bool
}

var (
	full = size{
		Timing:  peers.Timing{Lease: 5 * time.Second, Heartbeat: time.Second, Refresh: 500 * time.Millisecond},
		workers: 20, partitions: 2000, claims: 16, kills: 2,
		steady: 10 * time.Second, write: 4 * time.Second, drain: 20 * time.Millisecond,
	}
	quick = size{
		Timing: peers.Timing{
			Lease: 4 * time.Second, Heartbeat: 500 * time.Millisecond,
			Refresh: 250 * time.Millisecond,
		},
		workers: 4, partitions: 60, claims: 16, kills: 1,
		steady: 2 * time.Second, write: time.Second, drain: 20 * time.Millisecond, quick: true,
	}
)
