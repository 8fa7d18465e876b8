// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/internal/testbed"
)

// shardSize is how much the scenes of shards do.
type shardSize struct {
	timing
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
	fullShards = shardSize{
		timing:  timing{5 * time.Second, time.Second, 500 * time.Millisecond},
		workers: 20, partitions: 2000, claims: 16, kills: 2, steady: 10 * time.Second, write: 4 * time.Second, drain: 20 * time.Millisecond,
	}
	quickShards = shardSize{
		timing:  timing{4 * time.Second, 500 * time.Millisecond, 250 * time.Millisecond},
		workers: 4, partitions: 60, claims: 16, kills: 1, steady: 2 * time.Second, write: time.Second, drain: 20 * time.Millisecond, quick: true,
	}
)

// shardReport is everything that a run found. The page is made from it alone.
type shardReport struct {
	Machine testbed.Testbed `json:"machine"`
	Quick   bool            `json:"quick"`
	Setting shardSetting    `json:"setting"`
	Stores  []*shardFound   `json:"stores"`
	Virtual []virtual       `json:"virtual"`
}

type shardSetting struct {
	Workers    int     `json:"workers"`
	Partitions int     `json:"partitions"`
	Lease      float64 `json:"leaseSeconds"`
	Heartbeat  float64 `json:"heartbeatSeconds"`
	Refresh    float64 `json:"refreshSeconds"`
	Claims     int     `json:"claimsOfOneOfMany"`
	Drain      float64 `json:"drainSeconds"`
	Write      float64 `json:"writeSeconds"`
}

// shardFound is what was found on one store. Times are in seconds.
type shardFound struct {
	Store      string  `json:"store"`
	Watch      bool    `json:"watch"` // it tells of what is released
	Date       string  `json:"date"`
	Took       float64 `json:"tookSeconds"`
	LoadBefore string  `json:"loadBefore"`
	LoadAfter  string  `json:"loadAfter"`
	Filled     filled  `json:"firstAssignment"`
	Steady     steady  `json:"steady"`
	// Recoveries are from SIGKILL, and from a pause, until all was owned again.
	Recoveries []recovery `json:"recoveries"`
	Leave      moving     `json:"leave"`
	Join       moving     `json:"join"`
	Roll       moving     `json:"rollingRestart"`
	Lone       lone       `json:"workerWithAll"`
	// Tenures is how many times a handler's Check passed anew, OwnedTwice where
	// two had a partition at once, and Fence what the resource saw.
	Tenures    int      `json:"tenures"`
	OwnedTwice []string `json:"ownedTwice"`
	Fence      fenced   `json:"fence"`
	Lost       []string `json:"sessionsLost"` // by living workers
	Missed     []string `json:"missed"`
}

// The parts of a run.
const (
	partSQLite  = "sqlite"
	partDynamo  = "dynamodb"
	partVirtual = "simulator"
)

