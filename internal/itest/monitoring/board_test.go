// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package monitoring_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"

	"github.com/tenurelock/tenure/tenuretest"
)

// view is what a board has, of what is looked at.
type view struct {
	editable  *bool
	variables []dashboard.VariableModel
	all       []dashboard.PanelOrRowPanel
}

// board reads a board as Grafana's own types have it: a field that they do not know, or that
// is missing, is an error.
func board(text string) (*view, error) {
	plugins.RegisterDefaultPlugins()
	// The strict reader has all the errors, but returns an empty list of errors for none, and
	// loses the panels for that. The other one reads them.
	err := dashboard.NewDashboard().UnmarshalJSONStrict([]byte(text))
	var found cog.BuildErrors
	if err != nil && (!errors.As(err, &found) || len(found) > 0) {
		return nil, err
	}
	d := dashboard.NewDashboard()
	if err := json.Unmarshal([]byte(text), d); err != nil {
		return nil, err
	}
	return &view{d.Editable, d.Templating.List, d.Panels}, d.Validate()
}

// panels are those of the board that show something.
func panels(v *view) (list []dashboard.Panel) {
	for _, p := range v.all {
		if p.Panel != nil {
			list = append(list, *p.Panel)
		}
	}
	return list
}

// queries are the queries of a panel.
func queries(p dashboard.Panel) (list []prometheus.Dataquery) {
	for _, target := range p.Targets {
		switch q := target.(type) {
		case prometheus.Dataquery:
			list = append(list, q)
		case *prometheus.Dataquery:
			list = append(list, *q)
		}
	}
	return list
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

var (
	selectorPattern = regexp.MustCompile(`\b(?:tenure|leader)_[a-z_]+(\{[^}]*\})?`)
	rangePattern    = regexp.MustCompile(`\[([^\]]+)\]`)
	ratePattern     = regexp.MustCompile(`\b(rate|increase|irate)\(`)
	counterPattern  = regexp.MustCompile(`_(total|bucket|count|sum)\b`)
)

// lint finds what Grafana's dashboard-linter names in the list of its rules: templated data
// source, job and instance; each panel with a title, a description, a unit and that source;
// each selector with a matcher for job and instance; rates over $__rate_interval; counters
// under a rate. The program itself cannot be had from the proxy of Go modules.
func lint(d *view) (found []string) {
	bad := func(format string, a ...any) { found = append(found, fmt.Sprintf(format, a...)) }
	variables := map[string]dashboard.VariableModel{}
	for _, v := range d.variables {
		variables[v.Name] = v
	}
	if v := variables["datasource"]; v.Type != dashboard.VariableTypeDatasource || text(v.Label) != "Data source" {
		bad("no variable datasource with the label Data source")
	}
	for _, name := range []string{"job", "instance"} {
		v := variables[name]
		switch {
		case v.Type != dashboard.VariableTypeQuery || v.Query == nil:
			bad("no variable %s with a query", name)
		case v.Multi == nil || !*v.Multi || text(v.AllValue) != ".+":
			bad("the variable %s must allow several values, and .+ for all", name)
		case v.Datasource == nil || text(v.Datasource.Uid) != "${datasource}":
			bad("the variable %s must ask ${datasource}", name)
		}
	}
	if d.editable == nil || *d.editable {
		bad("the board must not be editable: it would differ from the file")
	}
	ids, titles := map[uint32]bool{}, map[string]bool{}
	for _, p := range panels(d) {
		title := text(p.Title)
		if title == "" || text(p.Description) == "" || titles[title] {
			bad("panel %q: no title of its own, or no description", title)
		}
		titles[title] = true
		if p.Id == nil || ids[*p.Id] {
			bad("panel %q: no id of its own", title)
		} else {
			ids[*p.Id] = true
		}
		if p.Datasource == nil || text(p.Datasource.Uid) != "${datasource}" {
			bad("panel %q: its data source is not ${datasource}", title)
		}
		if p.FieldConfig == nil || text(p.FieldConfig.Defaults.Unit) == "" {
			bad("panel %q: no unit", title)
		}
		if len(queries(p)) == 0 || len(queries(p)) != len(p.Targets) {
			bad("panel %q: %d targets, of which %d are queries", title, len(p.Targets), len(queries(p)))
		}
		for _, q := range queries(p) {
			for _, selector := range selectorPattern.FindAllString(q.Expr, -1) {
				for _, matcher := range []string{`job=~"$job"`, `instance=~"$instance"`} {
					if !strings.Contains(selector, matcher) {
						bad("panel %q: no %s in %s", title, matcher, selector)
					}
				}
				if counterPattern.MatchString(strings.SplitN(selector, "{", 2)[0]) && !ratePattern.MatchString(q.Expr) {
					bad("panel %q: a counter without a rate: %s", title, q.Expr)
				}
			}
			for _, span := range rangePattern.FindAllStringSubmatch(q.Expr, -1) {
				if span[1] != "$__rate_interval" {
					bad("panel %q: [%s] must be [$__rate_interval]", title, span[1])
				}
			}
			if text(q.LegendFormat) == "" {
				bad("panel %q: no legend for %s", title, q.Expr)
			}
		}
	}
	for i, a := range panels(d) {
		for _, b := range panels(d)[i+1:] {
			if g, h := a.GridPos, b.GridPos; g.X < h.X+h.W && h.X < g.X+g.W && g.Y < h.Y+h.H && h.Y < g.Y+g.H {
				bad("panels %q and %q lie over each other", text(a.Title), text(b.Title))
			}
		}
	}
	return found
}

// TestBoard checks the board by Grafana's own types, and by the rules of its linter.
func TestBoard(t *testing.T) {
	d, err := board(read(t, "board.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(panels(d)) < 10 {
		t.Errorf("%d panels", len(panels(d)))
	}
	for _, problem := range lint(d) {
		t.Error(problem)
	}
}

// TestBoardChecks breaks the board in many ways, each of which must be found.
func TestBoardChecks(t *testing.T) {
	good := read(t, "board.json")
	for _, change := range [][2]string{
		{`"label": "Data source"`, `"label": "Source"`},
		{`job=~\"$job\"`, `job=\"app\"`},
		{`instance=~\"$instance\"`, `cluster=\"a\"`},
		{`[$__rate_interval]`, `[5m]`},
		{`increase(tenure_lock_tenures_total`, `sum(tenure_lock_tenures_total`},
		{`"unit": "s"`, `"unit": ""`},
		{`"title": "Busy share"`, `"title": "Tokens"`},
		{`"description": "The fencing tokens. They never fall."`, `"description": ""`},
		{`"uid": "${datasource}"`, `"uid": "prometheus-1"`},
		{`"editable": false`, `"editable": true`},
		{`"allValue": ".+"`, `"allValue": ".*"`},
		{`"legendFormat": "grace"`, `"legendFormat": ""`},
		{`"id": 3,`, `"id": 4,`},
		{`"gridPos": {`, `"gridPosition": {`},
		{`"schemaVersion": 39`, `"schemaVersion": "39"`},
		{`"type": "state-timeline"`, `"type": "state-timeline", "mystery": true`},
		{`"y": 14`, `"y": 10`},
	} {
		if !strings.Contains(good, change[0]) {
			t.Errorf("the board has no %s", change[0])
			continue
		}
		d, err := board(strings.ReplaceAll(good, change[0], change[1]))
		if err == nil && len(lint(d)) == 0 {
			t.Errorf("%s instead of %s is not found", change[1], change[0])
		}
	}
}

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

// TestBoardAnswers has all queries of the board answered, for all jobs, instances and locks, and
// those of its variables, after what they are to show.
func TestBoardAnswers(t *testing.T) {
	d, err := board(read(t, "board.json"))
	if err != nil {
		t.Fatal(err)
	}
	variables := variableQueries(t)
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		g.s.histograms = true
		g.pass(2 * time.Minute)
		g.stepDown()
		g.watcher.Partition() // polls fail
		g.pass(time.Minute)
		g.watcher.Heal()
		g.start("elsewhere", tenuretest.New(t)) // an alert
		g.pass(5 * time.Minute)
		everything := strings.NewReplacer("$__rate_interval", g.s.length(), "$job", ".+", "$instance", ".+", "$name", ".+")
		want := map[string]string{}
		answered := func(expr string) { want["group("+everything.Replace(expr)+")"] = "[{labels: '{}', value: 1}]" }
		for _, p := range panels(d) {
			for _, q := range queries(p) {
				answered(q.Expr)
			}
		}
		for _, v := range variables {
			m := labelValues.FindStringSubmatch(v)
			if m == nil {
				t.Fatalf("%q is no query of label values", v)
			}
			answered(m[1])
		}
		if len(want) < 20 || len(variables) != 3 {
			t.Errorf("%d queries, %d variables", len(want), len(variables))
		}
		g.s.test(t, want)
	})
}

