// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command faults injects the same faults into Tenure and other lock libraries, all in
// one run: a fault is a row of a table, a client is a column, and one judge decides for
// each cell whether the client passes. The libraries are cirello.io/dynamolock and
// com.amazonaws:dynamodb-lock-client on DynamoDB, etcd's concurrency package, client-go's
// leaderelection on leases of its own API server, and the election among the clients
// of River on PostgreSQL. Tenure runs on DynamoDB, PostgreSQL, etcd, ZooKeeper, an API
// server of Kubernetes, and in a bucket.
//
//	scripts/engines run dynoxide etcd postgres zookeeper kubernetes versitygw -- go run ./test/faults -write
//
// The libraries run as processes, each behind a gate that injects the faults. The
// results go to results.json, and from there to docs/evidence/faults.md. With -service the
// columns are the clients of the lock service, behind replicas of tenured. With -redis they are
// Tenure, redsync and bsm/redislock on Redis, and more rows say what happens when it loses writes:
//
//	scripts/engines run redis -- go run ./test/faults -redis -write
//	go run ./test/faults -losses 100 -write
//	go run ./test/faults -postgres -losses 50 -write
//
// The second has it lose writes a hundred times in each way, under programs at work. The third has PostgreSQL do so,
// under Tenure with and without a guard.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/test/harness/machine"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/service"
)

func main() {
	proc.Play(roles)
	proc.Main(run)
}

func run(ctx context.Context) {
	var (
		list = flag.String("rows", "", "inject only these `faults`, separated by commas: "+names(rows)+
			"; with -service also "+names(serviceRows)+"; with -redis also "+names(lossRows)+"; with -losses only "+
			names(redisLosses.ways)+"; with -postgres, too, "+names(postgresLosses.ways))
		libraries = flag.String("libraries", "", "inject them only into these `libraries`, separated by commas: "+
			names(columns)+"; with -service "+names(clients)+"; with -redis "+names(redisColumns))
		served  = flag.Bool("service", false, "inject them into the clients of the lock service")
		onRedis = flag.Bool("redis", false, "inject them into libraries on Redis")
		times   = flag.Int("losses", 0, "have Redis lose writes so many `times` under programs at work; nothing else")
		onPG    = flag.Bool("postgres", false, "have PostgreSQL lose them")
		write   = flag.Bool("write", false, "write test/faults/results.json and docs/evidence/faults.md")
		page    = flag.Bool("page", false, "write docs/evidence/faults.md from the results of the last run; run nothing")
	)
	flag.Parse()
	t := libraryTable
	switch {
	case *served:
		t = serviceTable
	case *onRedis:
		t = redisTable
	}
	l := redisLosses
	if *onPG {
		l = postgresLosses
	}
	if *page && *times > 0 {
		last := &lossReport{}
		must.Do(l.Read(last))
		must.Do(l.Write(last, last.markdown()))
		return
	}
	if *page {
		last := &report{}
		must.Do(t.Read(last))
		must.Do(t.Write(last, t.markdown(last)))
		return
	}
	if *times > 0 {
		l.again(ctx, *times, *list, *write)
		return
	}
	thrown, chosen := pick(t.rows, *list), pick(t.columns, *libraries)
	r := &harness{say: proc.Logf}
	found := &report{
		Date: time.Now().UTC().Format(time.DateTime) + " UTC", Machine: machine.Here(),
		Engines: map[string]string{}, Cells: map[string]map[string]cell{},
	}
	r.Run(func() {
		r.build(ctx, thrown, chosen)
		for _, row := range thrown {
			at := time.Now()
			found.Cells[row.id] = r.row(ctx, row, chosen)
			r.say("%s: %.1f s", row.id, time.Since(at).Seconds())
			for _, c := range chosen {
				cell := found.Cells[row.id][c.id]
				fmt.Fprintf(os.Stdout, "%s\t%s\t%s\t%s\n", row.id, c.id, cell.Verdict, cell.Seen)
			}
		}
	})
	if !*write {
		return
	}
	for _, c := range chosen {
		if c.engine != nil {
			kind := c.engine.kind()
			found.Engines[c.engine.title] = strings.TrimSpace(kind.Name + " " + kind.Version)
		}
	}
	found.Libraries, found.Machine.LoadAfter = r.versions, machine.Load()
	if err := t.complete(found); err != nil {
		must.Do(fmt.Errorf("nothing is written: %w", err))
	}
	must.Do(t.Write(found, t.markdown(found)))
}

// named is what rows and columns have: a name for flags and results, and one for people.
type named struct{ id, title string }

func (n named) name() string { return n.id }

// pick returns the elements of a list of names, all of them if it is empty.
func pick[T interface{ name() string }](all []T, list string) (chosen []T) {
	if list == "" {
		return all
	}
	for wanted := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(t T) bool { return t.name() == wanted })
		if i < 0 {
			must.Do(fmt.Errorf("there is no %q; there are %s", wanted, names(all)))
		}
		chosen = append(chosen, all[i])
	}
	return chosen
}

// names lists the names of all.
func names[T interface{ name() string }](all []T) string {
	var names []string
	for _, t := range all {
		names = append(names, t.name())
	}
	return strings.Join(names, ",")
}

// build builds what rows and columns need. It takes minutes when nothing is built yet. Without rows no
// engine need run.
func (r *harness) build(ctx context.Context, thrown []row, chosen []column) {
	r.programs, r.versions = map[string]*peers.Program{}, map[string]string{}
	for _, c := range chosen {
		if c.engine != nil && len(thrown) > 0 {
			c.engine.at() // or nothing is begun
		}
	}
	r.dir = must.Have(os.MkdirTemp("", "tenure-faults-"))
	r.After(func() { _ = os.RemoveAll(r.dir) }) // else it is the system's to clean
	for _, c := range chosen {
		if c.replicas == 0 {
			r.programs[c.id] = must.Have(peers.Make(ctx, peers.Kind(c.id)))
			continue
		}
		r.programs[c.id] = service.Build(ctx, c.kind)
		if r.tenured == "" {
			r.tenured = service.BuildCommand(ctx, r.dir, "tenured")
		}
	}
	for _, row := range thrown {
		switch row.id {
		case childRow:
			r.tenure = service.BuildCommand(ctx, r.dir, "tenure")
		case suspendRow:
			r.prepareSleep(ctx, chosen)
		}
	}
}

// row runs one row: the columns of a group at the same time, since they mostly
// wait.
func (r *harness) row(ctx context.Context, row row, chosen []column) map[string]cell {
	var mu sync.Mutex
	cells := map[string]cell{}
	for group := range groups {
		of := slices.DeleteFunc(slices.Clone(chosen), func(c column) bool { return c.group != group })
		atOnce := len(of)
		if row.alone {
			atOnce = 1
		}
		must.AtOnce(ctx, len(of), atOnce, func(ctx context.Context, i int) {
			c := r.cell(ctx, row, of[i])
			mu.Lock()
			defer mu.Unlock()
			cells[of[i].id] = c
		})
	}
	return cells
}
