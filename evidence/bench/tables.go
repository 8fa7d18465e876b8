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

// crowds writes the table of many locks in one process.
func (r *report) crowds(b *strings.Builder) {
	rows := r.of(crowded)
	if len(rows) == 0 {
		return
	}
	b.WriteString("\n### Many locks in one process: Tenure under one session, dynamolock with a heartbeat for each\n\n")
	var table [][]string
	for _, name := range r.Order {
		for _, row := range rows {
			h := row.Values[name].Held
			if h == nil {
				continue
			}
			table = append(table, []string{
				titles[name], fmt.Sprint(h.Locks), fmt.Sprint(h.Hold.Lost), page.Amount(round(h.Holding.Requests)), fmt.Sprintf("%.2f", h.CPUMinute()),
				fmt.Sprintf("%.0f", h.PerLock(h.Acquire.Heap)), fmt.Sprint(h.Hold.Goroutines),
			})
		}
	}
	page.Table(b, []string{"client", "locks:", "lost:", "requests a heartbeat period:", "processor, s a minute:", "heap a lock, bytes:", "goroutines:"}, table)
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
	// The JSON has the same for a shorter lease.
	_, setting, _ := strings.Cut(rows[0].What, "; ")
	fmt.Fprintf(b, "\n### A month on DynamoDB, from counted requests: %s\n\n", setting)
	price := func(v value) string { return dollars(v.Dollars) }
	var table [][]string
	for _, row := range rows {
		what, its, _ := strings.Cut(row.What, "; ")
		if its != setting {
			continue
		}
		v := row.Values[tenureName]
		table = append(table, []string{what, page.Amount(v.Used.Requests), price(v), cell(row.Values[kclName], price)})
	}
	page.Table(b, []string{"what goes on", "requests a second:", "$:", "KCL, $:"}, table)
	fmt.Fprintf(b, "\nKCL is not run: by its source a worker writes each lease in a third of the failover time (here the lease) less %v, and its metrics each %v.\n", peers.KCLEpsilon, peers.KCLMetrics)
}

func dollars(x float64) string {
	if x < 10 {
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

var titles = map[string]string{tenureName: "Tenure", dynamolockName: "dynamolock", javaName: "Java client"}

// markdown returns the tables. The settings of the steps and the spreads are in the JSON.
func (r *report) markdown() string {
	var b strings.Builder

	fmt.Fprintf(&b, "Measured on %s, on %v; engine %s", r.Date, r.Machine, r.Engine)
	for _, name := range r.Order {
		fmt.Fprintf(&b, "; %s %s", titles[name], r.Clients[name])
	}
	b.WriteString(".")
	if r.Quick {
		b.WriteString(" A quick run, whose times mean nothing.")
	}

	b.WriteString("\n\n### Requests, counted on the wire, and what they cost\n\n")
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

	b.WriteString("\n### Times in milliseconds: median (longest)\n\n")
	spread := func(v value) string {
		return fmt.Sprintf("**%s** (%s)", page.Amount(v.Spread.Median), page.Amount(v.Spread.Max))
	}
	r.table(&b, timed, r.heads(""), func(row row) []string { return r.each(row, spread) })

	b.WriteString("\n### Pairs of an acquire and a release a second: median\n\n")
	pace := func(v value) string { return fmt.Sprintf("%.0f", v.Spread.Median) }
	r.table(&b, paced, append(r.heads(":"), "Tenure to dynamolock"), func(row row) []string {
		ratio := "-"
		if row.Ratio != nil {
			ratio = fmt.Sprintf("**%.2f** (%.2f to %.2f)", row.Ratio.Median, row.Ratio.Min, row.Ratio.Max)
		}
		return append(r.each(row, pace), ratio)
	})

	r.crowds(&b)
	r.months(&b)
	fmt.Fprintf(&b, "\nPrices: %s. The largest item had %d bytes.\n", r.Prices, r.Largest)
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

// cell is empty for a client that has no such thing.
func cell(v value, text func(value) string) string {
	if v.Used == nil && v.Spread == nil {
		return "-"
	}
	return text(v)
}