// TestBoardMetrics compares the metrics of the board and of the rules with those that the
// page lists.
func TestBoardMetrics(t *testing.T) {
	d, err := board(read(t, "board.json"))
	if err != nil {
		t.Fatal(err)
	}
	var used []string
	for _, p := range panels(d) {
		for _, q := range queries(p) {
			used = append(used, metricsIn(q.Expr)...)
		}
	}
	used = append(used, metricsIn(read(t, "rules.yaml"))...)
	slices.Sort(used)
	page := read(t, "../monitoring.md")
	for _, name := range slices.Compact(used) {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("the page does not explain %s", name)
		}
	}
}

var metricPattern = regexp.MustCompile(`\b(?:tenure_[a-z_]+|leader_election_master_status)\b`)

func metricsIn(text string) (list []string) {
	for _, name := range metricPattern.FindAllString(text, -1) {
		list = append(list, strings.TrimSuffix(name, "_bucket"))
	}
	return slices.DeleteFunc(list, func(name string) bool { return strings.HasSuffix(name, "_") })
}

// variableQueries are the queries by which the board finds jobs, instances and locks.
func variableQueries(t *testing.T) (list []string) {
	t.Helper()
	var raw struct {
		Templating struct {
			List []struct{ Type, Definition string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "board.json")), &raw); err != nil {
		t.Fatal(err)
	}
	for _, v := range raw.Templating.List {
		if v.Type == "query" {
			list = append(list, v.Definition)
		}
	}
	return list
}
