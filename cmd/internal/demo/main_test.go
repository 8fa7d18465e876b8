// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestMain lets the test binary be the program: with the name of a command as
// its first argument it is that command.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "demo" || os.Args[1] == ReplicaCommand) {
		os.Exit(program(os.Args[1:]))
	}
	enginetest.DefaultSignals()
	os.Exit(m.Run())
}

func program(args []string) int {
	var grammar struct {
		Demo    Cmd        `cmd:""`
		Replica ReplicaCmd `cmd:"" hidden:"" name:"demo-replica"`
	}
	parser, err := kong.New(&grammar, kong.Name("tenure"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 70
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tenure:", err)
		return 64
	}
	if err := parsed.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "tenure:", err)
		var coder kong.ExitCoder
		if errors.As(err, &coder) {
			return coder.ExitCode()
		}
		return 1
	}
	return 0
}
