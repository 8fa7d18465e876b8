// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"syscall"
	"time"
	"unsafe"
)

// Clocks of clock_gettime(2), which package syscall does not name.
const (
	clockMonotonic    = 1
	clockMonotonicRaw = 4 // CLOCK_MONOTONIC without the adjustments of a time service
	clockBoottime     = 7 // CLOCK_MONOTONIC with the time in which the machine was suspended
)

// readBoot reads the boot clock. It is false on a kernel or in a sandbox that has none.
func readBoot() (time.Duration, bool) { return readKernel(clockBoottime) }

// readRaw reads the raw clock. It is false on a kernel or in a sandbox that has none.
func readRaw() (time.Duration, bool) { return readKernel(clockMonotonicRaw) }

// hasRaw reports whether the kernel keeps a raw clock of its own. Sandboxes that emulate Linux
// (gVisor, pkg/sentry/syscalls/linux/sys_time.go) answer with the monotonic clock, which may be
// slewed. Then the reading lies between two of that clock. On Linux the two clocks part within
// moments after the machine was started; before, the answer is no, which is safe.
func hasRaw() bool {
	before, ok1 := readKernel(clockMonotonic)
	raw, ok2 := readRaw()
	after, ok3 := readKernel(clockMonotonic)
	return ok1 && ok2 && ok3 && distinct(before, raw, after)
}

func readKernel(id uintptr) (time.Duration, bool) {
	var ts syscall.Timespec
	// Raw, because the call never waits: there is no need to tell the scheduler.
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano()), errno == 0
}
