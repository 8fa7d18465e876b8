// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proc

import "golang.org/x/sys/unix"

// Monotonic is the machine's CLOCK_MONOTONIC in nanoseconds. Every process of
// one machine reads the same clock, and it is the one behind Java's
// System.nanoTime on Linux, so that instants of different peers can be
// compared. Package time keeps its reading of this clock to itself.
func Monotonic() int64 { return Clock(unix.CLOCK_MONOTONIC) }

// Clock is a clock of clock_gettime(2), as this process sees it.
func Clock(id int32) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		panic("clock_gettime: " + err.Error()) //nolint:forbidigo // the kernel refuses a clock only to a caller that asks for none
	}
	return ts.Nano()
}
