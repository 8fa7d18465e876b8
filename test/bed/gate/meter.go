// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/tenurelock/tenure/dynamostore"
)

// Meter adds up what requests use.
type Meter struct {
	metered bool

	noting  sync.Mutex // guards the fields below
	weighed bool       // keeps which items are used
	sent    Usage
	used    []Touch
	err     error
}

// Weigh has the meter keep which items are used, from now on.
func (m *Meter) Weigh() {
	m.noting.Lock()
	defer m.noting.Unlock()
	m.weighed = true
}

func (m *Meter) note(operation string, body []byte) {
	if !m.metered {
		return
	}
	u, used, err := Price(operation, body)
	m.noting.Lock()
	defer m.noting.Unlock()
	m.sent.Add(u)
	if m.weighed {
		m.used = append(m.used, used...)
	}
	if err != nil && m.err == nil {
		m.err = err
	}
}

// Take returns what was used since the last call. The error is that of a request
// that has no price.
func (m *Meter) Take() (Usage, error) {
	u, _, err := m.TakeAll()
	return u, err
}

// During returns what was used while f ran, also if it failed.
func (m *Meter) During(f func() error) (Usage, error) {
	if _, err := m.Take(); err != nil {
		return Usage{}, err
	}
	err := f()
	u, unpriced := m.Take()
	return u, errors.Join(err, unpriced)
}

// TakeAll is Take, with the items that were used.
func (m *Meter) TakeAll() (Usage, []Touch, error) {
	m.noting.Lock()
	defer m.noting.Unlock()
	u, used := m.sent, m.used
	m.sent, m.used = Usage{}, nil
	return u, used, m.err
}

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

// Touch is a request's use of one item: the units if the item is of the smallest
// size that is billed.
type Touch struct {
	key         string
	write, read float64
}

// attribute is one of a key, as it is on the wire.
type attribute map[string]map[string]string

// name returns the value of the table's key.
func (a attribute) name() string { return a[dynamostore.DefaultPartitionKey]["S"] }

// touches returns which items a request uses.
func touches(operation string, body []byte) (all []Touch, err error) {
	var in struct {
		Key            attribute
		Item           map[string]json.RawMessage
		ConsistentRead bool
		RequestItems   map[string]struct {
			Keys           []attribute
			ConsistentRead bool
		}
		TransactItems []map[string]struct {
			Key  attribute
			Item map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("%s: %w", operation, err)
	}
	of := func(key attribute, item map[string]json.RawMessage) string {
		if key != nil || item == nil {
			return key.name()
		}
		var value map[string]string
		err = errors.Join(err, json.Unmarshal(item[dynamostore.DefaultPartitionKey], &value))
		return value["S"]
	}
	units := map[bool]float64{true: 1, false: 0.5}
	switch operation {
	case "PutItem", "UpdateItem", "DeleteItem":
		all = append(all, Touch{key: of(in.Key, in.Item), write: 1})
	case "GetItem":
		all = append(all, Touch{key: in.Key.name(), read: units[in.ConsistentRead]})
	case "BatchGetItem":
		for _, table := range in.RequestItems {
			for _, key := range table.Keys {
				all = append(all, Touch{key: key.name(), read: units[table.ConsistentRead]})
			}
		}
	case "TransactWriteItems":
		for _, item := range in.TransactItems {
			for _, action := range item {
				all = append(all, Touch{key: of(action.Key, action.Item), write: 2})
			}
		}
	default:
		return nil, fmt.Errorf("the price list has no %s", operation)
	}
	return all, err
}

// DynamoDB bills writes by the kB, and reads by 4 kB.
const (
	writeBytes = 1 << 10
	readBytes  = 4 << 10
)

// Weighed returns the usage with the units that items of these sizes have.
func (u Usage) Weighed(all []Touch, sizes map[string]int64) Usage {
	u.WriteUnits, u.ReadUnits = 0, 0
	units := func(key string, bytes float64) float64 { return max(1, math.Ceil(float64(sizes[key])/bytes)) }
	for _, t := range all {
		u.WriteUnits += t.write * units(t.key, writeBytes)
		u.ReadUnits += t.read * units(t.key, readBytes)
	}
	return u
}
