// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tenurelock/tenure/evidence/bed/page"
	"github.com/tenurelock/tenure/evidence/peers"
)

// crowds writes the table of many locks in one process, and what one client has to
// the other with as many locks.
func (r *report) crowds(b *strings.Builder) {
	rows := r.of(crowded)
	if len(rows) == 0 {
		return
	}
	b.WriteString("\n### Many locks in one process: Tenure under one session, dynamolock with a heartbeat for each\n\n")
	locks := func(of row, name string) int {
		if h := of.Values[name].Held; h != nil {
			return h.Locks
		}
		return 0
	}
	var table [][]string
	for _, name := range r.Order {
		slices.SortStableFunc(rows, func(a, b row) int { return locks(a, name) - locks(b, name) })
		for _, row := range rows {
			h := row.Values[name].Held
			if h == nil {
				continue
			}
			table = append(table, []string{
				titles[name], fmt.Sprint(h.Locks), fmt.Sprint(h.Hold.Lost), page.Amount(round(h.Holding.Requests)), fmt.Sprintf("%.2f", h.CPUMinute()),
				fmt.Sprintf("%.0f", h.PerLock(h.Acquire.Heap)), fmt.Sprintf("%.0f", h.PerLock(h.Acquire.RSS)), fmt.Sprint(h.Hold.Goroutines),
				fmt.Sprintf("%.1f", h.Acquire.Took), page.Amount(h.Closing.Requests),
			})
		}
	}
	page.Table(b, []string{
		"client", "locks:", "lost:", "requests a heartbeat period:", "processor, s a minute:", "heap a lock, bytes:", "resident a lock, bytes:",
		"goroutines, at most:", "s to take them:", "requests to close:",
	}, table)
	for _, row := range rows {
		ours, theirs := row.Values[tenureName].Held, row.Values[dynamolockName].Held
		if ours == nil || theirs == nil {
			continue
		}
		fmt.Fprintf(b, "\nTenure to dynamolock, %s each, in this run: requests a heartbeat period %.4f", row.What, ours.Holding.Requests/theirs.Holding.Requests)
		if theirs.Hold.Lost > 0 {
			fmt.Fprintf(b, " (of the %d locks that dynamolock did not lose)", theirs.Locks-theirs.Hold.Lost)
		}
		fmt.Fprintf(b, ", processor %.2f, heap a lock %.2f, time to take them %.2f.\n",
			ours.Hold.CPU/theirs.Hold.CPU, ours.PerLock(ours.Acquire.Heap)/theirs.PerLock(theirs.Acquire.Heap), ours.Acquire.Took/theirs.Acquire.Took)
	}
}

// round leaves out what the edges of a window do to a whole number.
func round(x float64) float64 {
	if whole := math.Round(x); math.Abs(x-whole) <= 0.002*x {
		return whole
	}
	return x
}

// months writes the table of what costs how much a month.
func (r *report) months(b *strings.Builder) {
	rows := r.of(monthly)
	if len(rows) == 0 {
		return
	}
	b.WriteString("\n### A month on DynamoDB, from counted requests, beside the arithmetic of the Kinesis Client Library\n\n")
	writes := func(v value) string { return page.Amount(v.Used.WriteUnits) }
	price := func(v value) string { return dollars(v.Dollars) }
	var table [][]string
	for _, row := range rows {
		v, kcl := row.Values[tenureName], row.Values[kclName]
		table = append(table, []string{
			row.What, page.Amount(v.Used.Requests), writes(v), page.Amount(v.Used.ReadUnits), price(v),
			cell(kcl, writes), cell(kcl, price), cell(kcl, func(kcl value) string { return fmt.Sprintf("%.4f", v.Dollars/kcl.Dollars) }),
		})
	}
	page.Table(b, []string{
		"what goes on", "requests a second:", "write units a second:", "read units a second:", "$ a month:", "KCL, write units a second:", "KCL, $ a month:", "Tenure to KCL:",
	}, table)
	fmt.Fprintf(b, "\nKCL is not run. By the periods in its source a worker writes each lease in a third of the failover time less %v, its metrics each %v, and asks an index for its "+
		"leases each failover time: half a read unit at least. The failover time is the lease of the row. What its leader reads is left out.\n", peers.KCLEpsilon, peers.KCLMetrics)
}

