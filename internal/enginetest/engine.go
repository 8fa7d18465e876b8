// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/internal/enginetest/relay"
)

// Required names the environment variable that makes a test fail, instead of being skipped,
// if an engine or a tool is missing: `make verify` sets it to 1. What takes long to build is
// required only if the variable has its name, among others separated by spaces.
const Required = "TENURE_REQUIRE_ENGINES"

// slow are the engines that `make verify` does not have, and the parts of `make nightly` that do.
var slow = map[string]string{
	"kubernetes": "kubernetes", "versitygw": "buckets", "azurite": "buckets", "fakegcs": "buckets",
}

// Missing skips a test because an engine or a tool is missing, or fails it where that is
// required. All tests use this function. How says what to do; a reason may follow it.
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

// MakeVerify leaves a test to make verify, which requires engines, or runs its package at
// full length.
func MakeVerify(t testing.TB) {
	t.Helper()
	if testing.Short() && os.Getenv(Required) == "" {
		t.Skip("make verify has it")
	}
}

// Shared returns the address of an engine that the environment names, and skips the test
// if it names none. scripts/engines starts such an engine.
func Shared(t testing.TB, variable, name string) string {
	t.Helper()
	address := os.Getenv(variable)
	if address == "" {
		Missing(t, name, "scripts/engines run "+name+" starts it")
	}
	return address
}

// need skips the test if the error says that a program is not installed, and ends it after
// any other error.
func need(t testing.TB, err error) {
	t.Helper()
	var missing *launcher.MissingError
	switch {
	case errors.As(err, &missing):
		Missing(t, missing.Name, missing.How)
	case err != nil:
		t.Fatal(err)
	}
}

// Program returns a file of an engine that scripts/engines has installed, and skips the
// test if it is not there.
func Program(t testing.TB, name, file string) string {
	t.Helper()
	path, err := launcher.Program(name, file)
	need(t, err)
	return path
}

// FreePort is [launcher.Port] for a test.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := launcher.Port()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// Engine is a server that a test has for itself. It ends with the test. Its methods are for one goroutine at a
// time.
type Engine struct {
	// URL is where clients find it, or Addr, a host and port, where there are no URLs. PostgreSQL has both.
	URL, Addr string
	// Data is the folder with its data, if the test may touch them.
	Data string

	t       testing.TB
	server  launcher.Server
	log     string
	process *launcher.Process // nil if it does not run
}

// NewEngine returns an engine that does not run yet. Ready says whether it answers.
func NewEngine(t testing.TB, args, env []string, ready func() error) *Engine {
	return newEngine(t, launcher.Server{Args: args, Env: env, Ready: ready})
}

func newEngine(t testing.TB, server launcher.Server) *Engine {
	t.Helper()
	if server.Dir == "" {
		server.Dir = t.TempDir() // by which its processes are found
	}
	e := &Engine{t: t, server: server, log: filepath.Join(t.TempDir(), "log")}
	t.Cleanup(e.Kill)
	return e
}

// Start starts it, and does not wait until it answers: see [Engine.Await].
func (e *Engine) Start() {
	e.t.Helper()
	var err error
	if e.process, err = e.server.Start(e.log); err != nil {
		e.t.Fatal(err)
	}
}

// Running says whether it was started and not ended since, by this process.
func (e *Engine) Running() bool { return e.process != nil }

// Await waits until it answers.
func (e *Engine) Await() {
	e.t.Helper()
	if err := e.process.Await(context.WithoutCancel(e.t.Context())); err != nil {
		e.t.Fatal(err)
	}
}

// End sends the first process a signal that should end it, and returns when all have ended.
// The test fails if that takes too long.
func (e *Engine) End(s syscall.Signal) {
	e.t.Helper()
	if e.process == nil {
		return
	}
	if err := e.process.Signal(s); err != nil {
		e.t.Errorf("signal %v: %v", s, err)
	}
	select {
	case <-e.process.Ended:
	case <-time.After(launcher.Patience):
		e.t.Errorf("%s did not end within %v of %v", e.server.Args[0], launcher.Patience, s)
	}
	e.Kill()
}

// Stop has all processes hang, and returns when they do.
func (e *Engine) Stop() {
	e.t.Helper()
	if runtime.GOOS != "linux" {
		e.t.Skip("processes are made to hang on Linux alone")
	}
	if err := e.process.Hang(); err != nil {
		e.t.Fatal(err)
	}
}

// Continue ends a Stop.
func (e *Engine) Continue() { e.process.Continue() }

// Kill ends all processes by SIGKILL, and returns when they have ended.
func (e *Engine) Kill() {
	if e.process != nil {
		e.process.Kill()
		e.process = nil
	}
}

// DefaultSignals has the processes that a test starts begin with the default actions
// of SIGHUP and SIGINT, also if the test itself ignores them: under nohup, or in the
// background of a shell. TestMain calls it. A child process inherits the signals
// that are ignored, but not those that are caught.
func DefaultSignals() {
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

// Relay is between clients and an engine.
type Relay = relay.Relay

// NewRelay starts a relay to target, a host and port. It ends with the test.
func NewRelay(t testing.TB, target string) *Relay {
	t.Helper()
	r, err := relay.New(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
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
