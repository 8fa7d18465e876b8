// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Counted is a number that a process has written under a lock, with its token.
type Counted struct {
	N, PID int
	Token  uint64
}

const (
	counters    = 20
	deaths      = 25
	countedTo   = 100
	countingFor = 2 * time.Minute // at most
)

// Main is what TestMain of a store does whose tests start their own program again: with the
// variable set the program works as one of those processes, by its value, and is otherwise
// the tests.
func Main(m *testing.M, variable string, work func(ctx context.Context, value string) error) {
	if value := os.Getenv(variable); value != "" {
		if err := work(context.Background(), value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	DefaultSignals()
	os.Exit(m.Run())
}

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

// CountUnderKills runs the test's program twenty times, with more variables in its
// environment, and kills one after the other by SIGKILL. Each of them adds to one counter
// under one lock, again and again: it reads and writes it in two steps, as a program does
// whose resource knows no transactions, so that two holders would write the same number.
// Read returns the counter, and what was written, in order. No number may be missing or be
// there twice, and the tokens rise.
func CountUnderKills(t *testing.T, env []string, read func(ctx context.Context) (n int, log []Counted, err error)) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long: make nightly-race runs it")
	}
	start := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), env...)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	end := func(cmd *exec.Cmd) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	all := make([]*exec.Cmd, counters)
	for i := range all {
		all[i] = start()
		defer func() { end(all[i]) }()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*countingFor)
	defer cancel()
	killed, holders := 0, 0
	for deadline := time.Now().Add(countingFor); time.Now().Before(deadline); {
		n, log, err := read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if killed >= deaths && holders > 0 && n >= countedTo {
			break
		}
		i := rand.IntN(len(all))
		for j, cmd := range all { // as often as not the latest holder
			if len(log) > 0 && rand.IntN(2) == 0 && cmd.Process.Pid == log[len(log)-1].PID {
				i = j
				holders++
			}
		}
		end(all[i])
		all[i] = start()
		killed++
		<-time.After(time.Duration(rand.IntN(300)) * time.Millisecond)
	}
	n, log, err := read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d processes were killed, %d of them just after they had counted; the counter is at %d", killed, holders, n)
	if killed < deaths || n < countedTo {
		t.Errorf("too little has happened: %d deaths, counted to %d", killed, n)
	}
	if n != len(log) {
		t.Errorf("the counter is at %d after %d writes", n, len(log))
	}
	for i, e := range log {
		if e.N != i+1 {
			t.Errorf("number %d is there where %d should be: two have counted at once", e.N, i+1)
		}
		if i > 0 && e.Token <= log[i-1].Token {
			t.Errorf("number %d under token %d, after token %d", e.N, e.Token, log[i-1].Token)
		}
	}
}

// ReadCounted reads a log, of a line for each number with the process and the token.
func ReadCounted(text string) (log []Counted, err error) {
	for line := range strings.Lines(text) {
		var c Counted
		if _, err := fmt.Sscan(line, &c.N, &c.PID, &c.Token); err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
		log = append(log, c)
	}
	return log, nil
}