func dollars(x float64) string {
	if x < 10 {
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

var titles = map[string]string{tenureName: "Tenure", dynamolockName: "dynamolock", javaName: "Java client"}

// markdown returns the tables.
func (r *report) markdown() string {
	var b strings.Builder

	fmt.Fprintf(&b, "Measured on %s, in %.0f s", r.Date, r.Took)
	if r.Quick {
		b.WriteString(", as a quick run, whose times mean nothing")
	}
	fmt.Fprintf(&b, ".\n\n| | |\n| --- | --- |\n%s| engine | %s |\n", r.Machine.Rows(), r.Engine)
	for _, name := range r.Order {
		fmt.Fprintf(&b, "| %s | %s |\n", titles[name], r.Clients[name])
	}

	b.WriteString("\n### Requests, counted on the wire, and what they cost\n\n")
	requests := func(v value) string {
		if v.Lost > 0 {
			return fmt.Sprintf("%s (lost %d locks)", page.Amount(v.Used.Requests), v.Lost)
		}
		return page.Amount(v.Used.Requests)
	}
	price := func(v value) string { return fmt.Sprintf("%.2f", v.Dollars) }
	r.table(&b, counted, slices.Concat(r.heads(":"), r.heads(", $:"), []string{"$ for"}), func(row row) []string {
		return slices.Concat(r.each(row, requests), r.each(row, price), []string{dollarsFor(row)})
	})

	b.WriteString("\n### Times in milliseconds: median (range; p99) of how many\n\n")
	spread := func(v value) string {
		return fmt.Sprintf("**%s** (%s to %s; %s) of %d", page.Amount(v.Spread.Median), page.Amount(v.Spread.Min), page.Amount(v.Spread.Max), page.Amount(v.Spread.P99), v.Spread.Runs)
	}
	r.table(&b, timed, r.heads(""), func(row row) []string { return r.each(row, spread) })

	b.WriteString("\n### Throughput in pairs of an acquire and a release a second: median (range) of how many runs\n\n")
	pace := func(v value) string {
		return fmt.Sprintf("**%.0f** (%.0f to %.0f) of %d", v.Spread.Median, v.Spread.Min, v.Spread.Max, v.Spread.Runs)
	}
	r.table(&b, paced, append(r.heads(""), "Tenure to dynamolock, run by run"), func(row row) []string {
		ratio := "-"
		if row.Ratio != nil {
			ratio = fmt.Sprintf("**%.2f** (%.2f to %.2f)", row.Ratio.Median, row.Ratio.Min, row.Ratio.Max)
		}
		return append(r.each(row, pace), ratio)
	})

	r.crowds(&b)
	r.months(&b)

	b.WriteString("\n### Settings of the steps\n\n")
	for _, s := range r.settings() {
		fmt.Fprintf(&b, "- %s\n", s)
	}
	fmt.Fprintf(&b, "\nUnits: %s. The largest item of any client had %d bytes. Prices: %s.\n", r.Units, r.Largest, r.Prices)
	return b.String()
}

// table writes the rows of a kind, after what each is about.
func (r *report) table(b *strings.Builder, k kind, head []string, cells func(row) []string) {
	var rows [][]string
	for _, row := range r.of(k) {
		rows = append(rows, append([]string{row.What}, cells(row)...))
	}
	page.Table(b, append([]string{"step"}, head...), rows)
}

// heads are those of a column for each client.
func (r *report) heads(more string) (all []string) {
	for _, name := range r.Order {
		all = append(all, titles[name]+more)
	}
	return all
}

// each is a cell for each client.
func (r *report) each(of row, text func(value) string) (all []string) {
	for _, name := range r.Order {
		all = append(all, cell(of.Values[name], text))
	}
	return all
}

// dollarsFor says what the dollars of a row are for.
func dollarsFor(of row) string {
	for _, v := range of.Values {
		return v.For // all have the same
	}
	return ""
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
		return "-"
	}
	return text(v)
}
