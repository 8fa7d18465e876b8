// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/guard"
)

// Exit statuses besides the child's own, and those of package flags. 75 is "temporary
// failure, try again" of sysexits.h, 126 and 127 are the shell's.
const (
	statusUsage     = flags.StatusUsage
	statusStore     = flags.StatusStore
	statusLost      = 73
	statusHeld      = 75
	statusTimeout   = 124 // as timeout(1) has it
	statusCannotRun = 126
	statusNotFound  = 127
)

func failed(status int, err error) error { return flags.Failed(status, err) }

// ended ends the program with a status about which nothing is left to say. It
// is never nil, since 0 may be the status of a lock that was not acquired.
func ended(status int) error { return flags.Failed(status, nil) }

func usage(format string, args ...any) error { return flags.Usage(format, args...) }

// tempFail is for what may do later: somebody else has it, or is at it.
func tempFail(format string, args ...any) error {
	return failed(statusHeld, fmt.Errorf(format, args...))
}

func storeFailed(err error) error { return failed(statusStore, err) }

// cannotRun is for errors of guard.Start and of looking a command up.
func cannotRun(err error) error {
	if status := guard.StartStatus(err); status != 0 {
		return failed(status, err)
	}
	return failed(statusCannotRun, err)
}

// fail says what went wrong, in one line, and returns the exit status.
func (c *console) fail(err error, hint string) int {
	status := flags.StatusOf(err)
	if flags.Told(err) {
		return status
	}
	text := flags.OneLine(err)
	if c.json {
		c.emit(record{Event: eventError, Status: &status, Error: text})
		return status
	}
	if status == statusUsage {
		text += " (" + hint + ")"
	}
	c.write(prefix+"%s", text)
	return status
}
