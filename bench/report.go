// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/internal/testbed"
)

// report is everything that a run found. The tables are made from it alone.
type report struct {
	Date    string            `json:"date"` // of the run's start, UTC
	Machine testbed.Testbed   `json:"machine"`
	Engine  string            `json:"engine"`
	Order   []string          `json:"order"`   // of the clients, in the tables
	Clients map[string]string `json:"clients"` // version and runtime
	Quick   bool              `json:"quick"`   // a smoke run, whose times mean nothing
	Units   string            `json:"units"`
	Prices  string            `json:"prices"`
	Largest int64             `json:"largestItemBytes"`
	Took    float64           `json:"tookSeconds"`
	Rows    []row             `json:"rows"`
}

// row is one line of a table.
type row struct {
	Step    string           `json:"step"`
	What    string           `json:"what"`
	Setting string           `json:"setting"`
	Kind    kind             `json:"kind"`
	Values  map[string]value `json:"values"` // by client
	// Ratio is Tenure's rate to dynamolock's of the same run.
	Ratio *spread `json:"ratioToDynamolock,omitempty"`
}

// kind is the table that a row is in.
type kind string

const (
	counted kind = "requests"
	timed   kind = "milliseconds"
	paced   kind = "pairs a second"
	crowded kind = "many locks"
	monthly kind = "a month"
)

// value is what one client did.
type value struct {
	Used *usage `json:"used,omitempty"`
	// Lost is how many locks ran out while they were to be held. What was sent
	// for the others alone is no measure.
	Lost int `json:"lost,omitempty"`
	// Dollars is the price of a million of the step, or of the step going on for
	// a month.
	Dollars float64 `json:"dollars,omitempty"`
	For     string  `json:"for,omitempty"`

	Spread *spread `json:"spread,omitempty"`

	Held *holding `json:"held,omitempty"`
}

// What Dollars are for.
const (
	aMillion = "a million"
	aMonth   = "a month"
)

