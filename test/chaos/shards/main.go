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

	"github.com/tenurelock/tenure/test/bed/dynamo"
	"github.com/tenurelock/tenure/test/bed/machine"
	"github.com/tenurelock/tenure/test/bed/page"
	"github.com/tenurelock/tenure/test/bed/proc"
	"github.com/tenurelock/tenure/test/chaos/trial"
	"github.com/tenurelock/tenure/test/peers"
)

// Roles are what a program that runs shards can be in place of it.
var Roles = map[string]proc.Role{roleName: serveWorker}

// Settings are what the command line says.
type Settings struct {
	quick                         bool
	parts, toJSON, toPage, engine string
}

// Flags has a set of flags fill the settings.
func (s *Settings) Flags(flags *flag.FlagSet) {
	flags.BoolVar(&s.quick, "quick", false, "look whether all of it works with shards; the times mean nothing then")
	flags.StringVar(&s.parts, "parts", partSQLite+","+partDynamo, "what to measure shards on")
	flags.StringVar(&s.toJSON, "json", "", "write what was found to this `file`; what it holds of other parts stays")
	flags.StringVar(&s.toPage, "markdown", "", "write the tables into this `file`, between its marks")
	flags.StringVar(&s.engine, "engine", os.Getenv(dynamo.EngineEnv), "the `URL` of a DynamoDB engine")
}

// Run measures the parts, and fails if something was not as it must be.
func (s *Settings) Run(ctx context.Context, stdout, stderr io.Writer) error {
	if s.engine == "" {
		return dynamo.NoEngine("chaos -workload shards")
	}
	size := full
	if s.quick {
		size = quick
	}
	return s.measure(ctx, size, stdout, func(format string, args ...any) {
		fmt.Fprintf(stderr, "shards: "+format+"\n", args...)
	})
}

func (s *Settings) measure(ctx context.Context, size size, stdout io.Writer, say func(string, ...any)) error {
	all, err := earlier(s.toJSON)
	if err != nil {
		return err
	}
	if all.Setting != size {
		all.Stores = nil
	}
	all.Machine, all.Setting = machine.Here(), size
	var missed []string
	for part := range strings.SplitSeq(s.parts, ",") {
		f := &finding{}
		var url string
		var closed func() error
		switch part {
		case partSQLite:
			dir, err := os.MkdirTemp("", "tenure-chaos-shards-")
			if err != nil {
				return err
			}
			f.Store, f.Watch = "SQLite, a file", true
			url, closed = "sqlite:"+filepath.Join(dir, "locks.db"), func() error { return os.RemoveAll(dir) }
		case partDynamo:
			name, err := machine.Engine(ctx, s.engine)
			if err != nil {
				return err
			}
			table, err := dynamo.NewTable(ctx, dynamo.Connect(s.engine), "tenure-shards")
			if err != nil {
				return err
			}
			f.Store = "DynamoDB's API: " + name
			url, closed = "dynamodb:"+s.engine+"#"+table.Name, func() error { return table.Drop(ctx) }
		default:
			return fmt.Errorf("shards have no part %q; there are %s,%s", part, partSQLite, partDynamo)
		}
		f.stage(ctx, size, url, say)
		if err := errors.Join(closed(), context.Cause(ctx)); err != nil {
			return err
		}
		all.put(f)
		for _, m := range f.Missed {
			missed = append(missed, f.Store+": "+m)
		}
	}
	all.Machine.LoadAfter = machine.Load()
	if err := page.Publish(all, all.markdown(), command, stdout, s.toJSON, s.toPage); err != nil {
		return err
	}
	if len(missed) > 0 {
		return errors.New("MISSED: " + strings.Join(missed, "; "))
	}
	return nil
}

// stage makes all scenes on one store.
func (f *finding) stage(ctx context.Context, size size, store string, say func(string, ...any)) {
	began := time.Now()
	f.Date, f.LoadBefore = began.UTC().Format(time.DateTime)+" UTC", machine.Load()
	for _, part := range []struct {
		name string
		run  func(context.Context, *group, func(string, ...any)) error
	}{{"many", f.many}, {"alone", f.alone}} {
		to := trial.OpenResource(proc.Monotonic, false)
		g := newGroup(size, part.name, store, to)
		err := part.run(ctx, g, func(format string, args ...any) { say(f.Store+": "+format, args...) })
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
	f.judge(size)
}

// size is how much the scenes of shards do.
type size struct {
	peers.Timing
	Workers    int
	Partitions int
	Claims     int           // that a worker has under way, where there are many workers
	Kills      int           // of a worker; and one of the coordinator
	Steady     time.Duration // in which requests are counted
	Write      time.Duration // how often a handler writes to the resource
	Drain      time.Duration // how long it works on when it is told to stop
	Quick      bool          // the times mean nothing
}

var (
	full = size{
		Timing:  peers.Timing{Lease: 5 * time.Second, Heartbeat: time.Second, Refresh: 500 * time.Millisecond},
		Workers: 20, Partitions: 2000, Claims: 16, Kills: 2,
		Steady: 10 * time.Second, Write: 4 * time.Second, Drain: 20 * time.Millisecond,
	}
	quick = size{
		Timing:  peers.Timing{Lease: 4 * time.Second, Heartbeat: time.Second / 2, Refresh: time.Second / 4},
		Workers: 4, Partitions: 60, Claims: 16, Kills: 1,
		Steady: 2 * time.Second, Write: time.Second, Drain: 20 * time.Millisecond, Quick: true,
	}
)
