// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// The tests of this file start the test binary again, as real processes on one
// file: children[NAME] runs in place of the tests.
const (
	childName = "SQLITESTORE_TEST_CHILD"
	childFile = "SQLITESTORE_TEST_FILE"
)

var children = map[string]func(file string) error{
	"open":  childOpen,
	"block": childBlock,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(childName); name != "" {
		if err := children[name](os.Getenv(childFile)); err != nil {
			fmt.Fprintln(os.Stdout, "error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if testing.Short() {
		hearAfter = time.Millisecond // some hundred stores are opened
	}
	os.Exit(m.Run())
}

type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	mu    sync.Mutex
	lines []string
	out   chan string // the lines as well, if a test reads them
	ended chan struct{}
}

// start starts a child. The child ends with the test at the latest.
func start(t *testing.T, name, file string, prepare func(*exec.Cmd)) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0]), ended: make(chan struct{}), out: make(chan string, 1<<16)}
	c.cmd.Env = append(os.Environ(), childName+"="+name, childFile+"="+file)
	c.cmd.Stderr = os.Stderr
	if prepare != nil {
		prepare(c.cmd)
	}
	stdin, stdout := enginetest.Start(t, c.cmd)
	c.stdin = stdin
	go func() {
		defer close(c.ended)
		scan := bufio.NewScanner(stdout)
		for scan.Scan() {
			c.mu.Lock()
			c.lines = append(c.lines, scan.Text())
			c.mu.Unlock()
			c.out <- scan.Text()
		}
		close(c.out)
		_ = c.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.ended
	})
	return c
}

// wait returns what the child printed.
func (c *child) wait(t *testing.T) []string {
	t.Helper()
	select {
	case <-c.ended:
	case <-time.After(time.Minute):
		t.Fatal("child does not end")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lines
}

// TestOpenAtOnce has twenty processes open a missing file at the same moment.
func TestOpenAtOnce(t *testing.T) {
	enginetest.MakeVerify(t)
	for range 3 {
		file := filepath.Join(t.TempDir(), "locks.db")
		var all []*child
		for range 20 {
			all = append(all, start(t, "open", file, nil))
		}
		for _, c := range all {
			if line := <-c.out; line != "ready" {
				t.Fatal(line)
			}
		}
		for _, c := range all {
			_ = c.stdin.Close()
		}
		for _, c := range all {
			if lines := c.wait(t); len(lines) != 2 || lines[1] != "ok" {
				t.Errorf("child: %q", lines)
			}
		}
		if got := ask(t, file, "SELECT count(*) FROM tenure_records"); got != int64(20) {
			t.Errorf("%v records of 20", got)
		}
	}
}

func childOpen(file string) error {
	fmt.Fprintln(os.Stdout, "ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // until all are there
	s, err := Open(file, nil)
	if err != nil {
		return err
	}
	if err := persist(func() error {
		_, _, err := s.Claim(context.Background(), held(fmt.Sprint("k", os.Getpid()), "a"))
		return err
	}); err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "ok")
	return s.Close()
}

// childBlock keeps all others from writing until its input ends.
func childBlock(file string) error {
	c, err := dial(file, "rwc")
	if err == nil {
		err = c.run("BEGIN IMMEDIATE")
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "blocks")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return c.close()
}

// persist repeats a write as the layer above a store does.
func persist(op func() error) error {
	begin, pause := time.Now(), time.Millisecond
	for {
		err := op()
		if err == nil || !errors.Is(err, driver.ErrNotApplied) || errors.Is(err, driver.ErrPermanent) || time.Since(begin) > 30*time.Second {
			return err
		}
		time.Sleep(rand.N(pause))
		pause = min(2*pause, 20*time.Millisecond)
	}
}
