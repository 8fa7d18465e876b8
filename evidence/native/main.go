// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Command native measures Tenure on each engine beside the locks that the engine, or its
// client, brings: pairs of acquire and release a second, and the times of a hand-over and
// of a fail-over.
//
//	scripts/engines run etcd zookeeper postgres kubernetes -- go run ./evidence/native -json evidence/native/results.json
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
	return page.Publish(r, r.markdown(), "", stdout, *toJSON, "")
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
	fmt.Fprintf(&b, "Made on %s, on %s, %s; load at the start and the end %s and %s. Medians of %d runs, and the least and the most.\n\n",
		r.Date, r.Machine.CPU, r.Machine.System, r.Machine.LoadBefore, r.Machine.LoadAfter, r.Times)
	b.WriteString("## Pairs of acquire and release a second\n\n")
	var rows [][]string
	for _, goroutines := range []int{1, 32} {
		for _, e := range engines {
			rest := fmt.Sprint("/goroutines=", goroutines)
			ours, native := r.of(e, "AcquireRelease", "tenure", rest), r.of(e, "AcquireRelease", e.native, rest)
			if ours == nil || native == nil {
				continue
			}
			rows = append(rows, []string{
				e.title, fmt.Sprint(goroutines), spread(perSecond(ours)), spread(perSecond(r.of(e, "AcquireRelease", "store", rest))),
				e.what, spread(perSecond(native)), ratios(native, ours),
			})
		}
	}
	page.Table(&b, []string{"engine", "goroutines:", "Tenure:", "its store alone:", "beside", "that:", "Tenure to that:"}, rows)
	b.WriteString("\n## Hand-over: from a release to the grant at another client, in milliseconds\n\n")
	r.times(&b, "HandOver", 1e-3)
	b.WriteString("\n## Fail-over: from the SIGKILL of a holder's process to the grant at another client, in seconds\n\n")
	r.times(&b, "FailOver", 1e-6)
	return b.String()
}

// times writes the table of a benchmark that takes a time, by how much its microseconds
// are to be multiplied.
func (r *report) times(b *strings.Builder, benchmark string, by float64) {
	var rows [][]string
	for _, e := range engines {
		ours, native := r.of(e, benchmark, "tenure", ""), r.of(e, benchmark, e.native, "")
		if ours != nil && native != nil {
			rows = append(rows, []string{e.title, spread(scaled(ours, by)), e.what, spread(scaled(native, by)), ratios(ours, native)})
		}
	}
	page.Table(b, []string{"engine", "Tenure:", "beside", "that:", "Tenure to that:"}, rows)
}

func perSecond(ns []float64) []float64 {
	var out []float64
	for _, x := range ns {
		out = append(out, 1e9/x)
	}
	return out
}

func scaled(all []float64, by float64) []float64 {
	var out []float64
	for _, x := range all {
		out = append(out, x*by)
	}
	return out
}

// ratios returns the spread of a to b, of the same runs each.
func ratios(a, b []float64) string {
	var out []float64
	for i := range min(len(a), len(b)) {
		out = append(out, a[i]/b[i])
	}
	return spread(out)
}

// spread is the median, with the least and the most.
func spread(all []float64) string {
	if len(all) == 0 {
		return "–"
	}
	all = slices.Sorted(slices.Values(all))
	return fmt.Sprintf("**%s** (%s–%s)", page.Amount(round(all[len(all)/2])), page.Amount(round(all[0])), page.Amount(round(all[len(all)-1])))
}

// round keeps three digits.
func round(x float64) float64 {
	short, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 3, 64), 64)
	if err != nil {
		return x
	}
	return short
}
