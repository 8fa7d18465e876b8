// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command faults throws the same faults at Tenure and at other lock libraries,
// all in one run: a fault is a row of a table, a client is a column, and one judge says
// of each cell whether the client passes. The libraries are cirello.io/dynamolock and
// com.amazonaws:dynamodb-lock-client on DynamoDB, etcd's concurrency package, client-go's
// leaderelection on leases of an API server of its own, and the election among the clients
// of River on PostgreSQL. Tenure is tried on DynamoDB, PostgreSQL, etcd, ZooKeeper, an API
// server of Kubernetes, and in a bucket.
//
//	scripts/engines run dynoxide etcd postgres zookeeper kubernetes versitygw -- go run ./evidence/faults -write
//
// The libraries run as processes, each behind a gate that makes the faults. What
// was seen goes to results.json, and from there to docs/evidence/faults.md. With -service the
// columns are the clients of the lock service, behind replicas of tenured.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/machine"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/service"
)

func main() {
	proc.Play(roles)
	proc.Main("faults", run)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("faults", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var (
		list = flags.String("rows", "", "which faults, of "+names(rows, row.name)+
			", and with -service others; all if empty")
		libraries = flags.String("libraries", "", "at which libraries, of "+names(columns, column.name)+
			", or with -service "+names(clients, column.name)+"; all if empty")
		served = flags.Bool("service", false, "throw them at the clients of the lock service, "+
			"and write evidence/faults/service.json and docs/evidence/faults.md")
		write = flags.Bool("write", false, "write evidence/faults/results.json and docs/evidence/faults.md")
		page  = flags.Bool("page", false, "write docs/evidence/faults.md of the results that there are, and "+
			"do nothing else")
		engines = newEngines()
	)
	for i, e := range engines {
		flags.StringVar(&engines[i].address, e.flag, os.Getenv(e.variable()), e.usage)
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	t := libraryTable()
	if *served {
		t = serviceTable()
	}
	if *page {
		return t.write(ctx, nil)
	}
	thrown, err := pick(t.rows, *list, "row", row.name)
	if err != nil {
		return err
	}
	chosen, err := pick(t.columns, *libraries, "library", column.name)
	if err != nil {
		return err
	}
	say := func(format string, args ...any) { fmt.Fprintf(stderr, "faults: "+format+"\n", args...) }
	r, err := newRig(ctx, thrown, chosen, engines, say)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(r.dir) }() // it is the system's to clean, then
	began := time.Now()
	found := &report{
		Date: began.UTC().Format(time.DateTime) + " UTC", Machine: machine.Here(), Libraries: r.versions,
		Engines: map[string]string{}, Cells: map[string]map[string]cell{},
	}
	for name, e := range r.engines {
		if name == dynamoDB {
			found.Engine, err = machine.Engine(ctx, e.address)
		} else {
			found.Engines[name], err = e.version(ctx)
		}
		if err != nil {
			return err
		}
	}
	for _, row := range thrown {
		at := time.Now()
		if found.Cells[row.id], err = r.row(ctx, row, chosen); err != nil {
			return err
		}
		r.say("%s: %.1f s", row.id, time.Since(at).Seconds())
		for _, c := range chosen {
			cell := found.Cells[row.id][c.id]
			fmt.Fprintf(stdout, "%s\t%s\t%s\t%s\n", row.id, c.id, cell.Verdict, cell.Seen)
		}
	}
	found.Machine.LoadAfter, found.Took = machine.Load(), time.Since(began).Seconds()
	if !*write {
		return nil
	}
	return t.write(ctx, found)
}

// pick returns the elements of a list of names, all of them if there is none.
func pick[T any](all []T, list, what string, name func(T) string) (chosen []T, err error) {
	if list == "" {
		return all, nil
	}
	for wanted := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(t T) bool { return name(t) == wanted })
		if i < 0 {
			return nil, fmt.Errorf("there is no %s %q", what, wanted)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// names lists the names of all.
func names[T any](all []T, name func(T) string) string {
	var names []string
	for _, t := range all {
		names = append(names, name(t))
	}
	return strings.Join(names, ",")
}

// newRig builds what rows and columns need. It takes minutes when nothing is built yet. The
// caller removes the rig's folder.
func newRig(
	ctx context.Context, thrown []row, chosen []column, engines []engine, say func(format string, args ...any),
) (r *rig, err error) {
	r = &rig{programs: map[string]*peers.Program{}, say: say, versions: map[string]string{}}
	if r.engines, err = chosenEngines(engines, chosen); err != nil {
		return nil, err
	}
	if r.program, err = os.Executable(); err != nil {
		return nil, err
	}
	if r.dir, err = os.MkdirTemp("", "tenure-faults-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(r.dir) // it is the system's to clean, then
		}
	}()
	for _, c := range chosen {
		switch {
		case c.replicas > 0:
			r.programs[c.id], err = service.Build(ctx, c.kind)
		case c.kind == peers.Java:
			r.programs[c.id], err = peers.BuildJava(ctx)
		default:
			r.programs[c.id] = peers.Own(peers.Kind(c.id))
		}
		if err == nil && c.replicas > 0 && r.tenured == "" {
			r.tenured, err = service.BuildTenured(ctx, r.dir)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, row := range thrown {
		switch row.id {
		case childRow:
			err = r.buildCommands(ctx, chosen)
		case suspendRow:
			err = r.prepareSleep(ctx, chosen)
		}
		if err != nil {
			return nil, err
		}
	}
	return r, nil
}

// row looks at one row: at the columns of a group at the same time, as they wait for
// most of it.
func (r *rig) row(ctx context.Context, row row, chosen []column) (map[string]cell, error) {
	var mu sync.Mutex
	cells := map[string]cell{}
	for i, first := range chosen {
		group := slices.DeleteFunc(slices.Clone(chosen), func(c column) bool { return c.group != first.group })
		if row.alone {
			group = []column{first}
		} else if slices.ContainsFunc(chosen[:i], func(c column) bool { return c.group == first.group }) {
			continue
		}
		err := wait.AtOnce(ctx, len(group), len(group), func(ctx context.Context, i int) error {
			c, err := r.cell(ctx, row, group[i])
			if err != nil {
				return fmt.Errorf("%s, %s: %w", row.id, group[i].id, err)
			}
			mu.Lock()
			defer mu.Unlock()
			cells[group[i].id] = c
			return nil
		})
		if err != nil {
			return cells, err
		}
	}
	return cells, nil
}

func (r *rig) cell(ctx context.Context, row row, c column) (cell, error) {
	if why := c.lacksRows[row.id]; why != "" {
		return lacking(why), nil
	}
	lease := row.lease
	if lease == 0 {
		lease = c.lease
	}
	s, err := r.scene(ctx, c, lease)
	if err != nil {
		return cell{}, err
	}
	defer s.end(ctx)
	return row.try(ctx, s)
}
