// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package monitoring_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/tenureprom"
	"github.com/tenurelock/tenure/tenuretest"
)

// promtool runs the rules on the samples of a test file, in a folder of its own.
func promtool(t *testing.T, rules, tests string) (string, error) {
	t.Helper()
	tool := program(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"rules.yaml": rules, "rules_test.yaml": tests} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), tool, "test", "rules", "rules_test.yaml")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestRules runs promtool on the rules, and on their tests.
func TestRules(t *testing.T) {
	rules := read(t, "rules.yaml")
	out, err := exec.CommandContext(t.Context(), program(t), "check", "rules", filepath.Join(guides, "rules.yaml")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "8 rules found") {
		t.Errorf("promtool check rules: %v\n%s", err, out)
	}
	if out, err := promtool(t, rules, read(t, "rules_test.yaml")); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

var rulePattern = regexp.MustCompile(`(?s)- alert: (\w+)\n(.*?)\n        labels:`)

// TestRulesBite breaks each rule in three ways, and has the tests of the rules find it.
func TestRulesBite(t *testing.T) {
	rules, tests := read(t, "rules.yaml"), read(t, "rules_test.yaml")
	found := rulePattern.FindAllStringSubmatch(rules, -1)
	if len(found) != 8 {
		t.Fatalf("%d rules", len(found))
	}
	for _, rule := range found {
		for what, expr := range map[string]string{
			"never fires":  "vector(0) > 1",
			"always fires": `label_replace(vector(1), "name", "leader", "", "")`,
		} {
			broken := strings.Replace(rules, rule[2], "        expr: '"+expr+"'", 1)
			if out, err := promtool(t, broken, tests); err == nil {
				t.Errorf("%s that %s passes its tests:\n%s", rule[1], what, out)
			}
		}
	}
	for _, change := range [][2]string{
		{"> 2 * tenure_lock_lease_seconds", "> 3 * tenure_lock_lease_seconds"},
		{"> 2 * tenure_lock_lease_seconds", "> 1 * tenure_lock_lease_seconds"},
		{" and tenure_lock_expected == 1\n          )\n        labels:\n          severity: critical", "\n          )\n        labels:\n          severity: critical"},
		{"for: 1m", "for: 0s"},
		{"by (job, name) (leader", "by (name) (leader"},
		{"[1h]", "[1m]"},
		{"[15m]) > 5", "[15m]) > 0"},
		{"or\n          tenure_slack_seconds < 0", ""},
		{" or absent(tenure_store_up)", ""},
		{"for: 2m", "for: 30s"},
		{"> 1.5 * tenure_once", "> 1 * tenure_once"},
		{"> 1.5 * tenure_once", "> 2 * tenure_once"},
	} {
		broken := strings.Replace(rules, change[0], change[1], 1)
		if broken == rules {
			t.Errorf("the rules have no %q", change[0])
			continue
		}
		if out, err := promtool(t, broken, tests); err == nil {
			t.Errorf("rules with %q instead of %q pass their tests:\n%s", change[1], change[0], out)
		}
	}
}

// samples are series as promtool has them: a value, or _, for each scrape.
type samples struct {
	n          int
	series     map[string][]string
	histograms bool // are taken too: the rules have none
}

// scrape adds what a program shows; nil if it does not run.
func (s *samples) scrape(t *testing.T, instance string, c client.Collector) {
	t.Helper()
	if c == nil {
		return
	}
	r := client.NewPedanticRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := []string{fmt.Sprintf("instance=%q", instance), `job="app"`}
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				s.add(f.GetName(), labels, m.GetCounter().GetValue())
			case dto.MetricType_GAUGE:
				s.add(f.GetName(), labels, m.GetGauge().GetValue())
			case dto.MetricType_HISTOGRAM:
				if !s.histograms {
					continue
				}
				for _, b := range m.GetHistogram().GetBucket() {
					le := fmt.Sprintf("le=%q", strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64))
					s.add(f.GetName()+"_bucket", append(slices.Clip(labels), le), float64(b.GetCumulativeCount()))
				}
				s.add(f.GetName()+"_bucket", append(slices.Clip(labels), `le="+Inf"`), float64(m.GetHistogram().GetSampleCount()))
			}
		}
	}
}

func (s *samples) add(name string, labels []string, value float64) {
	name += "{" + strings.Join(labels, ",") + "}"
	list := s.series[name]
	for len(list) < s.n {
		list = append(list, "_")
	}
	s.series[name] = append(list, strconv.FormatFloat(value, 'g', 10, 64))
}

// round ends a round of scrapes. What was not shown in it any more is stale, as a Prometheus
// marks it.
func (s *samples) round() {
	s.n++
	for name, list := range s.series {
		if len(list) < s.n && list[len(list)-1] != "_" && list[len(list)-1] != "stale" {
			s.series[name] = append(list, "stale")
		}
	}
}

