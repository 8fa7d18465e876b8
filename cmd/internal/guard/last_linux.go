// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The last act of a guardian whose caller has ended: see [Command.Last].

// last becomes the program of Command.Last, if it is proved that nothing is left: neither
// the caller, nor the command and what that has started. Otherwise it returns, and the
// guardian ends.
func (g *guardian) last() {
	if len(g.spec.last) == 0 {
		return
	}
	if g.listen(); !g.pipeEnded {
		return // the caller lives, or has written nonsense
	}
	if _, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != unix.ECHILD {
		return
	}
	ended := g.clock()
	if !g.callerEnded() {
		return
	}
	argv := append(append([]string(nil), g.spec.last...), formatInstant(ended), formatInstant(g.orders.Expiry))
	if err := letGo(); err != nil {
		return
	}
	_ = syscall.Exec(self, argv, os.Environ()) // if that fails nobody is told of the death
}

// callerEnded says that the caller's process has ended, with all of its threads. The end
// of the pipe comes a bit earlier, and would come too if the caller had closed it. It
// waits for no longer than the limits of the caller.
func (g *guardian) callerEnded() bool {
	for {
		switch {
		case g.parentFD >= 0:
			fds := []unix.PollFd{{Fd: int32(g.parentFD), Events: unix.POLLIN}}
			if n, err := unix.Poll(fds, 10); err == nil && n == 1 && fds[0].Revents&unix.POLLIN != 0 {
				return true
			}
		case g.spec.contain:
			return false // from within a namespace nothing else tells
		default: // before Linux 5.3
			if unix.Getppid() != g.spec.parent {
				return true
			}
			time.Sleep(time.Millisecond) //nolint:forbidigo // nothing tells of it
		}
		if g.clock() >= g.orders.Expiry {
			return false
		}
	}
}

// letGo lets go of all that was inherited: whoever waits for the end of the output of the
// command must not wait for what comes now.
func letGo() error {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for fd := range 3 {
		if err := unix.Dup3(null, fd, 0); err != nil {
			return err
		}
	}
	for fd := range inheritedDescriptors() {
		unix.CloseOnExec(fd)
	}
	return nil
}

func formatInstant(t Instant) string { return strconv.FormatInt(int64(t), 10) }
