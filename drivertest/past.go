// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// testPast writes the history of a lock: records that are claimed once and
// never taken.
func testPast(t *testing.T, e *env) {
	a, b := e.clients[0], e.clients[1]
	key := func() string { return driver.OwnPrefix + "history/" + e.key() }

	t.Run("Stored", func(t *testing.T) {
		next := e.past(key())
		e.wantListed(t, e.wantClaimed(t, a, next, driver.Record{}))
	})

	// A second write of it, because the first reply was lost, shows that it is
	// there. A write that says something else comes too late.
	t.Run("Once", func(t *testing.T) {
		next := e.past(key())
		first := e.claim(t, a, next)
		for what, again := range map[string]driver.Record{
			"the same": next, "another past": e.past(next.Key), "a held": e.held(next.Key),
		} {
			for _, c := range []*client{a, b} {
				_, _, err := c.Claim(t.Context(), again)
				e.wantConflict(t, "Claim of a past record with "+what, err, first)
			}
		}
	})

	t.Run("Delete", func(t *testing.T) {
		first := e.claim(t, a, e.past(key()))
		other := first
		other.Version = e.fresh("other")
		e.wantConflict(t, "Delete of another version", b.Delete(t.Context(), other), first)
		other = first
		other.Token++
		e.wantConflict(t, "Delete under another token", b.Delete(t.Context(), other), first)
		e.remove(t, b, first)
		e.wantAbsent(t, first.Key)
		// Nobody knows any more that it was there.
		e.claim(t, b, e.past(first.Key))
	})
}