// length is how long the samples were taken, as promtool has it.
func (s *samples) length() string { return fmt.Sprint(15*s.n, "s") }

// fires tests that an alert fires at some time, and no others; none if it is empty.
func (s *samples) fires(t *testing.T, alert string) {
	t.Helper()
	want := "[]"
	if alert != "" {
		want = fmt.Sprintf("[{labels: '{alertname=%q}', value: 1}]", alert)
	}
	s.test(t, map[string]string{
		`group by (alertname) (count_over_time(ALERTS{alertstate="firing"}[` + s.length() + `]))`: want,
	})
}

// test has promtool run the rules, and compare what expressions have at the end.
func (s *samples) test(t *testing.T, want map[string]string) {
	t.Helper()
	var b strings.Builder
	b.WriteString("rule_files: [rules.yaml]\nevaluation_interval: 15s\ntests:\n  - interval: 15s\n    input_series:\n")
	for name, values := range s.series {
		fmt.Fprintf(&b, "      - series: '%s'\n        values: '%s'\n", name, strings.Join(values, " "))
	}
	b.WriteString("    promql_expr_test:\n")
	for expr, samples := range want {
		fmt.Fprintf(&b, "      - {expr: %s, eval_time: %s, exp_samples: %s}\n", strconv.Quote(expr), s.length(), samples)
	}
	if out, err := promtool(t, read(t, "rules.yaml"), b.String()); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// group is three programs that campaign for the election "leader", and an exporter, in
// virtual time, which a Prometheus would scrape each 15 seconds.
type group struct {
	t       *testing.T
	w       *tenuretest.World
	s       samples
	members map[string]*member
	locks   *tenureprom.Locks
	watcher *tenuretest.Client // the exporter's
	asks    *tenuretest.Client // an operator's
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
	g := &group{t: t, w: tenuretest.New(t), s: samples{series: map[string][]string{}}, members: map[string]*member{}}
	g.watcher, g.asks = g.w.Client("exporter"), g.w.Client("operator")
	var err error
	if g.locks, err = tenureprom.NewLocks(g.watcher.Client, &tenureprom.LocksOptions{Leaders: []string{"leader"}, Names: []string{"job"}}); err != nil {
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
	ctx, stop := context.WithCancel(g.t.Context())
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
	g.t.Fatal("the leader is no member")
	return nil
}

// stepDown has the leader step down.
func (g *group) stepDown() {
	g.t.Helper()
	if err := g.asks.StepDown(g.t.Context(), "leader", &tenure.StepDownOptions{Reason: "a test"}); err != nil {
		g.t.Fatal(err)
	}
}

// end stops a program in order, and takes it away.
func (g *group) end(name string) {
	m := g.members[name]
	m.stop()
	<-m.done
	_ = m.c.Close(context.WithoutCancel(g.t.Context()))
	delete(g.members, name)
}

// pass scrapes for that long.
func (g *group) pass(d time.Duration) {
	for range int(d / (15 * time.Second)) {
		time.Sleep(15 * time.Second)
		for name, m := range g.members {
			g.s.scrape(g.t, name, m.m)
		}
		g.s.scrape(g.t, "exporter", g.locks)
		g.s.round()
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
				_ = cron.Run(ctx, "job", nil, func(context.Context, *tenure.Lease) error { time.Sleep(5 * time.Second); return nil })
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
		for name, m := range g.members {
			if m.c == leader.Client {
				leader.Kill() // it comes back after a minute, as a new program
				delete(g.members, name)
				g.pass(time.Minute)
				g.start("again", g.w)
			}
		}
		g.pass(30 * time.Minute)
		g.w.Partition() // of all, for less than a heartbeat and its timeouts need
		time.Sleep(3 * time.Second)
		g.w.Heal()
		g.pass(10 * time.Minute)
		for _, m := range g.members {
			m.c.Slow(500 * time.Millisecond)
		}
		g.pass(time.Hour)
		if g.s.n < 700 {
			t.Fatalf("%d scrapes", g.s.n)
		}
		g.s.fires(t, "")
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
			g.start("elsewhere", tenuretest.New(g.t))
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
			_ = g.asks.StepDown(g.t.Context(), "leader", &tenure.StepDownOptions{Reason: "a test"}) // it may have to give up
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
			rec, err := g.w.Store().Get(g.t.Context(), "leader", driver.Strong)
			if err == nil {
				err = g.w.Store().Delete(g.t.Context(), rec)
			}
			if err != nil {
				g.t.Fatal(err)
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
				g.s.fires(t, alert)
			})
		})
	}
}
