// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"sync"
	"sync/atomic"
	"time"
)

// Elapsed is a [Clock] that counts suspends. [New] makes it from the machine's clocks,
// [From] from any readings.
//
// All methods may be called concurrently. Ordinarily they take no lock and
// allocate nothing. When the clocks disagree, one caller at a time reads all of
// them, under a mutex that is held for about a microsecond; that happens once
// for each suspend or step.
//
// # Order
//
// If one call returns before another starts, the later one's answer is not
// smaller, in whichever goroutines they are. An answer is a monotonic reading
// plus the offset of a reference, both taken within the call; monotonic readings
// never fall, references replace each other in one order, and their offsets
// never fall from one to the next. So the later call has the later reading and
// the same or a later reference.
//
// Calls that overlap may be answered in either order. A call that loaded its reference
// just before another call replaced it returns less, by what the replacement added: its
// answer was true when it loaded the reference.
type Elapsed struct {
	ref atomic.Pointer[reference]

	// system is read directly when source is nil: a call through an interface
	// would be a tenth of the whole cost.
	system system
	source Source
	trust  bool

	// mu makes readings of all clocks and replacements of ref one step, so that
	// they follow each other in one order. Nothing under it waits.
	mu sync.Mutex
}

var _ Clock = (*Elapsed)(nil)

// New returns a clock that reads this machine's clocks. Both its methods start at zero.
//
// In a testing/synctest bubble, use [Go] instead: this clock reads the real boot clock.
func New(o Options) *Elapsed {
	e := &Elapsed{system: makeSystem(), trust: o.TrustBootClock}
	e.start(e.system.Read())
	return e
}

// From returns a clock that uses the readings of s, concurrently. It is the hook for
// tests: simulated clocks, or the clocks of [System] with added steps and suspends.
func From(s Source, o Options) *Elapsed {
	e := &Elapsed{source: s, trust: o.TrustBootClock}
	e.start(s.Read())
	return e
}

func (e *Elapsed) start(r Reading) {
	first := origin(r)
	e.ref.Store(&first)
}

// Holder returns the time that may have passed since the clock was made:
// suspends count, and so do unexplained forward steps of the wall clock, unless
// [Options] say otherwise.
func (e *Elapsed) Holder() time.Duration {
	mono, ref := e.look()
	return mono + ref.holder
}

// Contender returns the time that has passed for certain since the clock was
// made: suspends that the boot clock shows count, steps of the wall clock do not.
func (e *Elapsed) Contender() time.Duration {
	mono, ref := e.look()
	return mono + ref.contender
}

// look is the fast path: it returns the monotonic clock and the reference to
// judge it by. It has the body of now written out, which saves a call.
func (e *Elapsed) look() (time.Duration, *reference) {
	var now Instant
	if e.source == nil {
		now = e.system.Now()
	} else {
		now = e.source.Now()
	}
	// The reference is loaded after the reading: it is then as new as can be.
	if ref := e.ref.Load(); ref.agrees(now) {
		return now.Mono, ref
	}
	return e.settle()
}

func (e *Elapsed) now() Instant {
	if e.source != nil {
		return e.source.Now()
	}
	return e.system.Now()
}

// settle is the slow path: it finds out why wall clock and monotonic clock
// disagree, and returns what look returns.
func (e *Elapsed) settle() (time.Duration, *reference) {
	e.mu.Lock()
	defer e.mu.Unlock()

	// After a suspend all callers come here at once, and the first one settles it. A
	// caller that was preempted within a reading finds by its next reading that nothing
	// happened.
	ref := e.ref.Load()
	if now := e.now(); ref.agrees(now) {
		return now.Mono, ref
	}

	var r Reading
	if e.source != nil {
		r = e.source.Read()
	} else {
		r = e.system.Read()
	}
	if next, moved := ref.advance(r, e.trust); moved {
		published := next // so that only a reference that is kept is allocated
		ref = &published
		e.ref.Store(ref)
	}
	return r.Mono, ref
}
