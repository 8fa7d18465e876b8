// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// crowds writes the table of many locks in one process, and what one client has to
// the other with as many locks.
func (r *report) crowds(b *strings.Builder) {
	rows := r.of(crowded)
	if len(rows) == 0 {
		return
	}
	b.WriteString("\n### Many locks in one process: Tenure under one session, dynamolock with a heartbeat for each\n\n" +
		"| client | locks | lost | requests a heartbeat period | processor, s a minute | heap a lock, bytes | resident a lock, bytes | goroutines, at most | s to take them | requests to close |\n" +
		"| --- |" + strings.Repeat(" ---: |", 9) + "\n")
	locks := func(of row, name string) int {
		if h := of.Values[name].Held; h != nil {
			return h.Locks
		}
		return 0
	}
	for _, name := range r.Order {
		slices.SortStableFunc(rows, func(a, b row) int { return locks(a, name) - locks(b, name) })
		for _, row := range rows {
			h := row.Values[name].Held
			if h == nil {
				continue
			}
			fmt.Fprintf(b, "| %s | %d | %d | %s | %.2f | %.0f | %.0f | %d | %.1f | %s |\n", titles[name], h.Locks, h.Hold.Lost, amount(round(h.Holding.Requests)), h.cpuMinute(),
				h.perLock(h.Acquire.Heap), h.perLock(h.Acquire.RSS), h.Hold.Goroutines, h.Acquire.Took, amount(h.Closing.Requests))
		}
	}
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
			ours.Hold.CPU/theirs.Hold.CPU, ours.perLock(ours.Acquire.Heap)/theirs.perLock(theirs.Acquire.Heap), ours.Acquire.Took/theirs.Acquire.Took)
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
	b.WriteString("\n### A month on DynamoDB, from counted requests, beside the arithmetic of the Kinesis Client Library\n\n" +
		"| what goes on | requests a second | write units a second | read units a second | $ a month | KCL, write units a second | KCL, $ a month | Tenure to KCL |\n" +
		"| --- |" + strings.Repeat(" ---: |", 7) + "\n")
	for _, row := range rows {
		v := row.Values[tenureName]
		if v.Used == nil {
			continue
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |", row.What, amount(v.Used.Requests), amount(v.Used.WriteUnits), amount(v.Used.ReadUnits), dollars(v.Dollars))
		kcl := row.Values[kclName]
		if kcl.Used == nil {
			b.WriteString(" - | - | - |\n")
			continue
		}
		fmt.Fprintf(b, " %s | %s | %.4f |\n", amount(kcl.Used.WriteUnits), dollars(kcl.Dollars), v.Dollars/kcl.Dollars)
	}
	fmt.Fprintf(b, "\nKCL is not run. By the periods in its source a worker writes each lease in a third of the failover time less %v, its metrics each %v, and asks an index for its "+
		"leases each failover time: half a read unit at least. The failover time is the lease of the row. What its leader reads is left out.\n", kclEpsilon, kclMetrics)
}

func dollars(x float64) string {
	if x < 10 {
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.0f", x)
}
