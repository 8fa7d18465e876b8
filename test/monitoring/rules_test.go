// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package monitoring_test runs the alert rules and the queries of the board in
// docs/guides/monitoring on the metrics of programs and of an exporter, under faults.
package monitoring_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/tenureprom"
	"github.com/tenurelock/tenure/tenuretest"
)

// guides has the files that users copy.
const guides = "../../docs/guides/monitoring"

func read(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(guides, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// promtool runs the rules on the samples of a test file, in a folder of its own.
func promtool(t *testing.T, rules, tests string) (string, error) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		enginetest.Missing(t, "promtool", "scripts/setup installs it")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"rules.yaml": rules, "rules_test.yaml": tests} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "promtool", "test", "rules", "rules_test.yaml")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestRules runs promtool on the rules, and on their tests.
func TestRules(t *testing.T) {
	if out, err := promtool(t, read(t, "rules.yaml"), read(t, "rules_test.yaml")); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestRulesBite breaks each rule in some ways, and has the tests of the rules find it.
func TestRulesBite(t *testing.T) {
	rules, tests := read(t, "rules.yaml"), read(t, "rules_test.yaml")
	const critical = "\n          )\n        labels:\n          severity: critical"
	changes := [][2]string{
		{"> 2 * tenure_lock_lease_seconds", "> 3 * tenure_lock_lease_seconds"},
		{"> 2 * tenure_lock_lease_seconds", "> 1 * tenure_lock_lease_seconds"},
		{" and tenure_lock_expected == 1" + critical, critical},
		{"for: 1m", "for: 0s"},
		{"by (job, name) (leader", "by (name) (leader"},
		{"[1h]", "[1m]"},
		{"[15m]) > 5", "[15m]) > 0"},
		{"or\n          tenure_slack_seconds < 0", ""},
		{" or absent(tenure_store_up)", ""},
		{"for: 2m", "for: 30s"},
		{"> 1.5 * tenure_once", "> 1 * tenure_once"},
		{"> 1.5 * tenure_once", "> 2 * tenure_once"},
	}
	found := rulePattern.FindAllStringSubmatch(rules, -1)
	if len(found) != 8 {
		t.Fatalf("%d rules", len(found))
	}
	for _, rule := range found {
		const never, always = "vector(0) > 1", `label_replace(vector(1), "name", "leader", "", "")`
		changes = append(changes, [2]string{rule[1], "expr: '" + never + "'"}, [2]string{rule[1], "expr: '" + always + "'"})
	}
	for _, change := range changes {
		broken := strings.Replace(rules, change[0], change[1], 1)
		if out, err := promtool(t, broken, tests); err == nil || broken == rules {
			t.Errorf("rules with %q instead of %q pass their tests:\n%s", change[1], change[0], out)
		}
	}
}

var rulePattern = regexp.MustCompile(`(?s)- alert: \w+\n *(expr: .*?)\n        labels:`)

// group is three programs that campaign for the election "leader", and an exporter, in virtual
// time, and the series that a Prometheus would scrape each 15 seconds.
type group struct {
	*testing.T
	w       *tenuretest.World
	members map[string]*member
	locks   *tenureprom.Locks
	watcher *tenuretest.Client // the exporter's
	asks    *tenuretest.Client // an operator's

	scrapes    int
	series     map[string][]string // as promtool has them: a value, or _, for each scrape
	histograms bool                // are taken too: the rules have none
}

// scrape adds what a program shows.
func (g *group) scrape(instance string, c client.Collector) {
	g.Helper()
	r := client.NewPedanticRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		g.Fatal(err)
	}
	var shown strings.Builder
	for _, f := range families {
		if f.GetType().String() == "HISTOGRAM" && !g.histograms {
			continue
		}
		if _, err := expfmt.MetricFamilyToText(&shown, f); err != nil {
			g.Fatal(err)
		}
	}
	for _, sample := range samplePattern.FindAllStringSubmatch(shown.String(), -1) {
		name := fmt.Sprintf("%s{instance=%q,job=\"app\",%s}", sample[1], instance, sample[2])
		list := g.series[name]
		for len(list) < g.scrapes {
			list = append(list, "_")
		}
		g.series[name] = append(list, sample[3])
	}
}

