// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"math/rand/v2"
	"net"
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
)

// enginePatience bounds how long an engine may take to answer after its start, and to
// end.
const enginePatience = time.Minute

// Required names the variable of the environment under which a test fails for want of an
// engine or a tool, where it is skipped without: `make verify` sets it to 1. What takes long
// to build is required only if the variable has its name, among others separated by spaces.
const Required = "TENURE_REQUIRE_ENGINES"

// slow are the engines that `make verify` does not have, and the parts of `make nightly` that do.
var slow = map[string]string{"kubernetes": "kubernetes", "versitygw": "buckets", "azurite": "buckets", "fakegcs": "buckets"}

// Missing skips a test for want of an engine or a tool, or fails it where that is required. All
// tests do so by this function. How says what to do; a reason may stand behind it.
func Missing(t testing.TB, name, how string) {
	t.Helper()
	target, required := "make verify", strings.Fields(os.Getenv(Required))
	if slow[name] != "" {
		target = "make nightly-" + slow[name]
	}
	if len(required) > 0 && (slow[name] == "" || slices.Contains(required, name)) {
		t.Fatalf("%s is not there, and %s=%s requires it: %s", name, Required, os.Getenv(Required), how)
	}
	t.Skipf("%s is not there: %s has it, or %s", name, target, how)
}

// Shared returns the address of an engine that the environment names, and skips the test
// if it names none: one that scripts/engines has started.
func Shared(t testing.TB, variable, name string) string {
	t.Helper()
	address := os.Getenv(variable)
	if address == "" {
		Missing(t, name, `eval "$(scripts/engines up `+name+`)" starts it`)
	}
	return address
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
	case len(found) == 0:
		Missing(t, name, "scripts/engines install "+name+" installs it")
	}
	return found[len(found)-1]
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
