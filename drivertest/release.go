// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

func testRelease(t *testing.T, e *env) {
	// The next holder keeps the beginning of a long reason: it is in the way of each
	// of its heartbeats.
	t.Run("LongReason", func(t *testing.T) {
		for _, reason := range []string{
			strings.Repeat("r", driver.MaxPrevReasonLen), strings.Repeat("ü", driver.MaxReasonLen/2), strings.Repeat("世", driver.MaxPrevReasonLen/3+1),
		} {
			rec := e.claim(t, e.clients[0], e.held(e.key()))
			rec = e.swap(t, e.clients[0], rec, e.asked(rec))
			free := e.answered(rec)
			free.Asked.Reason = reason
			e.swap(t, e.clients[0], rec, free)
			e.wantStored(t, free)
			e.wantListed(t, free)
			next := e.held(rec.Key)
			now := e.wantClaimed(t, e.clients[1], next, free)
			if kept := now.Prev.Asked.Reason; len(kept) > driver.MaxPrevReasonLen || len(kept) < driver.MaxPrevReasonLen-3 {
				t.Errorf("a reason of %d bytes is kept as %q", len(reason), kept)
			}
			beat := e.beat(now)
			e.swap(t, e.clients[1], now, beat)
			e.wantStored(t, beat)
		}
	})

	a, b := e.clients[0], e.clients[1]

	t.Run("KeepsRecord", func(t *testing.T) {
		claim := e.held(e.key())
		claim.Data = []byte("checkpoint")
		held := e.claim(t, a, claim)
		next := e.released(held)
		e.wantEqual(t, "record after the release", e.swap(t, a, held, next), next)
		e.wantStored(t, next)
	})

	// Every late write of the former holder fails, and shows the release.
	t.Run("Stays", func(t *testing.T) {
		held, free := e.freed(t, a)
		for what, next := range map[string]driver.Record{
			"heartbeat": e.beat(held), "data": e.withData(held, []byte("late")),
			"release": e.released(held), "takeover": e.taken(held),
		} {
			for _, c := range []*client{a, b} {
				_, err := c.Swap(t.Context(), held, next)
				e.wantConflict(t, "late "+what, err, free)
			}
		}
	})
}
