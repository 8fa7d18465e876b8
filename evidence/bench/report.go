// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"math"
	"slices"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/machine"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/keepers"
)

// report is everything that a run found. The tables are made from it alone.
type report struct {
	Date    string            `json:"date"` // of the run's start, UTC
	Machine machine.Machine   `json:"machine"`
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
	Used *gate.Usage `json:"used,omitempty"`
	// Lost is how many locks ran out while they were to be held. What was sent
	// for the others alone is no measure.
	Lost int `json:"lost,omitempty"`
	// Dollars is the price of a million of the step, or of the step going on for
	// a month.
	Dollars float64 `json:"dollars,omitempty"`
	For     string  `json:"for,omitempty"`

	Spread *spread `json:"spread,omitempty"`

	Held *keepers.Holding `json:"held,omitempty"`
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
func perMillion(u gate.Usage) value {
	return value{Used: &u, Dollars: u.DollarsMillion(), For: aMillion}
}

// perMonth is a value of something that goes on; u is what it uses in a period.
func perMonth(u gate.Usage, period time.Duration) value {
	return value{Used: &u, Dollars: u.DollarsMonth(period), For: aMonth}
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

// The clients there are.
const (
	tenureName     = string(peers.Tenure)
	dynamolockName = string(peers.Dynamolock)
	javaName       = string(peers.Java)
)

var clientNames = []string{tenureName, dynamolockName, javaName}

// kclName is the Kinesis Client Library, which is not run: what it would send
// follows from its periods.
const kclName = "kcl"

// put puts what a client did in a row, which is the last one if it is new. No two
// steps have a row of one name.
func (r *rig) put(like row, what, client string, v value) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.row(like, what).Values[client] = v
}

// inOrder makes rows before anything is put in them: clients that are looked at at
// once do not come in the order of the table.
func (r *rig) inOrder(like row, names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, what := range names {
		r.row(like, what)
	}
}

// row returns the row of a name. The caller holds mu.
func (r *rig) row(like row, what string) *row {
	rows := &r.report.Rows
	i := slices.IndexFunc(*rows, func(other row) bool { return other.What == what })
	if i < 0 {
		i = len(*rows)
		like.What, like.Values = what, map[string]value{}
		*rows = append(*rows, like)
	}
	return &(*rows)[i]
}