var samplePattern = regexp.MustCompile(`(?m)^([a-z_]+)(?:\{(.*)\})? (\S+)$`)

// length is how long the samples were taken, as promtool has it.
func (g *group) length() string { return fmt.Sprint(15*g.scrapes, "s") }

// fires tests that an alert fires at some time, and no others; none if it is empty.
func (g *group) fires(alert string) {
	g.Helper()
	want := "[]"
	if alert != "" {
		want = fmt.Sprintf("[{labels: '{alertname=%q}', value: 1}]", alert)
	}
	firing := `group by (alertname) (count_over_time(ALERTS{alertstate="firing"}[` + g.length() + `]))`
	g.test(map[string]string{firing: want})
}

// test has promtool run the rules, and compare what expressions have at the end.
func (g *group) test(want map[string]string) {
	g.Helper()
	var b strings.Builder
	b.WriteString("rule_files: [rules.yaml]\nevaluation_interval: 15s\ntests:\n  - interval: 15s\n    input_series:\n")
	for name, values := range g.series {
		fmt.Fprintf(&b, "      - series: '%s'\n        values: '%s'\n", name, strings.Join(values, " "))
	}
	b.WriteString("    promql_expr_test:\n")
	for expr, samples := range want {
		fmt.Fprintf(&b, "      - {expr: %s, eval_time: %s, exp_samples: %s}\n", strconv.Quote(expr), g.length(), samples)
	}
	if out, err := promtool(g.T, read(g, "rules.yaml"), b.String()); err != nil {
		g.Errorf("%v\n%s", err, out)
	}
}

type member struct {
	c     *tenuretest.Client
	m     *tenureprom.Metrics
	lease atomic.Pointer[tenure.Lease] // the last one
	deaf  atomic.Bool                  // its work does not stop when it is asked to
	stop  context.CancelFunc
	done  chan struct{}
}

func newGroup(t *testing.T) *group {
	g := &group{T: t, w: tenuretest.New(t), series: map[string][]string{}, members: map[string]*member{}}
	g.watcher, g.asks = g.w.Client("exporter"), g.w.Client("operator")
	var err error
	options := &tenureprom.LocksOptions{Leaders: []string{"leader"}, Names: []string{"job"}}
	if g.locks, err = tenureprom.NewLocks(g.watcher.Client, options); err != nil {
		t.Fatal(err)
	}
	go func() { _ = g.locks.Run(t.Context(), nil) }()
	for _, name := range []string{"a", "b", "c"} {
		g.start(name, g.w)
	}
	return g
}

func (g *group) start(name string, w *tenuretest.World, edit ...func(*tenure.Options)) {
	metrics := tenureprom.New(&tenureprom.Options{Elections: []string{"leader"}})
	m := &member{c: w.Client(name, append(edit, metrics.Attach)...), m: metrics, done: make(chan struct{})}
	ctx, stop := context.WithCancel(g.Context())
	m.stop = stop
	go func() {
		defer close(m.done)
		_ = m.c.Election("leader", nil).Run(ctx, func(ctx context.Context, lease *tenure.Lease) error {
			m.lease.Store(lease)
			for ctx.Err() == nil {
				_ = lease.Do(ctx, time.Second, func(context.Context) error { time.Sleep(time.Second); return nil })
				time.Sleep(time.Second)
			}
			if m.deaf.Swap(false) {
				time.Sleep(time.Minute)
			}
			return nil
		})
	}()
	g.members[name] = m
}

// leader returns the program that leads.
func (g *group) leader() *member {
	leads := g.w.Leader("leader")
	for _, m := range g.members {
		if m.c == leads.Client {
			return m
		}
	}
	g.Fatal("the leader is no member")
	return nil
}

// stepDown has the leader step down.
func (g *group) stepDown() {
	g.Helper()
	if err := g.asks.StepDown(g.Context(), "leader", &tenure.StepDownOptions{Reason: "a test"}); err != nil {
		g.Fatal(err)
	}
}

// end stops a program in order, and takes it away.
func (g *group) end(name string) {
	m := g.members[name]
	m.stop()
	<-m.done
	_ = m.c.Close(context.WithoutCancel(g.Context()))
	delete(g.members, name)
}

