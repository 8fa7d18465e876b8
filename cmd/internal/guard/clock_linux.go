// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"os"

	"golang.org/x/sys/unix"
)

// Now reads the boot clock. It counts the time that the machine was suspended.
func Now() Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// In Linux since 2.6.39; nothing can be guarded without it.
		panic("guard: no boot clock: " + err.Error()) //nolint:forbidigo // see above
	}
	return Instant(ts.Nano())
}

// openTimer opens a timer on the boot clock.
func openTimer() (int, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	return fd, os.NewSyscallError("timerfd_create", err)
}

// armTimer makes a timer readable from at on.
func armTimer(fd int, at Instant) error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(at, 1)))} // 0 would disarm it
	return os.NewSyscallError("timerfd_settime", unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME, &spec, nil))
}

// alarm wakes one goroutine at an instant that others may move. Moving it is one
// system call that does not block. set and close must not be called at the same time.
type alarm struct {
	fd   int
	file *os.File
}

func newAlarm() (*alarm, error) {
	fd, err := openTimer()
	if err != nil {
		return nil, err
	}
	return &alarm{fd: fd, file: os.NewFile(uintptr(fd), "timer")}, nil
}

func (a *alarm) set(at Instant) { _ = armTimer(a.fd, at) }

// wait returns true once the alarm has gone off, false when it is closed.
func (a *alarm) wait() bool {
	var count [8]byte
	_, err := a.file.Read(count[:])
	return err == nil
}

func (a *alarm) close() { _ = a.file.Close() }
