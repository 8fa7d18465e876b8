// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Grant is a lease as an acquire gets it: what the record says, and the instant
// from which the lease counts.
type Grant struct {
	Record driver.Record
	// ID is the prefix of all beats of this lease, and of no other lease: a string that
	// its acquire has made, or the id of the session.
	ID string
	// Sent is the instant before the granting write was sent, on the clock by
	// which leases count: see [Env]. The lease counts from it, never from the reply.
	Sent time.Duration
	// Former is the record before the grant, zero where there was none or
	// where the reply that carried it was lost.
	Former driver.Record
	// Before are the terms that precede the record's Prev and that the history may lack,
	// newest first.
	Before []*driver.Term

	by *Acquirer // the session drops it for the Holder
}

// Past returns the terms that the history may lack when this lease is granted.
func (g Grant) Past() []driver.Term {
	prev := g.Record.Prev
	if prev == nil {
		return nil
	}
	past := []driver.Term{*prev}
	// The record keeps only the beginning of a long reason, the history keeps all of it.
	// If the reply with the whole reason was lost, the rest is lost too.
	if prev.Asked != nil {
		t := g.Former.Term(prev.End)
		if t != nil && t.Asked != nil && t.Asked.ID == prev.Asked.ID && t.Token == prev.Token {
			past[0].Asked = t.Asked
		}
	}
	if !inOrder(prev.End) {
		for _, t := range g.Before {
			past = append(past, *t)
		}
	}
	return past
}

// inOrder says that a holder whose term ended this way has written the history entry of
// its predecessor: it released the lock itself, after its work.
func inOrder(end driver.EndReason) bool {
	switch end {
	case driver.EndReleased, driver.EndFailed, driver.EndSteppedDown, driver.EndHandedOver:
		return true
	}
	return false
}
