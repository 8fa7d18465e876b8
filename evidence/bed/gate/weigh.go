// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/tenurelock/tenure/dynamostore"
)

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
