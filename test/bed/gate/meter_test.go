// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gate

import (
	"reflect"
	"testing"
	"time"
)

func TestPrice(t *testing.T) {
	for _, c := range []struct {
		operation, body string
		write, read     float64
	}{
		{"PutItem", `{}`, 1, 0},
		{"UpdateItem", `{}`, 1, 0},
		{"DeleteItem", `{}`, 1, 0},
		{"GetItem", `{}`, 0, 0.5},
		{"GetItem", `{"ConsistentRead":false}`, 0, 0.5},
		{"GetItem", `{"ConsistentRead":true}`, 0, 1},
		{"BatchGetItem", `{"RequestItems":{"t":{"Keys":[{},{}],"ConsistentRead":true}}}`, 0, 2},
		{"TransactWriteItems", `{"TransactItems":[{"Update":{}},{"Delete":{}}]}`, 4, 0},
	} {
		u, _, err := Price(c.operation, []byte(c.body))
		if err != nil || u.Requests != 1 || u.ByOperation[c.operation] != 1 || u.WriteUnits != c.write ||
			u.ReadUnits != c.read {
			t.Errorf("%s %s: %+v, %v", c.operation, c.body, u, err)
		}
	}
	if _, _, err := Price("Scan", []byte(`{}`)); err == nil {
		t.Error("a Scan has a price, and no rule for it")
	}
	// A write each 5 s is 518,400 in 30 days.
	if got := (Usage{WriteUnits: 1}).DollarsMonth(5 * time.Second); got < 0.3239 || got > 0.3241 {
		t.Errorf("a heartbeat each 5 s costs $%v a month", got)
	}
}

func TestTouches(t *testing.T) {
	for _, c := range []struct {
		operation, body string
		want            []Touch
	}{
		{"UpdateItem", `{"Key":{"key":{"S":"a"}}}`, []Touch{{"a", 1, 0}}},
		{"PutItem", `{"Item":{"key":{"S":"a"},"data":{"B":"eA=="}}}`, []Touch{{"a", 1, 0}}},
		{"GetItem", `{"Key":{"key":{"S":"a"}}}`, []Touch{{"a", 0, 0.5}}},
		{"GetItem", `{"Key":{"key":{"S":"a"}},"ConsistentRead":true}`, []Touch{{"a", 0, 1}}},
		{"BatchGetItem", `{"RequestItems":{"t":{"Keys":[{"key":{"S":"a"}},{"key":{"S":"b"}}]}}}`, []Touch{{"a", 0, 0.5}, {"b", 0, 0.5}}},
		{"TransactWriteItems", `{"TransactItems":[{"Update":{"Key":{"key":{"S":"a"}}}},{"Put":{"Item":{"key":{"S":"b"}}}}]}`, []Touch{{"a", 2, 0}, {"b", 2, 0}}},
	} {
		_, got, err := Price(c.operation, []byte(c.body))
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s %s: %v, %v; want %v", c.operation, c.body, got, err, c.want)
		}
	}
	u := Usage{Requests: 3}.Weighed([]Touch{{"a", 1, 0}, {"a", 0, 0.5}, {"b", 2, 0}},
		map[string]int64{"a": 4097, "b": 1024})
	if u.Requests != 3 || u.WriteUnits != 5+2 || u.ReadUnits != 1 {
		t.Errorf("%+v", u)
	}
}
