// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package clock

import "time"

// Clock measures elapsed time. Its instants are durations since an origin that belongs
// to the clock and to the method: an instant of one clock means nothing to another, and
// one of Holder means nothing to Contender. Only the difference of two instants from
// the same method of the same clock is a length of time.
//
// All methods may be called concurrently, and never block for longer than it
// takes to read the machine's clocks.
type Clock interface {
	// Holder is for the holder of a lease: it counts all time that may have passed.
	// A forward step of the wall clock that the boot clock does not explain may
	// be the end of a pause of the whole virtual machine, so it counts.
	// If that is wrong, a lease ends early.
	Holder() time.Duration

	// Contender is for a process that waits until a lease has expired: it counts only time
	// that has certainly passed. A step of the wall clock may only mean that the time was
	// set, so it never counts. If that is wrong, the wait is longer.
	Contender() time.Duration
}

// Options are the options of a clock. The zero value is safe.
type Options struct {
	// TrustBootClock leaves forward steps of the wall clock out of Holder too.
	// If false, a step counts as elapsed for the holder, so that setting the
	// time by more than the rest of a lease ends that lease.
	//
	// It is for machines that are never paused from outside while their boot
	// clock stands (bare metal; virtual machines that are neither snapshotted
	// nor migrated) and whose wall clock is stepped often.
	//
	// It has no effect where there is no boot clock: there the step is the only sign
	// of a suspend.
	TrustBootClock bool
}
