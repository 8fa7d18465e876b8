// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/tenurelock/tenure/test/harness/must"
)

// roleEnv names the role of a process that a program of its own kind has started.
const roleEnv = "TENURE_EVIDENCE_ROLE"

// Role is what a process does instead of the program's own work, until its input
// ends or it is asked to end.
type Role func(in io.Reader, out io.Writer) error

// Play plays the role of this process, and exits. Without a role it returns.
// Call it first in main, and in TestMain: a test binary is the
// program that its tests start.
func Play(roles map[string]Role) {
	name := os.Getenv(roleEnv)
	if name == "" {
		return
	}
	// Processes that it starts have roles of their own.
	err := os.Unsetenv(roleEnv)
	if role := roles[name]; role == nil {
		err = errors.New("there is no such role")
	} else if err == nil {
		err = role(os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Main is what is left of a program's main after [Play]: the steps of a run, for [must.Try], until
// they end or are asked to.
func Main(run func(ctx context.Context)) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := must.Try(func() { run(ctx) })
	stop()
	if err != nil {
		Logf("%v", err)
		os.Exit(1)
	}
}

// Logf logs the program's progress.
func Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, filepath.Base(os.Args[0])+": "+format+"\n", args...)
}

// Lines writes values as lines of JSON. It may be used concurrently.
type Lines struct {
	mu sync.Mutex
	w  io.Writer
}

// NewLines returns Lines that write to w.
func NewLines(w io.Writer) *Lines { return &Lines{w: w} }

// Say writes a value. What was said before a kill is not lost: no buffer is
// between.
func (l *Lines) Say(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.w.Write(append(line, '\n'))
	return err
}

// Serve answers each line, read as a Request, until the input ends. A slow
// answer does not hold up the others. When the reader has gone, the process ends.
func Serve[Request any](in io.Reader, out *Lines, answer func(*Request) any) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var request Request
		if err := json.Unmarshal(line, &request); err != nil {
			return fmt.Errorf("line %q: %w", bytes.TrimSpace(line), err)
		}
		go func() {
			if out.Say(answer(&request)) != nil {
				os.Exit(1)
			}
		}()
	}
}
