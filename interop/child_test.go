// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package interop_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/interop/peer/wire"
)

// The tests start the test binary again, as processes of Tenure that can be
// killed: with an order in the environment it runs that in place of the tests.
const childOrder = "INTEROP_TEST_CHILD"

// order is what a child is told.
type order struct {
	URL, Table string
	Dialect    dynamostore.Dialect
	Owner      string
	Lease      time.Duration
	Data       []byte

	// Of a child that works. Without a Log it takes the lock and holds it until
	// it is killed.
	Log                   string
	Duration, Hold, Pause time.Duration
}

func TestMain(m *testing.M) {
	text := os.Getenv(childOrder)
	if text == "" {
		os.Exit(m.Run())
	}
	var o order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		go func() { // the parent is gone
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(3)
		}()
		err = o.run(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// say tells the parent a line. Nothing of it is lost in a kill: no buffer is
// between.
func say(words ...any) { fmt.Fprintln(os.Stdout, words...) }

func (o *order) run(ctx context.Context) error {
	store, err := dynamostore.New(newDB(o.URL, http.DefaultTransport), o.Table, &dynamostore.Options{SharedTable: true, Dialect: o.Dialect})
	if err != nil {
		return err
	}
	c, err := tenure.New(store, timing(o.Owner, o.Lease))
	if err != nil {
		return err
	}
	if o.Log != "" {
		return o.work(ctx, c)
	}
	l, err := c.Acquire(ctx, lockName, &tenure.AcquireOptions{Data: o.Data})
	if err != nil {
		return err
	}
	say("held", l.Token())
	select {}
}

// work takes, holds and releases the lock until its time is up, and keeps the
// log that the other clients keep, with the token at the end of a line that
// begins a hold.
func (o *order) work(ctx context.Context, c *tenure.Client) error {
	log, err := os.OpenFile(o.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(o.Duration); time.Now().Before(deadline); pause(ctx, o.Pause) {
		l, err := c.Acquire(ctx, lockName, nil)
		if err != nil {
			// A paused process may find its grant run out. Anything that goes on
			// shows as a member that never held the lock.
			say("error", err)
			continue
		}
		begin := wire.Monotonic()
		if l.Check() == nil {
			if err := o.hold(ctx, log, l, begin); err != nil {
				return err
			}
		}
		if err := l.Release(ctx); err != nil { // it was lost, or its answer
			say("error", err)
		}
	}
	say("done")
	return nil
}

func (o *order) hold(ctx context.Context, log io.Writer, l *tenure.Lease, begin int64) error {
	if _, err := fmt.Fprintf(log, "%s %s %d %d\n", wire.LogBegin, o.Owner, begin, l.Token()); err != nil {
		return err
	}
	last := begin
	for last < begin+o.Hold.Nanoseconds() {
		// The instant first, then the check: what is logged was held.
		now := wire.Monotonic()
		if l.Check() != nil {
			break
		}
		last = now
		pause(ctx, time.Millisecond)
	}
	_, err := fmt.Fprintf(log, "%s %s %d\n", wire.LogEnd, o.Owner, last)
	return err
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// child is a process of Tenure.
type child struct {
	cmd    *exec.Cmd
	out    chan string   // its lines, closed at its end
	ended  chan struct{} // closed when it has been waited for
	stderr strings.Builder
}

// start starts a child, which ends with the test at the latest.
func (s *scene) start(t *testing.T, o order) *child {
	t.Helper()
	o.URL, o.Table, o.Dialect = s.url, s.table, s.dialect
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.Command(os.Args[0]), out: make(chan string, 1<<12), ended: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), childOrder+"="+string(text), "GORACE=atexit_sleep_ms=0")
	c.cmd.Stderr = &c.stderr
	if _, err := c.cmd.StdinPipe(); err != nil { // open for as long as we live
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			c.out <- lines.Text()
		}
		close(c.out)
		_ = c.cmd.Wait() // the state is in ProcessState
		close(c.ended)
	}()
	t.Cleanup(func() {
		c.kill()
		if t.Failed() && c.stderr.Len() > 0 {
			t.Logf("%s wrote:\n%s", o.Owner, &c.stderr)
		}
	})
	return c
}

// kill ends the process with SIGKILL and returns after it has ended.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // an error means that it has ended
	<-c.ended
}

// next waits for a line that begins with a word, and returns the rest of it.
func (c *child) next(t *testing.T, word string) string {
	t.Helper()
	late := time.After(2 * patience)
	for {
		select {
		case line, ok := <-c.out:
			if !ok {
				<-c.ended
				t.Fatalf("%q was expected of a process that has ended: %v\n%s", word, c.cmd.ProcessState, &c.stderr)
			}
			if rest, ok := strings.CutPrefix(line, word); ok {
				return strings.TrimSpace(rest)
			}
			t.Logf("a process of Tenure: %s", line)
		case <-late:
			t.Fatalf("no %q within %v", word, 2*patience)
		}
	}
}