// pass scrapes for that long. What was not shown in a scrape any more is stale, as a Prometheus
// marks it.
func (g *group) pass(d time.Duration) {
	for range int(d / (15 * time.Second)) {
		time.Sleep(15 * time.Second)
		for name, m := range g.members {
			g.scrape(name, m.m)
		}
		g.scrape("exporter", g.locks)
		g.scrapes++
		for name, list := range g.series {
			if last := list[len(list)-1]; len(list) < g.scrapes && last != "_" && last != "stale" {
				g.series[name] = append(list, "stale")
			}
		}
	}
}

// TestHealthyHours has a real group work for three hours: no alert fires, although each minute
// a job runs, programs are deployed, one crashes, and the store is slow and away for seconds.
func TestHealthyHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		cron := g.w.Client("cron")
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				_ = cron.Run(ctx, "job", nil, func(context.Context, *tenure.Lease) error {
					time.Sleep(5 * time.Second)
					return nil
				})
				time.Sleep(time.Minute)
			}
		}()
		defer func() { stop(); <-done }()
		g.pass(time.Hour)
		for i, name := range []string{"a", "b", "c"} { // a deploy
			g.end(name)
			g.start(name+strconv.Itoa(i), g.w)
			g.pass(time.Minute)
		}
		g.pass(30 * time.Minute)
		leader := g.w.Leader("leader")
		leader.Kill() // it comes back after a minute, as a new program
		for name, m := range g.members {
			if m.c == leader.Client {
				delete(g.members, name)
			}
		}
		g.pass(time.Minute)
		g.start("again", g.w)
		g.pass(30 * time.Minute)
		g.w.Partition() // of all, for less than a heartbeat and its timeouts need
		time.Sleep(3 * time.Second)
		g.w.Heal()
		g.pass(10 * time.Minute)
		for _, m := range g.members {
			m.c.Slow(500 * time.Millisecond)
		}
		g.pass(time.Hour)
		if g.scrapes < 700 {
			t.Fatalf("%d scrapes", g.scrapes)
		}
		g.fires("")
	})
}

// TestUnhealthy has each alert fire for what happens to the group, and no other one.
func TestUnhealthy(t *testing.T) {
	for alert, harm := range map[string]func(g *group){
		"TenureNobodyLeads": func(g *group) {
			for _, m := range g.members {
				m.c.Kill()
			}
			clear(g.members)
			g.pass(3 * time.Minute)
		},
		"TenureFlapping": func(g *group) {
			for range 8 {
				g.stepDown()
				g.pass(time.Minute)
			}
		},
		"TenureTwoBelieve": func(g *group) {
			g.start("elsewhere", tenuretest.New(g.T))
			g.pass(3 * time.Minute)
		},
		"TenureSlackBelowGrace": func(g *group) {
			for name := range g.members {
				g.end(name)
			}
			const grace = 4 * time.Second
			g.start("strict", g.w, func(o *tenure.Options) { o.Grace = grace })
			g.pass(3 * time.Minute)
			m := g.leader()
			m.c.Partition()
			for m.lease.Load().Remaining() > grace {
				time.Sleep(50 * time.Millisecond)
			}
			m.c.Heal()
			g.pass(3 * time.Minute)
		},
		"TenureStopTimeout": func(g *group) {
			g.leader().deaf.Store(true)
			_ = g.asks.StepDown(g.Context(), "leader", &tenure.StepDownOptions{Reason: "a test"}) // it may have to give up
			g.pass(3 * time.Minute)
		},
		"TenureStoreAway": func(g *group) {
			g.watcher.Partition()
			g.pass(5 * time.Minute)
		},
		"TenureTokenFell": func(g *group) {
			for _, m := range g.members {
				m.stop()
				<-m.done
			}
			g.pass(15 * time.Second)
			rec, err := g.w.Store().Get(g.Context(), "leader", driver.Strong)
			if err == nil {
				err = g.w.Store().Delete(g.Context(), rec)
			}
			if err != nil {
				g.Fatal(err)
			}
			g.pass(15 * time.Second)
			clear(g.members)
			g.start("d", g.w)
			g.pass(3 * time.Minute)
		},
	} {
		t.Run(alert, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t)
				g.pass(10 * time.Minute)
				harm(g)
				g.fires(alert)
			})
		})
	}
}
