// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Command native measures Tenure on each engine beside the locks that the engine, or its
// client, brings: pairs of acquire and release a second, and the times of a hand-over and
// of a fail-over.
//
//	scripts/engines run etcd zookeeper postgres kubernetes -- go run ./evidence/native -json evidence/native/results.json -markdown docs/evidence/performance.md
//
// It runs the benchmarks of the stores' own tests several times over, one after the other,
// so that what is compared was measured within seconds.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/machine"
	"github.com/tenurelock/tenure/evidence/bed/page"
)

// command is what the page says it is made by.
const command = "make native"

// engine is one whose benchmarks there are.
type engine struct {
	name, title string
	pkg         string // with the benchmarks
	native      string // how these call the engine's own lock
	what        string // that is
	needs       string // the variable without which it is not looked at
}

var engines = []engine{
	{"etcd", "etcd", "./etcdstore", "mutex", "`concurrency.Mutex`", "TENURE_TEST_ETCD"},
	{"zookeeper", "ZooKeeper", "./internal/itest/zookeeper", "native", "`zk.Lock` of go-zookeeper", "TENURE_TEST_ZOOKEEPER"},
	{"postgres", "PostgreSQL", "./pgstore", "updates", "two plain updates, as durable", "TENURE_TEST_POSTGRES"},
	{"advisory", "PostgreSQL", "./pgstore", "advisory", "advisory locks, not durable", "TENURE_TEST_POSTGRES"},
	{"kubernetes", "Kubernetes", "./k8sstore", "elector", "the calls of client-go's elector", "TENURE_TEST_KUBERNETES"},
}

// report is what a run has found: by benchmark and way, a figure of each repetition.
type report struct {
	Date    string          `json:"date"`
	Machine machine.Machine `json:"machine"`
	Times   int             `json:"times"`
	// Figures are nanoseconds a pair, or microseconds a hand-over or a fail-over, by the
	// package, the benchmark and the way.
	Figures map[string][]float64 `json:"figures"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "native:", err)
		os.Exit(1) //nolint:gocritic // the signal is not needed any more
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("native", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var (
		times  = flags.Int("times", 5, "how often each benchmark is run")
		length = flags.String("benchtime", "1s", "how long a run takes, as `go test -benchtime` has it")
		toJSON = flags.String("json", "", "write what was found to this `file`")
		toPage = flags.String("markdown", "", "write the tables into this `file`, between its marks")
	)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *times < 1 {
		return fmt.Errorf("-times %d: want 1 at least", *times)
	}
	r := &report{Date: time.Now().UTC().Format(time.DateTime) + " UTC", Machine: machine.Here(), Times: *times, Figures: map[string][]float64{}}
	var packages []string
	for _, e := range engines {
		if os.Getenv(e.needs) != "" && !slices.Contains(packages, e.pkg) {
			packages = append(packages, e.pkg)
		}
	}
	if len(packages) == 0 {
		return fmt.Errorf("there is no engine: start some with scripts/engines")
	}
	for n := range *times {
		for _, pkg := range packages {
			fmt.Fprintf(stderr, "native: %s, %d of %d\n", pkg, n+1, *times)
			// A fail-over takes a lease: one of each is enough.
			for benchmarks, length := range map[string]string{"AcquireRelease|HandOver": *length, "FailOver": "1x"} {
				out, err := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", benchmarks, "-benchtime", length, pkg).Output()
				if err != nil {
					return fmt.Errorf("%s: %w\n%s", pkg, err, out)
				}
				r.read(pkg, out)
			}
		}
	}
	r.Machine.LoadAfter = machine.Load()
	return page.Publish(r, r.markdown(), command, stdout, *toJSON, *toPage)
}

// figure is a line of a benchmark: its name without the number of cores, and the time of an
// operation, or what it reports itself.
var figure = regexp.MustCompile(`(?m)^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+([0-9.]+) (?:ns/op|µs-median|µs-failover)`)

func (r *report) read(pkg string, out []byte) {
	for _, m := range figure.FindAllSubmatch(bytes.ReplaceAll(out, []byte("\t"), []byte(" ")), -1) {
		if x, err := strconv.ParseFloat(string(m[2]), 64); err == nil && x > 0 {
			key := pkg + " " + string(m[1])
			r.Figures[key] = append(r.Figures[key], x)
		}
	}
}

// of returns the figures of a way, nil if there are none.
func (r *report) of(e engine, benchmark, way, rest string) []float64 {
	return r.Figures[e.pkg+" "+benchmark+"/"+way+rest]
}

func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Made on %s, on %v. Medians of %d runs: Tenure's, then the other's.\n\n",
		r.Date, r.Machine, r.Times)
	perSecond := func(ns float64) float64 { return 1e9 / ns }
	var rows [][]string
	for _, e := range engines {
		row := []string{e.title, e.what}
		for _, c := range []struct {
			benchmark, rest string
			by              func(float64) float64
		}{
			{"AcquireRelease", "/goroutines=1", perSecond},
			{"AcquireRelease", "/goroutines=32", perSecond},
			{"HandOver", "", func(µs float64) float64 { return µs / 1e3 }},
			{"FailOver", "", func(µs float64) float64 { return µs / 1e6 }},
		} {
			row = append(row, beside(r.of(e, c.benchmark, "tenure", c.rest), r.of(e, c.benchmark, e.native, c.rest), c.by))
		}
		rows = append(rows, row)
	}
	page.Table(&b, []string{"engine", "beside", "pairs a second, 1 goroutine:", "32 goroutines:", "hand-over, ms:", "fail-over, s:"}, rows)
	return b.String()
}

// beside is the median of Tenure's figures and of the others', turned into another unit.
func beside(ours, theirs []float64, by func(float64) float64) string {
	if ours == nil || theirs == nil {
		return "–"
	}
	median := func(all []float64) string {
		all = slices.Sorted(slices.Values(all))
		return page.Amount(round(by(all[len(all)/2])))
	}
	return "**" + median(ours) + "**, " + median(theirs)
}

// round keeps three digits.
func round(x float64) float64 {
	short, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 3, 64), 64)
	if err != nil {
		return x
	}
	return short
}
