// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"

	"github.com/tenurelock/tenure/driver"
)

// phase is how far the right to act and the work have come. It only rises, but that a
// lock goes back from awaiting to leaving when its session does not free it in time.
type phase int

const (
	granted  phase = iota // not stepped yet, so that no work has begun
	acting                // it may act
	stopping              // the right to act has ended, for a cause, and the work has not returned
	leaving               // the work has returned: the record is to be released
	awaiting              // it has returned, and the closing of the session frees the lock
)

// done says that the work has returned.
func (h *Holder) done() bool { return h.phase >= leaving }

// silence is the stage that a holder has reached because its work did not return in
// time. It only rises. Whether it is quiet stays as it is once the work has returned.
type silence int

const (
	beating  silence = iota // heartbeats go on
	silent                  // they have stopped
	told                    // and the record says why, or it is too late to say so
	followed                // they have stopped with the session's, whose record says why
	lapsed                  // they stopped a lease ago, and the session keeps the record alive: release it
)

// Invariant returns an error that says in words which of the rules about a holder's
// state does not hold, or did not hold in the step from the state that it was in
// before. It is for tests, which call it after each step.
func (h *Holder) Invariant(was Holder) error {
	ended, tied := h.phase >= stopping, h.under != nil
	handsOver := h.asked != nil && h.asked.Kind == driver.HandOver
	for _, rule := range []struct {
		words string
		holds bool
	}{
		{"the right to act has a cause to have ended exactly if it has ended", ended == (h.cause != None)},
		{"only a lock under a session leaves its release to the session", h.phase != awaiting || tied},
		{"heartbeats stop for the work's sake only after the right to act", h.silence == beating || ended},
		{"only a lock under a session goes quiet with it, or lapses", h.silence < followed || tied},
		{"only a machine whose right to act has ended is over", !h.Over() || ended},
		{"the record of a lease is kept, or its state uncertain, only when the work has returned", h.freed < Uncertain || h.done() || tied},
		{"what has expired may not act", !h.expired || ended},
		{"whose right ended by the deadline has expired", h.cause != Expired || h.expired},
		{"what nobody wants may not act", !h.unwanted || ended},
		{"later requests go unkept only when the right to act has ended, and then none hands over", !h.unkept || ended && !handsOver},
		{"a lease in a replaced store is over", !h.replaced || h.Over() || tied},
		{"a superseded lease is over", h.by == nil || h.Over() || tied},
		{"a request is found once, and ends the right to act", h.asked == nil || ended},
		{"the work fails when it returns", h.failed == nil || h.done()},
		{"the store has no data that were not laid down", h.dataKept <= h.data && h.dataRisked <= h.data},

		{"the phase only rises", h.phase >= was.phase || was.phase == awaiting && h.phase == leaving},
		{"the first cause stays", was.cause == None || h.cause == was.cause},
		{"the silence only rises", h.silence >= was.silence},
		{"nothing goes quiet when the work has returned", !was.done() || h.Quiet() == was.Quiet()},
		{"how the record was left stays", was.freed == NotFreed || h.freed == was.freed},
		{"what has expired stays so", !was.expired || h.expired},
		{"nothing expires when the work has returned", !was.done() || h.expired == was.expired},
		{"what was not taken back when the work returned is kept", !was.done() || h.unkept == was.unkept},
		{"what is unwanted, unkept or replaced stays so", (!was.unwanted || h.unwanted) && (!was.unkept || h.unkept) && (!was.replaced || h.replaced)},
		{"the confirmed sending only rises, and stays when the lease has expired", h.sent == was.sent || h.sent > was.sent && !was.expired},
	} {
		if !rule.holds {
			return errors.New(rule.words)
		}
	}
	return nil
}
