// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// enginePatience bounds how long an engine may take to answer after its start, and to
// end.
const enginePatience = time.Minute

// Shared returns the address of an engine that the environment names, and skips the test
// if it names none: one that scripts/engines has started.
func Shared(t testing.TB, variable, name string) string {
	t.Helper()
	address := os.Getenv(variable)
	switch {
	case address != "":
	case os.Getenv(Required) != "":
		t.Fatalf("%s is not running: start it with scripts/engines up %[1]s", name)
	default:
		t.Skipf("%s is not running: %s starts it, and so does eval \"$(scripts/engines up %[1]s)\"", name, target(name))
	}
	return address
}

// target names the command that tests with an engine: make verify does with all but that
// which takes long to build.
func target(name string) string {
	switch name {
	case "kubernetes":
		return "make kubernetes"
	case "versitygw", "azurite", "fakegcs":
		return "make buckets"
	}
	return "make verify"
}

// Program returns a file that scripts/engines has installed below .bin/engines, by a
// pattern, and skips the test if it is not there.
func Program(t testing.TB, name, pattern string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	found, err := filepath.Glob(filepath.Join(dir, ".bin", "engines", pattern))
	switch {
	case err != nil:
		t.Fatal(err)
	case len(found) > 0:
		return found[len(found)-1]
	case os.Getenv(Required) != "":
		t.Fatalf("%s is not installed: scripts/engines install %[1]s", name)
	default:
		t.Skipf("%s is not installed: %s installs it, and so does scripts/engines install %[1]s", name, target(name))
	}
	return ""
}

// FreePort returns a port of the loopback interface that nobody listens on.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := Port()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// Port is [FreePort] for a program. A server that is not up yet, or that is started again,
// has to find the port free: it is none of those that the system gives to connections,
// which begin at 32768 on Linux.
func Port() (int, error) {
	const first, last, tries = 12000, 32000, 100
	var err error
	for range tries {
		port := first + rand.IntN(last-first)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}

// Engine is a server that a test has for itself. It ends with the test.
type Engine struct {
	t     testing.TB
	args  []string
	env   []string
	ready func() error

	mu  sync.Mutex
	cmd *exec.Cmd
	log string
}

// NewEngine returns an engine that does not run yet. Ready says whether it answers.
func NewEngine(t testing.TB, args, env []string, ready func() error) *Engine {
	e := &Engine{t: t, args: args, env: env, ready: ready, log: filepath.Join(t.TempDir(), "log")}
	t.Cleanup(e.Kill)
	return e
}

// Start starts it, and does not wait until it answers: see [Engine.Await].
func (e *Engine) Start() {
	e.t.Helper()
	out, err := os.OpenFile(e.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		e.t.Fatal(err)
	}
	defer out.Close() //nolint:errcheck // the process has it
	cmd := exec.Command(e.args[0], e.args[1:]...)
	cmd.Env = append(os.Environ(), e.env...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	e.mu.Lock()
	e.cmd = cmd
	e.mu.Unlock()
}

// Await waits until it answers.
func (e *Engine) Await() {
	e.t.Helper()
	var err error
	for end := time.Now().Add(enginePatience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) { //nolint:forbidigo // a process of its own
		if err = e.ready(); err == nil {
			return
		}
	}
	log, _ := os.ReadFile(e.log)
	e.t.Fatalf("%s does not answer: %v\n%s", e.args[0], err, log[max(0, len(log)-2000):])
}

// Signal sends the process a signal: SIGSTOP has it hang.
func (e *Engine) Signal(s syscall.Signal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cmd != nil {
		if err := e.cmd.Process.Signal(s); err != nil {
			e.t.Errorf("signal %v: %v", s, err)
		}
	}
}

// End sends the process a signal that should end it, and returns when it has ended. The
// test fails if that takes too long.
func (e *Engine) End(s syscall.Signal) {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cmd == nil {
		return
	}
	if err := e.cmd.Process.Signal(s); err != nil {
		e.t.Errorf("signal %v: %v", s, err)
	}
	slow := time.AfterFunc(enginePatience, func() { _ = e.cmd.Process.Kill() })
	_ = e.cmd.Wait() // its status says nothing that matters
	if !slow.Stop() {
		e.t.Errorf("%s did not end within %v of %v", e.args[0], enginePatience, s)
	}
	e.cmd = nil
}

// Running says whether it was started and not ended since, by this process.
func (e *Engine) Running() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cmd != nil
}

// Kill ends it by SIGKILL, and returns when it has ended.
func (e *Engine) Kill() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cmd == nil {
		return
	}
	_ = e.cmd.Process.Kill() // it may have ended
	_ = e.cmd.Wait()
	e.cmd = nil
}
