// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package monitoring_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"github.com/tenurelock/tenure/tenuretest"
)

// board is what is looked at of a board.
type board struct {
	Editable   bool
	Templating struct {
		List []struct {
			Name, Type, Label, AllValue, Definition string

			Multi      bool
			Datasource source
		}
	}
	Panels []struct {
		ID                 int
		Title, Description string

		Datasource  source
		GridPos     struct{ X, Y, W, H int }
		FieldConfig struct{ Defaults struct{ Unit string } }
		Targets     []struct{ Expr, LegendFormat string }
	}
}

type source struct{ UID string }

// readBoard reads a board. A field that Grafana's own types do not know, or miss, is an error.
func readBoard(text string) (*board, error) {
	plugins.RegisterDefaultPlugins()
	err := dashboard.NewDashboard().UnmarshalJSONStrict([]byte(text))
	if found := cog.BuildErrors(nil); errors.As(err, &found) && len(found) == 0 {
		err = nil // it returns an empty list of errors for none
	}
	valid, b := dashboard.NewDashboard(), &board{}
	err = errors.Join(err, json.Unmarshal([]byte(text), valid), json.Unmarshal([]byte(text), b))
	if err == nil {
		err = valid.Validate()
	}
	return b, err
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
func (b *board) lint() (found []string) {
	want := func(holds bool, format string, a ...any) {
		if !holds {
			found = append(found, fmt.Sprintf(format, a...))
		}
	}
	want(!b.Editable, "the board must not be editable: it would differ from the file")
	variables := map[string]bool{}
	for _, v := range b.Templating.List {
		if variables[v.Name] = true; v.Type == "datasource" {
			want(v.Label == "Data source", "the variable %s has the label %q", v.Name, v.Label)
			continue
		}
		several := v.Type == "query" && v.Multi && v.AllValue == ".+" && v.Datasource.UID == "${datasource}"
		want(several, "the variable %s must be a query of ${datasource}, with several values, and .+ for all", v.Name)
	}
	want(variables["datasource"] && variables["job"] && variables["instance"], "not all variables: %v", variables)
	const source = "${datasource}"
	ids, titles := map[int]bool{0: true}, map[string]bool{"": true}
	for i, p := range b.Panels {
		want(!ids[p.ID] && !titles[p.Title] && p.Description != "", "panel %q: id, title or description", p.Title)
		ids[p.ID], titles[p.Title] = true, true
		want(p.Datasource.UID == source && p.FieldConfig.Defaults.Unit != "", "panel %q: source or unit", p.Title)
		want(len(p.Targets) > 0, "panel %q: no query", p.Title)
		for _, q := range p.Targets {
			want(q.LegendFormat != "", "panel %q: no legend for %s", p.Title, q.Expr)
			for _, selector := range selectorPattern.FindAllString(q.Expr, -1) {
				for _, matcher := range []string{`job=~"$job"`, `instance=~"$instance"`} {
					want(strings.Contains(selector, matcher), "panel %q: no %s in %s", p.Title, matcher, selector)
				}
				metric, _, _ := strings.Cut(selector, "{")
				rated := !counterPattern.MatchString(metric) || ratePattern.MatchString(q.Expr)
				want(rated, "panel %q: a counter without a rate: %s", p.Title, q.Expr)
			}
			for _, span := range rangePattern.FindAllStringSubmatch(q.Expr, -1) {
				want(span[1] == "$__rate_interval", "panel %q: [%s]", p.Title, span[1])
			}
		}
		for _, other := range b.Panels[i+1:] {
			g, h := p.GridPos, other.GridPos
			apart := g.X >= h.X+h.W || h.X >= g.X+g.W || g.Y >= h.Y+h.H || h.Y >= g.Y+g.H
			want(apart, "panels %q and %q lie over each other", p.Title, other.Title)
		}
	}
	return found
}

var metricPattern = regexp.MustCompile(`\b(?:tenure_[a-z_]+[a-z]|leader_election_master_status)\b`)

// TestBoard checks the board by Grafana's own types, and by the rules of its linter. The page
// explains all metrics of it and of the rules.
func TestBoard(t *testing.T) {
	b, err := readBoard(read(t, "board.json"))
	if err != nil || len(b.Panels) < 10 {
		t.Fatalf("%d panels, %v", len(b.Panels), err)
	}
	for _, problem := range b.lint() {
		t.Error(problem)
	}
	page, used := read(t, "../monitoring.md"), read(t, "rules.yaml")
	for _, p := range b.Panels {
		for _, q := range p.Targets {
			used += q.Expr + "\n"
		}
	}
	for _, name := range metricPattern.FindAllString(used, -1) {
		if name = strings.TrimSuffix(name, "_bucket"); !strings.Contains(page, "`"+name+"`") {
			t.Errorf("the page does not explain %s", name)
		}
	}
}

// TestBoardBites breaks the board in many ways. The checks must find each one.
func TestBoardBites(t *testing.T) {
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
		b, err := readBoard(strings.ReplaceAll(good, change[0], change[1]))
		if err == nil && len(b.lint()) == 0 {
			t.Errorf("%s instead of %s is not found", change[1], change[0])
		}
	}
}

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

// TestBoardAnswers has all queries of the board answered, for all jobs, instances and locks, and
// those of its variables, after what they are to show.
func TestBoardAnswers(t *testing.T) {
	b, err := readBoard(read(t, "board.json"))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		g.histograms = true
		g.pass(2 * time.Minute)
		g.stepDown()
		g.watcher.Partition() // polls fail
		g.pass(time.Minute)
		g.watcher.Heal()
		g.start("elsewhere", tenuretest.New(t)) // an alert
		g.pass(5 * time.Minute)
		everything := strings.NewReplacer("$__rate_interval", g.length(), "$job", ".+", "$instance", ".+", "$name", ".+")
		want := map[string]string{}
		answered := func(expr string) { want["group("+everything.Replace(expr)+")"] = "[{labels: '{}', value: 1}]" }
		for _, p := range b.Panels {
			for _, q := range p.Targets {
				answered(q.Expr)
			}
		}
		for _, v := range b.Templating.List {
			if m := labelValues.FindStringSubmatch(v.Definition); m != nil {
				answered(m[1])
			} else if v.Type == "query" {
				t.Errorf("%q is no query of label values", v.Definition)
			}
		}
		if len(want) < 20 {
			t.Errorf("%d queries", len(want))
		}
		g.test(want)
	})
}
