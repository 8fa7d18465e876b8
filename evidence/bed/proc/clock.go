// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proc

import (
	"syscall"
	"unsafe"
)

// clockMonotonic is CLOCK_MONOTONIC of clock_gettime(2).
const clockMonotonic = 1

// Monotonic is the machine's CLOCK_MONOTONIC in nanoseconds. Every process of
// one machine reads the same clock, and it is the one behind Java's
// System.nanoTime on Linux, so that instants of different peers can be
// compared. Package time keeps its reading of this clock to itself.
func Monotonic() int64 {
	var ts syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		//nolint:forbidigo // the kernel refuses a clock only to a caller that asks for none
		panic("proc: clock_gettime: " + errno.Error())
	}
	return ts.Nano()
}
