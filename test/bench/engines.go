// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tenurelock/tenure/test/bed/proc"
)

// engines are those whose own locks there are benchmarks of, in the stores' own tests.
var engines = []struct {
	title string
	pkg   string // with the benchmarks
	own   string // how these call the engine's own lock
	what  string // that is
	needs string // the variable without which it is not looked at
}{
	{"etcd", "./etcdstore", "mutex", "`concurrency.Mutex`", "TENURE_TEST_ETCD"},
	{"ZooKeeper", "./internal/itest/zookeeper", "native", "`zk.Lock` of go-zookeeper", "TENURE_TEST_ZOOKEEPER"},
	{"PostgreSQL", "./pgstore", "updates", "two plain updates, as durable", "TENURE_TEST_POSTGRES"},
	{"PostgreSQL", "./pgstore", "advisory", "advisory locks, not durable", "TENURE_TEST_POSTGRES"},
	{"Kubernetes", "./k8sstore", "elector", "the calls of client-go's elector", "TENURE_TEST_KUBERNETES"},
}

// measureEngines runs the benchmarks several times over, one after the other.
func measureEngines(ctx context.Context, o *options, p *part) error {
	for _, e := range engines {
		if os.Getenv(e.needs) != "" && !slices.ContainsFunc(p.Rows, func(r *row) bool { return r.What == e.pkg }) {
			p.add(native, "nanoseconds a pair, and microseconds a hand-over", e.pkg)
		}
	}
	if len(p.Rows) == 0 {
		return errors.New("there is no engine: start some with scripts/engines")
	}
	p.Setting = fmt.Sprintf("Medians of %d runs", o.size.times)
	for n := range o.size.times {
		for _, r := range p.Rows {
			o.say("%s, %d of %d", r.What, n+1, o.size.times)
			out, err := proc.Run(ctx, "", "go", "test", "-run", "^$", "-bench", ".", "-benchtime", o.size.benchtime, r.What)
			if err != nil {
				return err
			}
			p.read(r.What, out)
		}
	}
	return nil
}

// figure is a line of a benchmark: its name without the number of cores, and the time of an
// operation, or what it reports itself.
var figure = regexp.MustCompile(`(?m)^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+([0-9.]+) (?:ns/op|µs-median)`)

// read reads the figures of a package's benchmarks.
func (p *part) read(pkg, out string) {
	for _, m := range figure.FindAllStringSubmatch(strings.ReplaceAll(out, "\t", " "), -1) {
		if x, err := strconv.ParseFloat(m[2], 64); err == nil && x > 0 {
			p.found(pkg, m[1], x)
		}
	}
}

// Engines returns the rows of the table: of Tenure and of the engine's own lock.
func (p *part) Engines() (rows [][]string) {
	for _, e := range engines {
		row := []string{e.title, e.what}
		for _, c := range []struct {
			benchmark, rest string
			by              func(float64) float64
		}{
			{"AcquireRelease", "/goroutines=1", func(ns float64) float64 { return 1e9 / ns }},
			{"AcquireRelease", "/goroutines=32", func(ns float64) float64 { return 1e9 / ns }},
			{"HandOver", "", func(µs float64) float64 { return µs / 1e3 }},
		} {
			of := p.row(e.pkg).Values
			ours, theirs := of[c.benchmark+"/tenure"+c.rest].Spread, of[c.benchmark+"/"+e.own+c.rest].Spread
			cell := none
			if ours != nil && theirs != nil {
				cell = "**" + short(c.by(ours.Median)) + "**, " + short(c.by(theirs.Median))
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return rows
}
