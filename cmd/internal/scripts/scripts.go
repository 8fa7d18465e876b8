// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package scripts has what the tests of both commands share: each runs scripts of testdata,
// in which its own binary provides the commands and small helper programs.
package scripts

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// Main is for a TestMain: it makes the test's binary the commands.
func Main(m *testing.M, commands map[string]func()) {
	// By default a program with the race detector rests for a second at its end.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// What is ignored here, as SIGHUP is under nohup, would be ignored by the commands
	// of the scripts, which send it. What is caught is not.
	if strings.HasSuffix(os.Args[0], ".test") {
		enginetest.DefaultSignals()
	}
	testscript.Main(m, commands)
}

// Program makes a command of a helper program: it prints an error, and then has exit status 1.
func Program(run func() error) func() {
	return func() {
		if err := run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// Exits is a command of scripts that runs a program and compares its exit status:
//
//	exits STATUS PROGRAM [ARG...]
func Exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS PROGRAM [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	status := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		status = exit.ExitCode()
	}
	if status != want {
		ts.Fatalf("exit status %d, want %d", status, want)
	}
}
