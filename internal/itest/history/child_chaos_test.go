// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
)

// The tests of this package start the test binary again, as real processes on
// one file: children[order.Child] runs in place of the tests.
const childOrder = "HISTORY_TEST_CHILD"

// order is what a child is told, in its environment.
type order struct {
	Child, File, Owner string

	Point   point // taker: where it dies
	Release bool  // taker: it releases the lock, and ends in peace

	Journal string // candidate: where it notes what it does
	To      string // asker: who is to lead
}

var children = map[string]func(order) error{
	"taker":     childTaker,
	"stuck":     childStuck,
	"candidate": childCandidate,
	"asker":     childAsker,
}

func TestMain(m *testing.M) {
	text := os.Getenv(childOrder)
	if text == "" {
		os.Exit(m.Run())
	}
	var o order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		go func() { // the parent is gone, or wants it to end
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(3)
		}()
		err = children[o.Child](o)
	}
	if err != nil {
		say("error", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// said keeps the lines of a child apart.
var said sync.Mutex

// say tells the parent. What was said before a kill is not lost: no buffer is
// between.
func say(words ...any) {
	said.Lock()
	defer said.Unlock()
	fmt.Fprintln(os.Stdout, words...)
}

// die ends this process as a crash does.
func die() {
	say("dies")
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// lease is short, and leaves requests the time that a busy machine needs.
const (
	lease          = 300 * time.Millisecond
	requestTimeout = 70 * time.Millisecond
	lockName       = "x"
)

func options(owner string) *tenure.Options {
	return &tenure.Options{
		LeaseDuration: lease, RequestTimeout: requestTimeout, Owner: owner,
		// The watch tells of what matters. The looks at a living holder would
		// only make the calls of an acquisition hard to count.
		RefreshPeriod: time.Hour,
	}
}

// child is a process that was started.
type child struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr bytes.Buffer // read it when it has ended
	out    chan string  // its lines, closed at its end
	lines  []string     // those that were taken from out
	ended  chan struct{}
	err    error // how, when it has ended
}

// start starts a child. The child ends with the test at the latest.
func start(t *testing.T, o order) (*child, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(os.Args[0]), ended: make(chan struct{}), out: make(chan string, 1<<12)}
	c.cmd.Env = append(os.Environ(), childOrder+"="+string(text), "GORACE=atexit_sleep_ms=0")
	c.cmd.Stderr = &c.stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(c.ended)
		scan := bufio.NewScanner(stdout)
		for scan.Scan() {
			c.out <- scan.Text()
		}
		c.err = c.cmd.Wait()
		close(c.out)
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.ended
	})
	return c, nil
}

func mustStart(t *testing.T, o order) *child {
	t.Helper()
	c, err := start(t, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// patience is how long a test waits for what must come.
const patience = time.Minute

// line returns the next line of the child that begins with word, without that.
func (c *child) line(word string) (string, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case line, ok := <-c.out:
			if !ok {
				return "", fmt.Errorf("%w: the child has not said %q, it ended: %w\n%s", errEnded, word, c.err, &c.stderr)
			}
			c.lines = append(c.lines, line)
			if first, rest, _ := strings.Cut(line, " "); first == word {
				return rest, nil
			} else if first == "error" {
				return "", errors.New(line)
			}
		case <-late.C:
			return "", fmt.Errorf("the child does not say %q", word)
		}
	}
}

var errEnded = errors.New("ended")

// rest returns all lines of the child, which ends by itself.
func (c *child) rest() ([]string, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case line, ok := <-c.out:
			if !ok {
				return c.lines, c.outcome()
			}
			c.lines = append(c.lines, line)
		case <-late.C:
			return nil, fmt.Errorf("the child does not end after %q", c.lines)
		}
	}
}

// outcome returns an error unless the child ended as it was to: in peace, or by
// its own hand.
func (c *child) outcome() error {
	if c.stderr.Len() > 0 {
		return fmt.Errorf("the child says %q\n%s", c.lines, &c.stderr)
	}
	if c.err == nil {
		return nil
	}
	status, _ := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if n := len(c.lines); n == 0 || c.lines[n-1] != "dies" || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		return fmt.Errorf("the child says %q, and ends: %w", c.lines, c.err)
	}
	return nil
}
