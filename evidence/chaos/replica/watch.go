// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package replica

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenurelock/tenure/evidence/bed/proc"
)

// Watch reads one clock for all processes of the machine: CLOCK_BOOTTIME of the
// first time namespace. The kernel shifts this clock for a process in a time
// namespace of its own, by an offset that it tells; the watch takes that off again.
//
// It is not CLOCK_REALTIME, which no namespace shifts, because somebody may set
// that one while a run is under way. And it is read past the clock that the
// replica's locks go by, so that no fault of a clock moves it.
type Watch struct {
	offset int64
}

// NewWatch reads the offset of this process's time namespace.
func NewWatch() (Watch, error) {
	text, err := os.ReadFile("/proc/self/timens_offsets")
	if os.IsNotExist(err) {
		return Watch{}, nil // a kernel without time namespaces
	}
	if err != nil {
		return Watch{}, err
	}
	for line := range strings.Lines(string(text)) {
		var name string
		var seconds, nanoseconds int64
		if _, err := fmt.Sscan(line, &name, &seconds, &nanoseconds); err != nil {
			return Watch{}, fmt.Errorf("/proc/self/timens_offsets: %q: %w", line, err)
		}
		if name == "boottime" {
			return Watch{seconds*1e9 + nanoseconds}, nil
		}
	}
	return Watch{}, fmt.Errorf("/proc/self/timens_offsets: no boottime in %q", text)
}

// Now returns nanoseconds since the machine was started.
func (w Watch) Now() int64 { return proc.Clock(unix.CLOCK_BOOTTIME) - w.offset }

// Slept returns by how much the boot clock of this process is ahead of its
// monotonic clock: the suspends of the machine, where no time namespace is.
func Slept() int64 { return proc.Clock(unix.CLOCK_BOOTTIME) - proc.Clock(unix.CLOCK_MONOTONIC) }
