// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
)

func TestConformance(t *testing.T) {
	settings := []struct {
		name    string
		table   TableOptions
		options Options
	}{
		{"Plain", TableOptions{}, Options{}},
		{"SortKey", TableOptions{PartitionKey: "name", SortKey: "data2"}, Options{PartitionKey: "name", SortKey: "data2", SortValue: "locks", Dialect: Dynamolock}},
		{"Shared", TableOptions{}, Options{SharedTable: true}},
	}
	for _, s := range settings {
		t.Run(s.name, func(t *testing.T) {
			enginetest.EachDynamoDB(t, func(t *testing.T, e enginetest.DynamoDB) {
				if s.options.SharedTable && e.NoTransactions {
					t.Skipf("%s has no transactions: see TestSharedNeedsTransactions", e.Name)
				}
				drivertest.Run(t, func(t *testing.T) drivertest.Harness {
					table := newTable(t, e, &s.table)
					url, hang := e.URL, (func(*testing.T) func())(nil)
					if host, plain := strings.CutPrefix(e.URL, "http://"); plain {
						relay := enginetest.NewRelay(t, strings.TrimSuffix(host, "/"))
						url, hang = "http://"+relay.Addr, func(*testing.T) func() { return relay.Hold() }
					}
					return drivertest.Harness{
						Open: func(t *testing.T) driver.Store {
							store := open(t, url, table, &s.options)
							store.pageSize = 7
							return store
						},
						Hang:                hang,
						Raises:              true,
						EventualReads:       true,
						TokensOutliveDelete: s.options.SharedTable,
						NoSessions:          s.options.SharedTable,
						TimePrecision:       time.Nanosecond,
						LeasePrecision:      time.Nanosecond,
						Ops:                 400,
						PlantUnreadable: func(t *testing.T, key string) {
							plantUnreadable(t, e.URL, table, &s.options, key)
						},
						Plant: func(t *testing.T, rec driver.Record) { plant(t, e.URL, table, &s.options, rec) },
						PlantLater: func(t *testing.T, key string) {
							it := readItem(t, e.URL, table, s.options.rowKey(t, key))
							it["later"] = text("kept")
							it[attrTenure] = text(strings.TrimSuffix(textOf(it, attrTenure), "}") + `,"later":[1.50]}`)
							plantItem(t, e.URL, table, it)
						},
						HasLater: func(t *testing.T, key string) bool {
							it := readItem(t, e.URL, table, s.options.rowKey(t, key))
							return textOf(it, "later") == "kept" && strings.Contains(textOf(it, attrTenure), `"later":[1.50]`)
						},
						OlderState: func(t *testing.T, key string) driver.State {
							return olderState(readItem(t, e.URL, table, s.options.rowKey(t, key)))
						},
					}
				})
			})
		})
	}
}

func plantUnreadable(t *testing.T, url, table string, options *Options, key string) {
	o, err := options.resolve()
	if err != nil {
		t.Fatal(err)
	}
	it := o.encode(driver.Record{Key: key, Version: "planted", Owner: "o", Lease: time.Second, State: driver.Held})
	it[o.PartitionKey], it[attrToken] = text(key), number(1)
	it[attrLease] = &types.AttributeValueMemberN{Value: "0"}
	if o.SortKey != "" {
		it[o.SortKey] = text(o.SortValue)
	}
	plantItem(t, url, table, it)
}

// rowKey returns the key of an item.
func (o *Options) rowKey(t *testing.T, key string) item {
	t.Helper()
	r, err := o.resolve()
	if err != nil {
		t.Fatal(err)
	}
	it := item{r.PartitionKey: text(key)}
	if r.SortKey != "" {
		it[r.SortKey] = text(r.SortValue)
	}
	return it
}

// olderState returns the state in which a client that does not know of sessions
// reads an item: it needs a lease, and reads an item as held unless it has another
// state.
func olderState(it item) driver.State {
	r := reader{it: it}
	if r.lease(); r.err != nil {
		return ""
	}
	if state := textOf(it, attrState); state != "" {
		return driver.State(state)
	}
	return driver.Held
}
