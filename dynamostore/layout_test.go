// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// sizeOf returns what DynamoDB counts for an item, which has no maps and lists.
func sizeOf(it item) int {
	size := 0
	for name, v := range it {
		size += len(name)
		switch v := v.(type) {
		case *types.AttributeValueMemberS:
			size += len(v.Value)
		case *types.AttributeValueMemberB:
			size += len(v.Value)
		case *types.AttributeValueMemberN:
			size += len(v.Value)/2 + 2
		}
	}
	return size
}

// deployed is a lock with names as a deployment on Kubernetes gives them.
func deployed() driver.Record {
	rec := held("payments/scheduler-nightly-settlement1")
	rec.Owner, rec.Host = "payments-scheduler-7c9f8d6b5-abcde-1-x9z3k0", "payments-scheduler-7c9f8d6b5-abcde"
	rec.Label, rec.Heartbeat, rec.Drift, rec.Lease = "payments-scheduler:1.42.7+g", 3*time.Second, 0.09, 15*time.Second
	return rec
}

// TestHeartbeatsStayBelowAKilobyte: above that each write costs two units. However long
// the reason of the step-down before was, heartbeats do not pay for it.
func TestHeartbeatsStayBelowAKilobyte(t *testing.T) {
	enginetest.EachDynamoDB(t, func(t *testing.T, e enginetest.DynamoDB) {
		table := newTable(t, e, nil)
		store := open(t, e.URL, table, nil)
		size := func(rec driver.Record) int {
			return sizeOf(readItem(t, e.URL, table, item{"key": text(rec.Key)}))
		}
		for _, tc := range []struct {
			reason         int
			held, released int // at most
		}{{45, 870, 1220}, {driver.MaxReasonLen, 950, 2400}} {
			next := deployed()
			next.Key += fmt.Sprint(tc.reason)
			for range 4 {
				rec := enginetest.Claim(t, store, next)
				for range 2 {
					beat := rec.Clone()
					beat.Version = held("").Version
					beat.Beat = beat.Version
					rec = enginetest.Swap(t, store, rec, beat)
					if got := size(rec); got > tc.held {
						t.Errorf("held, after a reason of %d bytes: %d bytes, want %d at most", tc.reason, got, tc.held)
					}
				}
				free := rec.Clone()
				free.Version, free.State, free.Until, free.End = held("").Version, driver.Released, time.Now(), driver.EndSteppedDown
				free.Heartbeat, free.Drift = 0, 0 // as a holder leaves it
				free.Asked = &driver.Request{ID: held("").Version, Kind: driver.StepDown, By: rec.Owner, Reason: strings.Repeat("r", tc.reason), At: time.Now()}
				rec = enginetest.Swap(t, store, rec, free)
				if got := size(rec); got > tc.released {
					t.Errorf("released, with a reason of %d bytes: %d bytes, want %d at most", tc.reason, got, tc.released)
				}
				next.Version = held("").Version
				next.Beat = next.Version
			}
		}
	})
}

// TestOneStepDownCostsOneUnit: after a term that ended without a request, the
// release by a step-down, and so the next take, stay below a kilobyte.
func TestOneStepDownCostsOneUnit(t *testing.T) {
	o, err := (*Options)(nil).resolve()
	if err != nil {
		t.Fatal(err)
	}
	free := deployed()
	free.Token, free.State, free.Until, free.Heartbeat, free.Drift = 12345, driver.Released, time.Now(), 0, 0 // as a holder leaves it
	free.End, free.Version = driver.EndReleased, held("").Version
	free.Prev = free.Term(driver.EndReleased)
	free.End = driver.EndSteppedDown
	free.Asked = &driver.Request{ID: held("").Version, Kind: driver.StepDown, By: free.Owner, Reason: strings.Repeat("r", 45), At: time.Now()}
	it := o.encode(free)
	it[o.PartitionKey], it[attrToken] = text(free.Key), number(free.Token)
	if got := sizeOf(it); got > 1000 {
		t.Errorf("%d bytes", got)
	}
}
