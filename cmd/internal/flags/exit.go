// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package flags

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/alecthomas/kong"
)

// Exit statuses of our commands, from sysexits.h.
const (
	StatusUsage    = 64
	StatusStore    = 69 // or another service that is needed
	StatusSoftware = 70 // a fault of this program
	StatusOutput   = 74 // standard output takes nothing
)

// Failure is an error with the exit status that it means.
type Failure struct {
	status int
	err    error // nil: everything is said already
}

func (f *Failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit status %d", f.status)
	}
	return f.err.Error()
}

func (f *Failure) Unwrap() error { return f.err }

// ExitCode makes a Failure a [kong.ExitCoder].
func (f *Failure) ExitCode() int { return f.status }

// Failed returns err with the exit status that it means. It is never nil: without an err
// it ends the program with a status about which nothing is left to say.
func Failed(status int, err error) error { return &Failure{status, err} }

// Usage returns the error of a command line that is wrong.
func Usage(format string, args ...any) error {
	return Failed(StatusUsage, fmt.Errorf(format, args...))
}

// Told says that err was already reported.
func Told(err error) bool {
	var f *Failure
	return err == nil || errors.As(err, &f) && f.err == nil
}

// StatusOf returns the exit status that an error means.
func StatusOf(err error) int {
	var coder kong.ExitCoder
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coder):
		return coder.ExitCode()
	}
	return StatusSoftware
}

// OneLine returns the text of an error, several joined ones in a row.
func OneLine(err error) string {
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

// Output is a standard output that remembers that it takes nothing. Nothing is written to it
// from then on.
type Output struct {
	to  *os.File
	mu  sync.Mutex
	err error
}

// NewOutput returns the output that goes to a file.
func NewOutput(to *os.File) *Output { return &Output{to: to} }

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.to.Write(p)
	if err != nil {
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		o.err = Failed(StatusOutput, fmt.Errorf("standard output cannot be written: %w", err))
	}
	return n, err
}

// Or returns the error of the output if it cannot be written, otherwise err.
func (o *Output) Or(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return o.err
	}
	return err
}
