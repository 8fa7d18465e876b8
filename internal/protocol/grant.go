// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Grant is a lease as a contender hands it over: what stands in the record,
// and since when it counts.
type Grant struct {
	Record driver.Record
	// ID is what all beats of the lease begin with, and those of no other one: a
	// string that its acquire has made, or the id of the session.
	ID string
	// Sent is the instant before the granting write was sent. From it the
	// lease is counted, never from the reply.
	Sent time.Duration
	// Former is the record before the grant, zero where there was none or
	// where the reply that carried it was lost.
	Former driver.Record
	// Before are the tenures before the one that the record names as Prev, the
	// newest first: those of which nobody else may have written anything.
	Before []*driver.Tenure
}

// Past returns the tenures that the history may lack when this one is granted.
func (g Grant) Past() []driver.Tenure {
	prev := g.Record.Prev
	if prev == nil {
		return nil
	}
	past := []driver.Tenure{*prev}
	// The record keeps the beginning of a long reason, the history all of it. That
	// is lost where the reply that carried it was.
	if t := g.Former.Tenure(prev.End); prev.Asked != nil && t != nil && t.Asked != nil && t.Asked.ID == prev.Asked.ID && t.Token == prev.Token {
		past[0].Asked = t.Asked
	}
	switch prev.End {
	case driver.EndReleased, driver.EndFailed, driver.EndSteppedDown, driver.EndHandedOver:
	default:
		// Ended in an unclean way: perhaps before it had written of the one before.
		for _, t := range g.Before {
			past = append(past, *t)
		}
	}
	return past
}