// spread is what several runs gave.
type spread struct {
	Runs   int     `json:"runs"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	P99    float64 `json:"p99"`
}

func newSpread(values []float64) *spread {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	if n == 0 {
		return &spread{}
	}
	return &spread{
		Runs: n, Median: (v[(n-1)/2] + v[n/2]) / 2, Min: v[0], Max: v[n-1],
		P99: v[int(math.Ceil(0.99*float64(n)))-1], // of fewer than 100 it is the largest
	}
}

// perMillion is a value of something that happens now and then.
func perMillion(u usage) value {
	return value{Used: &u, Dollars: u.dollarsMillion(), For: aMillion}
}

// perMonth is a value of something that goes on; u is what it uses in a period.
func perMonth(u usage, period time.Duration) value {
	return value{Used: &u, Dollars: u.dollarsMonth(period), For: aMonth}
}

// of returns the rows of a kind.
func (r *report) of(k kind) (rows []row) {
	for _, row := range r.Rows {
		if row.Kind == k {
			rows = append(rows, row)
		}
	}
	return rows
}

var titles = map[string]string{tenureName: "Tenure", dynamolockName: "dynamolock", javaName: "Java client"}

// markdown returns the tables.
func (r *report) markdown() string {
	var b strings.Builder
	names := r.Order

	fmt.Fprintf(&b, "Measured on %s, in %.0f s", r.Date, r.Took)
	if r.Quick {
		b.WriteString(", as a quick run, whose times mean nothing")
	}
	fmt.Fprintf(&b, ".\n\n| | |\n| --- | --- |\n| machine | %s |\n| system | %s |\n| load at the start and the end | %s, %s |\n| engine | %s |\n",
		r.Machine.CPU, r.Machine.System, r.Machine.LoadBefore, r.Machine.LoadAfter, r.Engine)
	for _, name := range names {
		fmt.Fprintf(&b, "| %s | %s |\n", titles[name], r.Clients[name])
	}

	b.WriteString("\n### Requests, counted on the wire, and what they cost\n\n| step |")
	for _, name := range names {
		fmt.Fprintf(&b, " %s |", titles[name])
	}
	for _, name := range names {
		fmt.Fprintf(&b, " %s, $ |", titles[name])
	}
	b.WriteString(" $ for |\n| --- |" + strings.Repeat(" ---: |", 2*len(names)) + " --- |\n")
	for _, row := range r.of(counted) {
		fmt.Fprintf(&b, "| %s |", row.What)
		of := ""
		for _, name := range names {
			b.WriteString(cell(row.Values[name], func(v value) string {
				of = v.For
				if v.Lost > 0 {
					return fmt.Sprintf("%s (lost %d locks)", amount(v.Used.Requests), v.Lost)
				}
				return amount(v.Used.Requests)
			}))
		}
		for _, name := range names {
			b.WriteString(cell(row.Values[name], func(v value) string { return fmt.Sprintf("%.2f", v.Dollars) }))
		}
		fmt.Fprintf(&b, " %s |\n", of)
	}

	b.WriteString("\n### Times in milliseconds: median (range; p99) of how many\n\n")
	head(&b, names)
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(names)) + "\n")
	for _, row := range r.of(timed) {
		fmt.Fprintf(&b, "| %s |", row.What)
		for _, name := range names {
			b.WriteString(cell(row.Values[name], func(v value) string {
				return fmt.Sprintf("**%s** (%s to %s; %s) of %d", amount(v.Spread.Median), amount(v.Spread.Min), amount(v.Spread.Max), amount(v.Spread.P99), v.Spread.Runs)
			}))
		}
		b.WriteString("\n")
	}

	b.WriteString("\n### Throughput in pairs of an acquire and a release a second: median (range) of how many runs\n\n")
	head(&b, names)
	b.WriteString(" Tenure to dynamolock, run by run |\n| --- |" + strings.Repeat(" --- |", len(names)+1) + "\n")
	for _, row := range r.of(paced) {
		fmt.Fprintf(&b, "| %s |", row.What)
		for _, name := range names {
			b.WriteString(cell(row.Values[name], func(v value) string {
				return fmt.Sprintf("**%.0f** (%.0f to %.0f) of %d", v.Spread.Median, v.Spread.Min, v.Spread.Max, v.Spread.Runs)
			}))
		}
		if row.Ratio == nil {
			b.WriteString(" - |\n")
			continue
		}
		fmt.Fprintf(&b, " **%.2f** (%.2f to %.2f) |\n", row.Ratio.Median, row.Ratio.Min, row.Ratio.Max)
	}

	r.crowds(&b)
	r.months(&b)

	b.WriteString("\n### Settings of the steps\n\n")
	for _, s := range r.settings() {
		fmt.Fprintf(&b, "- %s\n", s)
	}
	fmt.Fprintf(&b, "\nUnits: %s. The largest item of any client had %d bytes. Prices: %s.\n", r.Units, r.Largest, r.Prices)
	return b.String()
}

func head(b *strings.Builder, names []string) {
	b.WriteString("| step |")
	for _, name := range names {
		fmt.Fprintf(b, " %s |", titles[name])
	}
}

// settings returns the settings of the steps, each step once.
func (r *report) settings() (all []string) {
	seen := map[string]bool{}
	for _, row := range r.Rows {
		if !seen[row.Step] {
			seen[row.Step] = true
			all = append(all, fmt.Sprintf("%s: %s.", row.Step, row.Setting))
		}
	}
	return all
}

// cell is empty for a client that has no such thing.
func cell(v value, text func(value) string) string {
	if v.Used == nil && v.Spread == nil {
		return " - |"
	}
	return " " + text(v) + " |"
}

// amount is short, and exact where it is whole.
func amount(x float64) string {
	switch {
	case x == math.Trunc(x):
		return fmt.Sprintf("%.0f", x)
	case x < 10:
		return fmt.Sprintf("%.2f", x)
	case x < 100:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}
