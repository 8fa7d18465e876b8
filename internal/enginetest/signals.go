// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"os"
	"os/signal"
	"syscall"
)

// DefaultSignals has the processes that a test starts begin with the default actions
// of SIGHUP and SIGINT, also where the test itself came to ignore them: under nohup,
// or in the background of a shell. TestMain calls it. A child process inherits the
// signals that are ignored, but not those that are caught.
func DefaultSignals() {
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}
