// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"io"
	"os/exec"
	"testing"
)

// Start starts a command, with pipes to its standard input and from its standard output.
func Start(tb testing.TB, cmd *exec.Cmd) (in io.WriteCloser, out io.ReadCloser) {
	tb.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	return in, out
}
