// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/template"
	"time"

	"github.com/tenurelock/tenure/test/harness/gate"
	"github.com/tenurelock/tenure/test/harness/machine"
	"github.com/tenurelock/tenure/test/harness/page"
	"github.com/tenurelock/tenure/test/peers"
)

// part is all results of a run: results.json has the latest of each. The tables come only
// from it. Its methods may be called concurrently.
type part struct {
	Date     string          `json:"date"` // of the run's start, UTC
	Machine  machine.Machine `json:"machine"`
	Programs string          `json:"programs,omitempty"` // and their versions
	Setting  string          `json:"setting,omitempty"`
	Quick    bool            `json:"quick,omitempty"` // a smoke run, whose times mean nothing
	Wrong    []string        `json:"wrong,omitempty"` // what must not be
	Rows     []*row          `json:"rows"`

	mu sync.Mutex
}

// row is one line of a table.
type row struct {
	Kind    string           `json:"kind"` // the table that it is in
	What    string           `json:"what"`
	Setting string           `json:"setting,omitempty"`
	Values  map[string]value `json:"values"` // by client, peer or benchmark
}

// The kinds of rows.
const (
	counted = "requests"
	timed   = "milliseconds"
	paced   = "pairs a second"
	crowded = "many locks"
	monthly = "a month"
	native  = "engines"
	served  = "service"
)

// value is the result of one contestant.
type value struct {
	Used *gate.Usage `json:"used,omitempty"`
	// Period says that Used comes again in each of them; zero: that it is of one time.
	Period time.Duration `json:"periodNs,omitempty"`
	// Lost is how many locks expired that should have been held. The requests for
	// the others alone are no measure.
	Lost    int       `json:"lost,omitempty"`
	figures []float64 // from which Spread comes
	Spread  *spread   `json:"spread,omitempty"`
	Held    *holding  `json:"held,omitempty"`
}

// spread is what several runs gave.
type spread struct {
	Runs   int     `json:"runs"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spreadOf(figures []float64) *spread {
	v := slices.Sorted(slices.Values(figures))
	n := len(v)
	return &spread{Runs: n, Median: (v[(n-1)/2] + v[n/2]) / 2, Min: v[0], Max: v[n-1]}
}

// add adds rows, in the order of the table: those that are compared are often measured at once.
func (p *part) add(kind, setting string, what ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range what {
		p.Rows = append(p.Rows, &row{kind, w, setting, map[string]value{}})
	}
}

// put adds the result of one contestant to a row.
func (p *part) put(what, who string, v value) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.row(what).Values[who] = v
}

// found adds figures to one contestant's, in an existing row. It ignores figures of others.
func (p *part) found(what, who string, figures ...float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	values := p.row(what).Values
	all := append(values[who].figures, figures...)
	values[who] = value{figures: all, Spread: spreadOf(all)}
}

func (p *part) row(what string) *row {
	i := slices.IndexFunc(p.Rows, func(r *row) bool { return r.What == what })
	if i < 0 {
		return &row{Values: map[string]value{}}
	}
	return p.Rows[i]
}

// wrong notes a wrong result.
func (p *part) wrong(what ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Wrong = append(p.Wrong, what...)
}

// Of returns the rows of a kind.
func (p *part) Of(kind string) (rows []*row) {
	for _, r := range p.Rows {
		if r.Kind == kind {
			rows = append(rows, r)
		}
	}
	return rows
}

//go:embed performance.tmpl
var tables string

// markdown returns the tables of a part.
func (p *part) markdown(name string) (string, error) {
	t, err := template.New("").Funcs(template.FuncMap{
		"amount": page.Amount, "whole": whole, "join": strings.Join, "clients": func() []string { return clientNames },
		"kcl": func() string {
			return fmt.Sprintf("less %v, and its metrics every %v", peers.KCLEpsilon, peers.KCLMetrics)
		},
		"prices": func() string { return gate.PriceSource },
	}).Parse(tables)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.ExecuteTemplate(&b, name, p)
	return b.String(), err
}

// at is where the part of a name is written.
func at(name string) page.Part {
	return page.Part{
		Name: name, Command: "make " + name, Results: "test/bench/results.json", Page: "docs/evidence/performance.md",
	}
}

// none is the cell without a result.
const none = "–"

// Cell returns the text of one value.
func (r *row) Cell(as, who string) string {
	v := r.Values[who]
	switch {
	case v.Used == nil && v.Spread == nil:
		return none
	case as == "requests" && v.Lost > 0:
		return fmt.Sprintf("%s (lost %d locks)", page.Amount(v.Used.Requests), v.Lost)
	case as == "requests":
		return page.Amount(v.Used.Requests)
	case as == "price", as == "month" && v.dollars() < 10:
		return fmt.Sprintf("%.2f", v.dollars())
	case as == "month":
		return fmt.Sprintf("%.0f", v.dollars())
	case as == "time":
		return fmt.Sprintf("**%s** (%s)", page.Amount(v.Spread.Median), page.Amount(v.Spread.Max))
	case as == "rate":
		return fmt.Sprintf("%.0f", v.Spread.Median)
	case as == "ratio":
		return fmt.Sprintf("**%.2f** (%.2f to %.2f)", v.Spread.Median, v.Spread.Min, v.Spread.Max)
	}
	return short(v.Spread.Median)
}

// Cells are the results of several, side by side.
func (r *row) Cells(as string, who []string) string {
	var all []string
	for _, one := range who {
		all = append(all, r.Cell(as, one))
	}
	return strings.Join(all, " | ")
}

// For returns what the dollars of a row are for.
func (r *row) For() string {
	for _, v := range r.Values {
		if v.Period > 0 {
			return "a month"
		}
	}
	return "a million"
}

func (v value) dollars() float64 {
	if v.Period > 0 {
		return v.Used.DollarsMonth(v.Period)
	}
	return v.Used.DollarsMillion()
}

// whole rounds away the effect of a window's edges on a whole number.
func whole(x float64) float64 {
	if near := math.Round(x); math.Abs(x-near) <= 0.002*x {
		return near
	}
	return x
}

// short keeps three digits.
func short(x float64) string {
	x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', 3, 64), 64) // it was a number
	return page.Amount(x)
}
