// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// A harness is a folder with a store and a few processes of tenure, which a test
// treats badly. Every process carries the mark of its harness in its environment,
// so that at the end those that were left behind are found, however they have
// detached themselves.
type harness struct {
	t    *testing.T
	dir  string
	mark string
	url  string // of the store
}

const markName = "TENURE_TEST_HARNESS"

// eachStore runs a test on each store that processes can share, beside other tests. Those that
// are about terminals run on SQLite alone: no store knows of them.
func eachStore(t *testing.T, test func(t *testing.T, s *harness)) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *harness{"sqlite": newHarness, "dynamodb": newTableHarness} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// newTableHarness is a harness whose store is a table of its own on DynamoDB.
func newTableHarness(t *testing.T) *harness {
	e := enginetest.FullDynamoDB(t)
	s := newHarness(t)
	table := "tenure-test-" + s.mark
	s.url = "dynamodb://" + table + "?region=local&endpoint=" + e.URL
	if p := s.start("table", "create"); p.status() != 0 {
		t.Fatal("there is no table")
	}
	client := connect(t, e)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if _, err := client.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &table}); err != nil {
			t.Error(err)
		}
	})
	return s
}

func newHarness(t *testing.T) *harness {
	s := &harness{t: t, dir: t.TempDir(), mark: rand.Text()}
	s.url = "sqlite:" + s.path("locks.db")
	t.Cleanup(func() {
		entry := markName + "=" + s.mark
		// What was killed a moment ago may not be gone yet.
		for end := time.Now().Add(20 * time.Second); len(s.left(entry)) > 0 && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond)
		}
		for _, pid := range s.left(entry) {
			cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			t.Errorf("left behind: %d %s", pid, strings.ReplaceAll(string(cmdline), "\x00", " "))
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone by now
		}
	})
	return s
}

// holders returns the living processes of this harness that work under the token.
func (s *harness) holders(token int) []int {
	return s.left(markName+"="+s.mark, fmt.Sprintf("TENURE_TOKEN=%d", token)) // other scenes have that token, too
}

// left returns the living processes that have the entries in their environment.
func (s *harness) left(entries ...string) []int {
	var pids []int
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // gone, or somebody else's
		}
		has := "\x00" + string(b)
		if !slices.ContainsFunc(entries, func(entry string) bool { return !strings.Contains(has, "\x00"+entry+"\x00") }) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			pids = append(pids, pid)
		}
	}
	return pids
}

func (s *harness) path(name string) string { return filepath.Join(s.dir, name) }

func (s *harness) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// read returns the text of a file, "" if it is not there yet.
func (s *harness) read(name string) string {
	s.t.Helper()
	b, err := os.ReadFile(s.path(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	return string(b)
}

func (s *harness) env() []string {
	return append(os.Environ(), markName+"="+s.mark, "TENURE_STORE="+s.url, "DIR="+s.dir)
}

// store opens the store, for who goes behind the back of a client.
func (s *harness) store() driver.Store {
	s.t.Helper()
	at, err := storeurl.Parse(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	store, err := at.Open()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = store.Close() })
	return store
}

// process is a tenure under test.
type process struct {
	s      *harness
	cmd    *exec.Cmd
	stderr buffer
	done   chan struct{}
	state  *os.ProcessState // after done
}

// start runs tenure.
func (s *harness) start(args ...string) *process {
	s.t.Helper()
	return s.startWith(nil, args...)
}

// startWith runs tenure with a standard error of the test's own.
func (s *harness) startWith(stderr *os.File, args ...string) *process {
	s.t.Helper()
	cmd := exec.Command("tenure", args...)
	if stderr != nil {
		cmd.Stderr = stderr
	}
	return s.run(cmd)
}

// run runs a program in the harness.
func (s *harness) run(cmd *exec.Cmd) *process {
	s.t.Helper()
	p := &process{s: s, cmd: cmd, done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = s.dir, s.env()
	if p.cmd.Stderr == nil {
		p.cmd.Stderr = &p.stderr
	}
	// Wait does not wait for a child that holds the pipe of standard error.
	p.cmd.WaitDelay = time.Second
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the state tells
		p.state = p.cmd.ProcessState
	}()
	s.t.Cleanup(func() {
		select {
		case <-p.done:
		default:
			p.signal(syscall.SIGKILL)
			p.signal(syscall.SIGCONT)
			<-p.done
		}
		if s.t.Failed() && p.stderr.String() != "" {
			s.t.Logf("%q said:\n%s", cmd.Args, p.stderr.String())
		}
	})
	return p
}

func (p *process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) } // gone is gone

// status waits for the end and returns the exit status as a shell shows it.
func (p *process) status() int {
	p.s.t.Helper()
	p.s.await("the end of a term", func() bool {
		select {
		case <-p.done:
			return true
		default:
			return false
		}
	})
	if ws, ok := p.state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return p.state.ExitCode()
}

// guardian returns the process id of tenure's guardian.
func (p *process) guardian() int {
	p.s.t.Helper()
	pid := 0
	p.s.await("a guardian", func() bool {
		if all := childrenOf(p.cmd.Process.Pid); len(all) > 0 {
			pid = all[0]
		}
		return pid > 0
	})
	return pid
}

// childrenOf returns the children of a process.
func childrenOf(parent int) (pids []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	for _, task := range tasks {
		b, _ := os.ReadFile(task)
		for _, field := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// awaited bounds what a test waits for. It is far more than anything takes; no
// test compares how long something took.
const awaited = 90 * time.Second

func (s *harness) await(what string, reached func() bool) {
	s.t.Helper()
	for end := time.Now().Add(awaited); ; {
		began := time.Now()
		if reached() {
			return
		}
		if began.After(end) {
			s.t.Fatalf("%s did not come within %v", what, awaited)
		}
		// Looking through all processes of the machine takes long where there are many of them.
		time.Sleep(max(10*time.Millisecond, 6*time.Since(began)))
	}
}

// buffer collects what a process says.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
