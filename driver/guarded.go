// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import "time"

// Guarded is implemented by stores on engines that may lose writes which they have
// answered: see "Engines that lose what they have answered" in the package comment.
type Guarded interface {
	// Waits returns how long a caller must have seen a sign of life, or a life of the
	// engine, before it may take over a lock, or open the life. It is the longest lease
	// that the store accepts, plus (1+drift) times the longest time for which a server goes
	// on answering writes after another server has begun. It is the same for the life of
	// the store. 0 means that the engine loses nothing, and that the store is not guarded.
	Waits() time.Duration
}

// Opening is what a caller knows when it allows a write to open a life of the engine.
type Opening struct {
	// Life is the life that the caller has seen for [Guarded.Waits], on its own clock.
	Life string
	// Base is a bound that rises with time: see [OpeningOf].
	Base uint64
}

// tokensPerSecond is by how much the base of tokens rises in a second: by more than the
// grants of one lock. 53 bits are enough until the year 2242.
const tokensPerSecond = 1 << 20

// OpeningOf returns the opening of a life at a time by the caller's wall clock. A wrong clock
// decides nothing but a token.
func OpeningOf(life string, at time.Time) Opening {
	return Opening{Life: life, Base: uint64(max(0, at.Unix())) * tokensPerSecond}
}

// NextBase returns the base of the tokens of a life that is opened now; base is that of the
// life that was open before. Only a clock is sure to rise from life to life: whatever the
// store itself counts may be lost with the next life.
func (o Opening) NextBase(base uint64) uint64 { return max(base+tokensPerSecond, o.Base) }

// InClosedLife returns what a guarded store shows, in a conflict and in Get, instead of a
// record that is absent (a zero record), Released or Reserved, as long as the engine's life
// is closed: the lock is reserved for nobody. The token stays, and the version is the life.
func InClosedLife(rec Record, key, life string, waits time.Duration) Record {
	shown := Record{
		Key: key, Version: life, Beat: life, Life: life, Token: rec.Token, State: Reserved, Lease: waits, Data: rec.Data,
	}
	if rec.Token > 0 {
		shown.Prev = rec.Term(EndReleased).Shorten()
	}
	return shown
}

// RaisedAtOpening returns what a guarded store writes in place of a lock's record, absent (a
// zero record) or not, when a caller wants to write next, and the token of the record is below
// the base of the open life.
func RaisedAtOpening(rec, next Record, life string, base uint64) Record {
	raised := Record{
		Key: next.Key, Version: "raised-" + life, Beat: "raised-" + life, Life: life, Owner: next.Owner, Host: next.Host,
		Token: base, State: Released, Lease: next.Lease, End: EndRaised, Data: rec.Data,
		Asked: &Request{
			ID: "raised-" + life, Kind: Raise, By: next.Owner, Token: rec.Token,
			Reason: "the engine may have lost writes",
		},
	}
	if rec.Token > 0 {
		raised.Prev = rec.Term(EndExpired).Shorten()
	}
	return raised
}
