// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"fmt"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// step is a write that is made from the record that is stored.
type step struct {
	name string
	op   op
	next func(e *env, now driver.Record) driver.Record
}

// life is the writes of a lock's life in order.
var life = []step{
	{"claim", opClaim, claimOf},
	{"heartbeat", opSwap, (*env).beat},
	{"data", opSwap, dataOf},
	{"release", opSwap, (*env).released},
	{"claim again", opClaim, claimOf},
	{"takeover", opSwap, (*env).taken},
	{"heartbeat of the successor", opSwap, (*env).beat},
	{"request", opSwap, (*env).asked},
	{"heartbeat after the request", opSwap, (*env).beat},
	{"release as asked", opSwap, (*env).answered},
	{"takeover of the released", opSwap, (*env).taken},
	{"second request", opSwap, (*env).asked},
	{"hand-over", opSwap, handOver},
	{"heartbeat of the reservation", opSwap, (*env).beat},
	{"takeover of the reserved", opSwap, (*env).taken},
	{"delete", opDelete, (*env).beat},
	{"claim after the delete", opClaim, claimOf},
}

func claimOf(e *env, now driver.Record) driver.Record { return e.held(now.Key) }

func handOver(e *env, now driver.Record) driver.Record { return e.reserved(now, "successor") }

func dataOf(e *env, now driver.Record) driver.Record {
	return e.withData(now, []byte(e.fresh("data")))
}

// testLate sends each write of a lock's life a second time after each later
// one. A late claim may find the key free, and then opens a term under a token
// of its own; everything else must change nothing.
func testLate(t *testing.T, e *env) { e.everyLate(t, life, e.key) }

func (e *env) everyLate(t *testing.T, life []step, key func() string) {
	t.Helper()
	for late := range life {
		t.Run(life[late].name, func(t *testing.T) {
			for after := late; after < len(life); after++ {
				t.Run("after "+life[after].name, func(t *testing.T) { e.late(t, life, key(), late, after) })
			}
		})
	}
}

func (e *env) late(t *testing.T, life []step, key string, late, after int) {
	t.Helper()
	m := &model{key: key}
	var again write
	for i, step := range life[:after+1] {
		now := m.rec
		now.Key = m.key // an absent key has a record without one
		w := write{op: step.op, prev: now, next: step.next(e, now)}
		if i == late {
			again = w
		}
		e.send(t, m, e.clients[i%len(e.clients)], step.name, w)
	}
	what := fmt.Sprintf("late %s after %s", life[late].name, life[after].name)
	e.send(t, m, e.clients[(after+1)%len(e.clients)], what, again)
	e.wantModel(t, m)
}
