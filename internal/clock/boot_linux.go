// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"syscall"
	"time"
	"unsafe"
)

// clockBoottime is CLOCK_BOOTTIME of clock_gettime(2): CLOCK_MONOTONIC with the
// time in which the machine was suspended. Package syscall does not name it.
const clockBoottime = 7

// readBoot reads the boot clock. It is false on a kernel or in a sandbox that has none.
func readBoot() (time.Duration, bool) {
	var ts syscall.Timespec
	// Raw, because the call never waits: there is no need to tell the scheduler.
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano()), errno == 0
}
