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
	"strconv"
	"strings"
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
	tool := program(t, "promtool")
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
	out, err := exec.CommandContext(t.Context(), program(t, "promtool"), "check", "rules", filepath.Join(guides, "rules.yaml")).CombinedOutput()
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
	n      int
	series map[string][]string
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
			var value float64
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				value = m.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				value = m.GetGauge().GetValue()
			default:
				continue // the rules have no histograms
			}
			name := f.GetName() + "{" + strings.Join(labels, ",") + "}"
			list := s.series[name]
			for len(list) < s.n {
				list = append(list, "_")
			}
			s.series[name] = append(list, strconv.FormatFloat(value, 'g', 10, 64))
		}
	}
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

// file is a test for promtool: these alerts fire at some time, and no others.
func (s *samples) file(fires map[string]bool) string {
	var b strings.Builder
	b.WriteString("rule_files: [rules.yaml]\nevaluation_interval: 15s\ntests:\n  - interval: 15s\n    input_series:\n")
	for name, values := range s.series {
		fmt.Fprintf(&b, "      - series: '%s'\n        values: '%s'\n", name, strings.Join(values, " "))
	}
	b.WriteString("    promql_expr_test:\n")
	fmt.Fprintf(&b, "      - expr: group by (alertname) (count_over_time(ALERTS{alertstate=\"firing\"}[%ds]))\n        eval_time: %ds\n        exp_samples:\n", 15*s.n, 15*s.n)
	for name := range fires {
		fmt.Fprintf(&b, "          - {labels: '{alertname=%q}', value: 1}\n", name)
	}
	if len(fires) == 0 {
		b.WriteString("          []\n")
	}
	return b.String()
}

// group is three programs that campaign for the election "leader", and an exporter, in
// virtual time, which a Prometheus would scrape each 15 seconds.
type group struct {
	t       *testing.T
	w       *tenuretest.World
	s       samples
	members map[string]*member
	locks   *tenureprom.Locks
	watcher *tenuretest.Client
}

type member struct {
	c    *tenuretest.Client
	m    *tenureprom.Metrics
	stop context.CancelFunc
	done chan struct{}
}

func newGroup(t *testing.T) *group {
	g := &group{t: t, w: tenuretest.New(t), s: samples{series: map[string][]string{}}, members: map[string]*member{}}
	g.watcher = g.w.Client("exporter")
	var err error
	if g.locks, err = tenureprom.NewLocks(g.watcher.Client, &tenureprom.LocksOptions{Leaders: []string{"leader"}, Names: []string{"job"}}); err != nil {
		t.Fatal(err)
	}
	go func() { _ = g.locks.Run(t.Context(), nil) }()
	for _, name := range []string{"a", "b", "c"} {
		g.start(name)
	}
	return g
}

func (g *group) start(name string) {
	m := tenureprom.New(&tenureprom.Options{Elections: []string{"leader"}})
	c := g.w.Client(name, m.Attach)
	ctx, stop := context.WithCancel(g.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Election("leader", nil).Run(ctx, func(ctx context.Context, lease *tenure.Lease) error {
			for ctx.Err() == nil {
				_ = lease.Do(ctx, time.Second, func(context.Context) error { time.Sleep(time.Second); return nil })
				time.Sleep(time.Second)
			}
			return nil
		})
	}()
	g.members[name] = &member{c, m, stop, done}
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
			g.start(name + strconv.Itoa(i))
			g.pass(time.Minute)
		}
		g.pass(30 * time.Minute)
		leader := g.w.Leader("leader")
		for name, m := range g.members {
			if m.c == leader.Client {
				leader.Kill() // it comes back after a minute, as a new program
				delete(g.members, name)
				g.pass(time.Minute)
				g.start("again")
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
		for _, wanted := range []string{"leader_election_master_status", "tenure_lock_vacant_seconds", "tenure_heartbeats_late_total", "tenure_lock_tenures_total", "tenure_store_up"} {
			if !strings.Contains(g.s.file(nil), wanted) {
				t.Errorf("no samples of %s", wanted)
			}
		}
		tests := g.s.file(nil)
		if out, err := promtool(t, read(t, "rules.yaml"), tests); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
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
			operator := g.w.Client("operator")
			for range 8 {
				if err := operator.StepDown(g.t.Context(), "leader", "a test"); err != nil {
					g.t.Fatal(err)
				}
				g.pass(time.Minute)
			}
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
			g.start("d")
			g.pass(3 * time.Minute)
		},
	} {
		t.Run(alert, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t)
				g.pass(10 * time.Minute)
				harm(g)
				if out, err := promtool(t, read(t, "rules.yaml"), g.s.file(map[string]bool{alert: true})); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		})
	}
}
