// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package guard

import (
	"os"
	"syscall"
)

// Signals returns the signals that a caller may catch to pass them on with [Guard.Signal].
func Signals() []os.Signal {
	return []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM, syscall.SIGVTALRM, syscall.SIGWINCH, syscall.SIGIO, syscall.SIGCONT,
	}
}
