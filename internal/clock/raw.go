// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package clock

import "time"

// Raw is a [Clock] that no time service slews: its rate is that of the machine's counter. It
// counts the same suspends and steps as the [Elapsed] that it is made from, and finds them in
// the same way. Its instants have their own origin.
//
// A reading makes a system call, which takes several times as long as a reading of Elapsed.
//
// All methods may be called concurrently, and allocate nothing. The order of answers is that of
// Elapsed.
type Raw struct {
	e    *Elapsed
	from time.Duration // what the raw clock showed at the start
	base *reference    // of e, at the start
}

var _ Clock = (*Raw)(nil)

// RawSource is a [Source] that has a raw clock.
type RawSource interface {
	Source
	// Raw reads the raw clock, whose origin may be any: it stands still in a suspend, and
	// never falls. It is false if it cannot be read.
	Raw() (time.Duration, bool)
}

// MaxSlowdown bounds how many times slower than the raw clock a kernel lets the clock of
// [Elapsed] run. Linux slews the monotonic clock by its tick (a tenth at most), its frequency
// and adjtime (500 millionths each), and a phase offset of 0.5 s at most: a quarter of the offset
// in each second, or all of it with a pulse per second. Together these leave 0.399 of the
// rate. See adjtimex(2), and ntp_offset_chunk in kernel/time/ntp.c.
const MaxSlowdown = 3

// Raw returns a clock by the raw clock of the same machine, which starts at zero. It is false
// if that machine has no raw clock, if its raw clock is not known to differ from the monotonic
// clock, and in a testing/synctest bubble.
func (e *Elapsed) Raw() (*Raw, bool) {
	if e.source == nil && (InBubble() || !hasRaw()) {
		return nil, false
	}
	r := &Raw{e: e, base: e.ref.Load()}
	from, ok := r.read()
	r.from = from
	return r, ok
}

// Machine returns the most exact clock of this machine: by its raw clock, or if that cannot be
// read, as [New] does.
func Machine(o Options) (c Clock, raw bool) {
	e := New(o)
	if r, ok := e.Raw(); ok {
		return r, true
	}
	return e, false
}

// Elapsed returns the clock that r was made from, which is cheaper to read, but slewed.
func (r *Raw) Elapsed() *Elapsed { return r.e }

// Holder returns the time that may have passed since the clock was made, as [Elapsed.Holder]
// does. If the raw clock cannot be read any more, so much time may have passed that all leases
// have ended.
func (r *Raw) Holder() time.Duration {
	_, ref := r.e.look() // which finds suspends and steps
	now, ok := r.read()
	if !ok {
		return maxOffset
	}
	return now - r.from + (ref.holder - r.base.holder)
}

// Contender returns the time that has passed for certain since the clock was made, as
// [Elapsed.Contender] does. If the raw clock cannot be read any more, no time is certain.
func (r *Raw) Contender() time.Duration {
	_, ref := r.e.look()
	now, ok := r.read()
	if !ok {
		return 0
	}
	return now - r.from + (ref.contender - r.base.contender)
}

func (r *Raw) read() (time.Duration, bool) {
	if r.e.source == nil {
		return readRaw()
	}
	if s, ok := r.e.source.(RawSource); ok {
		return s.Raw()
	}
	return 0, false
}

// distinct reports whether a reading of a clock between two readings of another shows that
// they are not the same clock.
func distinct(before, between, after time.Duration) bool { return between < before || between > after }
