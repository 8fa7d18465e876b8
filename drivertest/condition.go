// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"fmt"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// conditional are the writes that name the record which they replace.
func (e *env) conditional() []step {
	all := []step{
		{"Heartbeat", opSwap, (*env).beat},
		{"Data", opSwap, dataOf},
		{"Request", opSwap, (*env).asked},
		{"Release", opSwap, (*env).released},
		{"Takeover", opSwap, (*env).taken},
		{"HandOver", opSwap, handOver},
		{"Delete", opDelete, (*env).beat},
	}
	if e.h.Raises {
		all = append(all, step{"Raise", opRaise, raisedOf})
	}
	return all
}

// formerly are the ways in which a write can name what is not stored. Each returns a
// record that is not stored, and the stored one.
func (e *env) formerly(t *testing.T) map[string]func(t *testing.T) (former, stored driver.Record) {
	t.Helper()
	a, b := e.clients[0], e.clients[1]
	// since returns the record before a further write, and the record after it.
	since := func(c *client, next func(driver.Record) driver.Record) func(*testing.T) (former, stored driver.Record) {
		return func(t *testing.T) (former, stored driver.Record) {
			t.Helper()
			former = e.claim(t, a, e.held(e.key()))
			stored = next(former) // and not what the store says of it
			e.swap(t, c, former, stored)
			return former, stored
		}
	}
	// instead returns a record that was never stored, and the record that it was made from.
	instead := func(change func(*driver.Record)) func(*testing.T) (former, stored driver.Record) {
		return func(t *testing.T) (former, stored driver.Record) {
			t.Helper()
			stored = e.claim(t, a, e.held(e.key()))
			former = stored
			change(&former)
			return former, stored
		}
	}
	all := map[string]func(t *testing.T) (former, stored driver.Record){
		"StaleVersion":        since(b, e.beat),
		"Released":            since(a, e.released),
		"Reserved":            since(a, func(rec driver.Record) driver.Record { return e.reserved(rec, "successor") }),
		"TakenOver":           since(b, e.taken),
		"VersionThatNeverWas": instead(func(rec *driver.Record) { rec.Version = e.fresh("never") }),
		"TokenToCome":         instead(func(rec *driver.Record) { rec.Token++ }),

		// An engine that distinguishes states by a hash of the content must include the
		// version: nothing else need differ.
		"VersionAlone": since(b, func(rec driver.Record) driver.Record {
			rec.Version = e.fresh("same")
			return rec
		}),

		// A late duplicate of a claim brings its version back, under a higher token.
		// Nothing of the former term must get in by it.
		"OldTokenSameVersion": func(t *testing.T) (former, stored driver.Record) {
			t.Helper()
			claim := e.held(e.key())
			former = e.claim(t, a, claim)
			e.swap(t, a, former, e.released(former))
			stored = e.claim(t, b, claim)
			if stored.Version != former.Version || stored.Token != former.Token+1 {
				t.Fatalf("the same claim stored %s, and again %s: want the next token", brief(former), brief(stored))
			}
			return former, stored
		},
		"SameTokenFormerVersion": func(t *testing.T) (former, stored driver.Record) {
			t.Helper()
			claim, free := e.freed(t, a)
			stored = e.claim(t, b, e.held(claim.Key))
			former = stored
			former.Version = free.Version
			return former, stored
		},
	}
	if e.h.Raises {
		all["Raised"] = func(t *testing.T) (former, stored driver.Record) {
			t.Helper()
			former = e.claim(t, a, e.held(e.key()))
			stored = e.raised(former, 1000)
			e.raise(t, b, former, stored)
			return former, stored
		}
	}
	// No write of a key's former life applies to the next one, though both have had
	// as many writes: an engine's counter for a key may begin again with it.
	for beats := range 4 {
		live := func(t *testing.T, c *client, key string) driver.Record {
			t.Helper()
			rec := e.claim(t, c, e.held(key))
			for range beats {
				rec = e.swap(t, c, rec, e.beat(rec))
			}
			return rec
		}
		all[fmt.Sprintf("NextLife%d", beats)] = func(t *testing.T) (former, stored driver.Record) {
			t.Helper()
			former = live(t, a, e.key())
			e.remove(t, b, named(former))
			return former, live(t, b, former.Key)
		}
	}
	return all
}

// named returns only the fields that a write compares: some callers have no more.
func named(rec driver.Record) driver.Record {
	return driver.Record{Key: rec.Key, Version: rec.Version, Token: rec.Token}
}

// testCondition makes each conditional write from a record that is not stored: it changes
// nothing, and returns the stored record. The condition is the version and the token, and
// nothing else.
func testCondition(t *testing.T, e *env) {
	for name, begin := range e.formerly(t) {
		t.Run(name, func(t *testing.T) {
			for _, step := range e.conditional() {
				t.Run(step.name, func(t *testing.T) {
					former, stored := begin(t)
					m := &model{key: stored.Key, rec: stored, found: true}
					for _, c := range e.clients[:2] {
						e.send(t, m, c, "late "+step.name, write{op: step.op, prev: former, next: step.next(e, former)})
					}
				})
			}
		})
	}
	t.Run("Absent", func(t *testing.T) {
		for _, step := range e.conditional() {
			t.Run(step.name, func(t *testing.T) {
				former := e.held(e.key())
				former.Token = 1
				for _, c := range e.clients[:2] {
					w := write{op: step.op, prev: former, next: step.next(e, former)}
					e.send(t, &model{key: former.Key}, c, step.name, w)
				}
			})
		}
	})
	t.Run("VersionAndTokenOnly", func(t *testing.T) {
		for _, step := range e.conditional() {
			t.Run(step.name, func(t *testing.T) {
				rec := e.claim(t, e.clients[0], e.held(e.key()))
				m := &model{key: rec.Key, rec: rec, found: true}
				e.send(t, m, e.clients[1], step.name, write{op: step.op, prev: named(rec), next: step.next(e, rec)})
				e.wantModel(t, m)
			})
		}
	})
}
