// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gate

import (
	"time"
)

// The price list: on-demand capacity in us-east-1, in dollars for a million
// units. Whoever relies on it looks it up first.
const (
	writeUnitsMillion = 0.625
	readUnitsMillion  = 0.125
	PriceSource       = "DynamoDB on-demand list prices of us-east-1 as of November 2026: $0.625 a million write request units, $0.125 a million read request units; check before you rely on it"
)

// month is what a price by the month is for.
const month = 30 * 24 * time.Hour

// The rule for units: items of a lock are below 1 kB, which every run checks, so
// a write is one unit, and so is a strongly consistent read. An eventually
// consistent one is half of it. In a transaction each item costs double. A write
// whose condition did not hold costs what it would have cost.
const (
	UnitRule = "a write of an item up to 1 kB is 1 unit, refused or not; a strongly consistent read is 1 unit, an eventually consistent one half; in a transaction each item is double"
	MaxItem  = 1 << 10
)

// Usage is what was sent: requests, and the units that DynamoDB would bill.
type Usage struct {
	Requests    float64            `json:"requests"`
	ByOperation map[string]float64 `json:"byOperation"`
	WriteUnits  float64            `json:"writeUnits"`
	ReadUnits   float64            `json:"readUnits"`
}

// Add adds what else was sent.
func (u *Usage) Add(v Usage) {
	u.Requests += v.Requests
	u.WriteUnits += v.WriteUnits
	u.ReadUnits += v.ReadUnits
	if u.ByOperation == nil {
		u.ByOperation = map[string]float64{}
	}
	for operation, n := range v.ByOperation {
		u.ByOperation[operation] += n
	}
}

// Over returns a share of the usage.
func (u Usage) Over(n float64) Usage {
	v := Usage{
		Requests: u.Requests / n, WriteUnits: u.WriteUnits / n, ReadUnits: u.ReadUnits / n,
		ByOperation: map[string]float64{},
	}
	for operation, count := range u.ByOperation {
		v.ByOperation[operation] = count / n
	}
	return v
}

// DollarsMillion is the price of a million times the usage.
func (u Usage) DollarsMillion() float64 {
	return u.WriteUnits*writeUnitsMillion + u.ReadUnits*readUnitsMillion
}

// DollarsMonth is the price of a month in which the usage comes again in every
// period.
func (u Usage) DollarsMonth(period time.Duration) float64 {
	return u.DollarsMillion() / 1e6 * float64(month) / float64(period)
}

// Price returns what one request uses: the units of its items, if they are of the
// smallest size. An operation that the rule does not know is counted, and an error.
func Price(operation string, body []byte) (Usage, []Touch, error) {
	u := Usage{Requests: 1, ByOperation: map[string]float64{operation: 1}}
	all, err := touches(operation, body)
	return u.Weighed(all, nil), all, err
}
