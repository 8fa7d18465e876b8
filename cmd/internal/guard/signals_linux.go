// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"os"
	"syscall"
)

// The real-time signals that os/signal can catch. The C libraries keep those from 32 on for
// themselves, up to 34.
const (
	firstRealTime = 35
	lastRealTime  = 64
)

// Signals returns the signals that a caller may catch to pass them on with [Guard.Signal].
// They are all that os/signal has, but for those that say what this process did itself
// (SIGCHLD, SIGPIPE, faults, limits), those that stop it, and SIGURG and SIGPROF, which Go's
// runtime has for itself.
func Signals() []os.Signal {
	all := []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM, syscall.SIGVTALRM, syscall.SIGWINCH, syscall.SIGIO, syscall.SIGCONT,
		syscall.SIGPWR,
	}
	for sig := syscall.Signal(firstRealTime); sig <= lastRealTime; sig++ {
		all = append(all, sig)
	}
	return all
}
