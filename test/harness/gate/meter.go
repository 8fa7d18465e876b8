// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Meter adds up what requests use, as the engine counts it.
type Meter struct {
	metered bool

	noting sync.Mutex // guards the fields below
	sent   Usage
	err    error
}

// asking is the body of a request that asks the engine for the capacity that it consumes.
func (m *Meter) asking(body []byte) []byte {
	var fields map[string]json.RawMessage
	if !m.metered || json.Unmarshal(body, &fields) != nil {
		return body
	}
	fields["ReturnConsumedCapacity"] = json.RawMessage(`"TOTAL"`)
	text, err := json.Marshal(fields)
	if err != nil {
		return body // it was read just now
	}
	return text
}

// note adds what a request has used, according to its answer.
func (m *Meter) note(r *http.Response) error {
	if !m.metered {
		return nil
	}
	answer, err := io.ReadAll(r.Body)
	if err = errors.Join(err, r.Body.Close()); err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(answer))
	u, unpriced := price(operation(r.Request), answer)
	m.noting.Lock()
	defer m.noting.Unlock()
	m.sent.Add(u)
	m.err = errors.Join(m.err, unpriced)
	return nil
}

// Take returns what was used since the last call. The error is that of a request
// that has no price.
func (m *Meter) Take() (Usage, error) {
	m.noting.Lock()
	defer m.noting.Unlock()
	u := m.sent
	m.sent = Usage{}
	return u, m.err
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

// The price list: on-demand capacity in us-east-1, in dollars for a million
// units. Look it up before you rely on it.
const (
	writeUnitsMillion = 0.625
	readUnitsMillion  = 0.125
	PriceSource       = "DynamoDB on-demand list prices of us-east-1 as of November 2026: $0.625 a million write request units, $0.125 a million read request units; check before you rely on it"
)

// month is what a price by the month is for.
const month = 30 * 24 * time.Hour

// UnitRule is how DynamoDB counts. The engine does so for us, but not for a write whose condition
// did not hold: that counts as one of an item up to 1 kB.
const UnitRule = "a write of an item up to 1 kB is 1 unit, refused or not; a strongly consistent read is 1 unit, " +
	"an eventually consistent one half; in a transaction each item is double"

// Usage is a number of requests, and the units that DynamoDB would bill.
type Usage struct {
	Requests    float64            `json:"requests"`
	ByOperation map[string]float64 `json:"byOperation"`
	WriteUnits  float64            `json:"writeUnits"`
	ReadUnits   float64            `json:"readUnits"`
}

// Add adds another usage.
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

// price returns what one request uses, of those that clients of locks send. Another one is counted,
// and an error.
func price(operation string, answer []byte) (Usage, error) {
	u := Usage{Requests: 1, ByOperation: map[string]float64{operation: 1}}
	units, read := &u.WriteUnits, false
	switch operation {
	case "PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems":
	case "GetItem", "BatchGetItem":
		units, read = &u.ReadUnits, true
	default:
		return u, fmt.Errorf("the price list has no %s", operation)
	}
	var said struct {
		Refused             string            `json:"__type"`
		CancellationReasons []json.RawMessage // of the items of a transaction
		ConsumedCapacity    json.RawMessage   // an object, or a list of some
	}
	err := json.Unmarshal(answer, &said)
	if said.Refused != "" && !read {
		*units = max(1, 2*float64(len(said.CancellationReasons)))
		return u, err
	}
	var used []struct{ CapacityUnits float64 }
	list := bytes.Trim(said.ConsumedCapacity, "[]")
	if err = errors.Join(err, json.Unmarshal(slices.Concat([]byte("["), list, []byte("]")), &used)); err != nil {
		return u, fmt.Errorf("%s: %w", operation, err)
	}
	for _, of := range used {
		*units += of.CapacityUnits
	}
	if len(used) == 0 {
		return u, fmt.Errorf("%s: the engine does not say what it used: %.200s", operation, answer)
	}
	return u, nil
}
