// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gate

import (
	"testing"
	"time"
)

// TestPrice: what the engine says of a request counts, and a write that it refuses counts as one of
// a small item.
func TestPrice(t *testing.T) {
	const three, two = `{"ConsumedCapacity":{"CapacityUnits":3}}`, `{"ConsumedCapacity":[{"CapacityUnits":2}]}`
	for _, c := range []struct {
		operation, answer string
		write, read       float64
	}{
		{"PutItem", three, 3, 0},
		{"UpdateItem", `{"__type":"ConditionalCheckFailedException"}`, 1, 0},
		{"GetItem", three, 0, 3},
		{"BatchGetItem", two, 0, 2},
		{"TransactWriteItems", two, 2, 0},
		{"TransactWriteItems", `{"__type":"TransactionCanceledException","CancellationReasons":[{},{}]}`, 4, 0},
	} {
		u, err := price(c.operation, []byte(c.answer))
		if err != nil || u.Requests != 1 || u.ByOperation[c.operation] != 1 || u.WriteUnits != c.write ||
			u.ReadUnits != c.read {
			t.Errorf("%s %s: %+v, %v", c.operation, c.answer, u, err)
		}
	}
	for operation, answer := range map[string]string{"Scan": three, "GetItem": `{}`} {
		if _, err := price(operation, []byte(answer)); err == nil {
			t.Errorf("%s %s has a price, and no rule for it", operation, answer)
		}
	}
	// A write each 5 s is 518,400 in 30 days.
	if got := (Usage{WriteUnits: 1}).DollarsMonth(5 * time.Second); got < 0.3239 || got > 0.3241 {
		t.Errorf("a heartbeat each 5 s costs $%v a month", got)
	}
}
