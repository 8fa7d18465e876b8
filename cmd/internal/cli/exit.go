// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/tenurelock/tenure/cmd/internal/guard"
)

// Exit statuses besides the child's own. 64 and 69 are those of sysexits.h, 75
// is its "temporary failure, try again", 126 and 127 are the shell's.
const (
	statusUsage     = 64
	statusStore     = 69
	statusSoftware  = 70 // a fault of this program
	statusLost      = 73
	statusHeld      = 75
	statusTimeout   = 124 // as timeout(1) has it
	statusCannotRun = 126
	statusNotFound  = 127
)

// failure is an error with the exit status that it means.
type failure struct {
	status int
	err    error // nil: everything is said already
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit status %d", f.status)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// ExitCode makes a failure a [kong.ExitCoder].
func (f *failure) ExitCode() int { return f.status }

func failed(status int, err error) error { return &failure{status, err} }

// ended ends the program with a status about which nothing is left to say. It
// is never nil, since 0 may be the status of a lock that was not acquired.
func ended(status int) error { return &failure{status: status} }

func usage(format string, args ...any) error {
	return failed(statusUsage, fmt.Errorf(format, args...))
}

func storeFailed(err error) error { return failed(statusStore, err) }

// cannotRun is for errors of guard.Start and of looking a command up.
func cannotRun(err error) error {
	if status := guard.StartStatus(err); status != 0 {
		return failed(status, err)
	}
	return failed(statusCannotRun, err)
}

// statusOf returns the exit status that an error means.
func statusOf(err error) int {
	var coder kong.ExitCoder
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coder):
		return coder.ExitCode()
	}
	return statusSoftware
}

// fail says what went wrong, in one line, and returns the exit status.
func (c *console) fail(err error, hint string) int {
	status := statusOf(err)
	var f *failure
	if err == nil || errors.As(err, &f) && f.err == nil {
		return status
	}
	text := oneLine(err)
	if c.json {
		c.emit(record{Event: eventError, Status: &status, Error: text})
		return status
	}
	if status == statusUsage {
		text += " (" + hint + ")"
	}
	c.write(said+"%s", text)
	return status
}

// oneLine returns the text of an error, several joined ones in a row.
func oneLine(err error) string {
	text := strings.TrimPrefix(err.Error(), "tenure: ")
	var row string
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
		switch part = strings.TrimSpace(part); {
		case row == "" || part == "":
			row += part
		case strings.HasSuffix(row, ":"):
			row += " " + part
		default:
			row += "; " + part
		}
	}
	return row
}
