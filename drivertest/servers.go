// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// testServers reads through one server what was written through another. A strong read
// that one server answers by itself shows what others have long replaced: a lock that
// is free although it is held, a session that is not there although it lives.
func testServers(t *testing.T, e *env) {
	if len(e.h.Servers) < 2 {
		t.Skip("the harness has one server: it cannot show a strong read that is stale")
	}

	t.Run("Strong", func(t *testing.T) {
		const rounds = 10
		e.eachPair(t, func(t *testing.T, writer, reader *client) {
			for range rounds {
				key := e.key()
				e.near(t, reader, key, nil)
				rec := e.claim(t, writer, e.held(key))
				states := map[string]driver.Record{rec.Version: rec}
				for _, next := range []func(driver.Record) driver.Record{e.beat, e.asked, e.answered, e.taken, e.beat, e.released} {
					// What a server has near by is as old as can be when it counts.
					e.near(t, reader, key, states)
					e.wantEqual(t, "strong read through another server", e.get(t, reader, key), rec)
					rec = e.swap(t, writer, rec, next(rec))
					states[rec.Version] = rec
				}
				e.wantEqual(t, "strong read through another server", e.get(t, reader, key), rec)
				e.remove(t, writer, rec)
				e.near(t, reader, key, states)
				if rec, err := reader.Get(t.Context(), key, driver.Strong); !errors.Is(err, driver.ErrNotFound) {
					t.Fatalf("strong read of a deleted key through another server: %s, %v", brief(rec), err)
				}
			}
		})
	})

	t.Run("Batch", func(t *testing.T) {
		if _, ok := e.clients[0].Store.(driver.BatchGetter); !ok {
			t.Skip("the store does not read in batches")
		}
		e.eachPair(t, func(t *testing.T, writer, reader *client) {
			rec := e.claim(t, writer, e.held(e.key()))
			for range 10 {
				e.near(t, reader, rec.Key, nil)
				rec = e.swap(t, writer, rec, e.beat(rec))
				found, err := reader.Store.(driver.BatchGetter).GetBatch(t.Context(), []string{rec.Key}, driver.Strong)
				if err != nil || len(found) != 1 || found[0].Err != nil {
					t.Fatalf("GetBatch: %+v, %v", found, err)
				}
				e.wantEqual(t, "strong batch through another server", found[0].Record, rec)
			}
		})
	})

	// The loser of a race sees the winner, whatever its own server knows so far.
	t.Run("Conflict", func(t *testing.T) {
		e.eachPair(t, func(t *testing.T, writer, loser *client) {
			for range 10 {
				rec := e.claim(t, writer, e.held(e.key()))
				e.near(t, loser, rec.Key, nil)
				next := e.swap(t, writer, rec, e.beat(rec))
				_, err := loser.Swap(t.Context(), rec, e.beat(rec))
				e.wantConflict(t, "Swap through another server", err, next)
				_, _, err = loser.Claim(t.Context(), e.held(rec.Key))
				e.wantConflict(t, "Claim through another server", err, next)
			}
		})
	})
}

// eachPair runs check with each server as the writer, and each other one as the reader.
func (e *env) eachPair(t *testing.T, check func(t *testing.T, writer, reader *client)) {
	t.Helper()
	for w, writer := range e.clients[:len(e.h.Servers)] {
		for r, reader := range e.clients[:len(e.h.Servers)] {
			if r != w {
				t.Run(fmt.Sprintf("%dTo%d", w, r), func(t *testing.T) { check(t, writer, reader) })
			}
		}
	}
}

// near makes an eventual read, which fails the test unless it shows nothing or one of
// the states, if there are any.
func (e *env) near(t *testing.T, c *client, key string, states map[string]driver.Record) {
	t.Helper()
	rec, err := c.Get(t.Context(), key, driver.Eventual)
	switch want, known := states[rec.Version]; {
	case errors.Is(err, driver.ErrNotFound):
	case err != nil:
		t.Fatalf("eventual Get(%q): %v", key, err)
	case states != nil && !known:
		t.Fatalf("an eventual read shows %s, which was never written", brief(rec))
	case states != nil:
		e.wantEqual(t, "eventual read", rec, want)
	}
}