// shards runs parts of what is measured of package shard, as listed with commas
// between, and fails if something was not as it must be. What toJSON holds of other
// parts stays.
func shards(ctx context.Context, r *rig, parts, toJSON, toPage string, stdout io.Writer) error {
	size := fullShards
	if r.report.Quick {
		size = quickShards
	}
	all, err := earlier(toJSON)
	if err != nil {
		return err
	}
	setting := shardSetting{
		size.workers, size.partitions, size.lease.Seconds(), size.heartbeat.Seconds(), size.refresh.Seconds(), size.claims, size.drain.Seconds(), size.write.Seconds(),
	}
	if all.Setting != setting {
		all.Stores = nil
	}
	all.Machine, all.Quick, all.Setting = r.report.Machine, r.report.Quick, setting
	dir, err := os.MkdirTemp("", "tenure-shards-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left is in a folder for that
	var missed []string
	for part := range strings.SplitSeq(parts, ",") {
		var f *shardFound
		switch part {
		case partSQLite:
			f, err = shardsOnSQLite(ctx, r, size, dir)
		case partDynamo:
			f, err = shardsOnDynamo(ctx, r, size, dir)
		case partVirtual:
			all.Virtual, err = simulate(ctx, r.say)
			for _, v := range all.Virtual {
				if v.Failed != "" {
					missed = append(missed, v.Command+": "+v.Failed)
				}
			}
		default:
			err = fmt.Errorf("shards have no part %q; there are %s", part, strings.Join([]string{partSQLite, partDynamo, partVirtual}, ","))
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
	all.Machine.LoadAfter = testbed.Load()
	if err := all.write(stdout, toJSON, toPage); err != nil {
		return err
	}
	if len(missed) > 0 {
		return errors.New("MISSED: " + strings.Join(missed, "; "))
	}
	return nil
}

// put puts in what was found on a store, in place of what was before.
func (r *shardReport) put(f *shardFound) {
	i := slices.IndexFunc(r.Stores, func(before *shardFound) bool { return before.Watch == f.Watch })
	if i < 0 {
		r.Stores = append(r.Stores, f)
		return
	}
	r.Stores[i] = f
}

func shardsOnSQLite(ctx context.Context, r *rig, size shardSize, dir string) (*shardFound, error) {
	at := place{Kind: onSQLite, Path: filepath.Join(dir, "locks.db")}
	alone := place{Kind: onSQLite, Path: filepath.Join(dir, "alone.db")}
	return stageShards(ctx, r, size, filepath.Join(dir, "sqlite"), at, alone, nil, &shardFound{Store: "SQLite, a file", Watch: true})
}

func shardsOnDynamo(ctx context.Context, r *rig, size shardSize, dir string) (f *shardFound, err error) {
	proxy, err := newCounter(r.engine)
	if err != nil {
		return nil, err
	}
	defer proxy.close()
	table := "tenure-shards-" + rand.Text()
	for _, name := range []string{table, table + "-alone"} {
		if err := dynamostore.CreateTable(ctx, r.db, name, nil); err != nil {
			return nil, err
		}
		defer func() {
			_, dropped := r.db.DeleteTable(context.WithoutCancel(ctx), &dynamodb.DeleteTableInput{TableName: &name})
			err = errors.Join(err, dropped)
		}()
	}
	at := place{Kind: onDynamo, Endpoint: proxy.URL, Table: table}
	alone := place{Kind: onDynamo, Endpoint: r.engine, Table: table + "-alone"}
	return stageShards(ctx, r, size, filepath.Join(dir, "dynamo"), at, alone, proxy, &shardFound{Store: "DynamoDB's API: " + r.report.Engine})
}

// stageShards makes all scenes on one store.
func stageShards(ctx context.Context, r *rig, size shardSize, dir string, at, alone place, proxy *counter, f *shardFound) (*shardFound, error) {
	to, err := newGuarded()
	if err != nil {
		return nil, err
	}
	defer to.close()
	began := time.Now()
	f.Date, f.LoadBefore = began.UTC().Format(time.DateTime)+" UTC", testbed.Load()
	say := func(format string, args ...any) { r.say("shards: "+f.Store+": "+format, args...) }
	for _, part := range []struct {
		name  string
		place place
		run   func(context.Context, *shardGroup) error
	}{
		{"many", at, func(ctx context.Context, g *shardGroup) error { return f.many(ctx, g, proxy, say) }},
		{"alone", alone, func(ctx context.Context, g *shardGroup) error { return f.alone(ctx, g, say) }},
	} {
		logs := filepath.Join(dir, part.name)
		if err := os.MkdirAll(logs, 0o700); err != nil {
			return nil, err
		}
		g := newShardGroup(size, part.place, to, logs)
		err := part.run(ctx, g)
		tenures, closed := g.close()
		f.Tenures += len(tenures)
		f.OwnedTwice = append(f.OwnedTwice, ownedTwice(tenures)...)
		f.Lost = append(f.Lost, g.lost...)
		if err := errors.Join(err, closed); err != nil {
			f.miss("%s: %v", part.name, err)
			break
		}
		to.forget() // the other group's partitions have the same names
	}
	f.Took, f.LoadAfter = time.Since(began).Seconds(), testbed.Load()
	f.Fence = to.found()
	f.judge(size)
	return f, context.Cause(ctx)
}

func (f *shardFound) miss(format string, args ...any) {
	f.Missed = append(f.Missed, fmt.Sprintf(format, args...))
}

// tolerance is how far above what was computed a time may be: a kill comes at any
// place in a period, and the machine has other things to do.
const tolerance = 1.5

// judge says what is not as it must be. Of a quick run the times mean nothing, nor
// what moves when a worker is lost for want of a processor.
func (f *shardFound) judge(size shardSize) {
	miss := func(missed bool, format string, args ...any) {
		if missed {
			f.miss(format, args...)
		}
	}
	miss(len(f.OwnedTwice) > 0, "owned twice, by Check, %s", some(f.OwnedTwice))
	miss(len(f.Fence.Late) > 0, "stale writes accepted, %s", some(f.Fence.Late))
	miss(f.Fence.Accepted == 0 || f.Fence.Refused == 0, "the fence saw %d writes and refused %d: it was not tried", f.Fence.Accepted, f.Fence.Refused)
	if size.quick {
		return
	}
	miss(len(f.Lost) > 0, "sessions of living workers were lost, %s", some(f.Lost))
	for _, r := range f.Recoveries {
		miss(r.Took > tolerance*r.Expected, "%s: all owned after %.2f s, where %.2f s were to be expected", r.What, r.Took, r.Expected)
	}
	miss(f.Lone.Took > tolerance*f.Lone.Expected, "a worker with %d partitions: all owned after %.2f s, where %.2f s were to be expected", f.Lone.Partitions, f.Lone.Took, f.Lone.Expected)
	if f.Leave.Gaps.N > 0 {
		// Where the store tells of releases the next owner need not look.
		most := tolerance * (size.refresh + size.drain).Seconds()
		miss(f.Leave.Gaps.Max > most, "a planned leave: a partition had nobody for %.3f s", f.Leave.Gaps.Max)
	}
	miss(f.Roll.Most > mostMoves, "a rolling restart moved a partition %d times", f.Roll.Most)
	miss(f.Join.Moves > int(1.1*f.Join.Share)+1, "a worker that came moved %d partitions, with a share of %.0f", f.Join.Moves, f.Join.Share)
}

// mostMoves is how often a rolling restart may move one partition: away from its
// worker, back to it, and once more each because the one that had it meanwhile was
// started again, too.
const mostMoves = 4

// some returns the first ones of a list, and how many there are.
func some(list []string) string {
	return fmt.Sprintf("%d: %s", len(list), strings.Join(list[:min(len(list), 3)], ", "))
}
