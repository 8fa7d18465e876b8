// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// The program scripts/engines installs and starts the engines that the tests run on, which
// package launcher knows.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
)

const usage = `scripts/engines installs and starts the engines that the tests run on.

  scripts/engines run NAME... -- COMMAND  start, run COMMAND with the environment, stop; its exit status
  scripts/engines run NAME...             the same with a shell
  scripts/engines install NAME...         install alone

Names: %s.

Programs are installed below .bin/engines; PostgreSQL's are the system's, which scripts/setup
installs. Servers listen on free ports of the loopback interface. Data are in TMPDIR, and gone
with the engine.
`

const (
	stopAfter = 5 * time.Second // for the command to end after a signal

	notThere = 127
	misused  = 64
	bySignal = 128 // and its number
)

// table has the engines that there are.
type table []launcher.Kind

func main() {
	// An engine ends when the thread does that started it: this one is there to the end.
	runtime.LockOSThread()
	os.Exit(table(launcher.Kinds()).main(os.Args[1:]))
}

func (t table) main(args []string) int {
	var all []string
	for _, k := range t {
		all = append(all, k.Name)
	}
	known := strings.Join(all, ", ")
	if len(args) == 0 || slices.Contains([]string{"help", "-h", "--help"}, args[0]) {
		fmt.Fprintf(os.Stdout, usage, known)
		return 0
	}
	verb, names, command := args[0], args[1:], []string{cmp.Or(os.Getenv("SHELL"), "/bin/sh")}
	if i := slices.Index(names, "--"); verb == "run" && i >= 0 {
		names, command = names[:i], names[i+1:]
	}
	if verb != "run" && verb != "install" || len(names) == 0 || len(command) == 0 {
		fmt.Fprintf(os.Stderr, usage, known)
		return misused
	}
	var kinds []launcher.Kind
	for _, name := range names {
		i := slices.Index(all, name)
		if i < 0 {
			say("there is no engine %s; known are: %s", name, known)
			return misused
		}
		kinds = append(kinds, t[i])
	}
	ctx := untilSignal()
	for _, k := range kinds {
		if err := k.Ensure(ctx); err != nil {
			return failed(ctx, err)
		}
	}
	if verb == "install" {
		return 0
	}
	return run(ctx, kinds, command)
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "scripts/engines: "+format+"\n", args...)
}

// signaled is why a context ends.
type signaled struct{ syscall.Signal }

func (s signaled) Error() string { return s.String() }

// untilSignal returns a context that a signal ends, but one that is ignored, as under nohup.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	go func() { cancel(signaled{(<-signals).(syscall.Signal)}) }() //nolint:forcetypeassert // all are
	return ctx
}

// failed returns the exit status after an error, which a signal has led to, or which it says.
func failed(ctx context.Context, err error) int {
	if s, ok := context.Cause(ctx).(signaled); ok { //nolint:errorlint // it is the cause itself
		return bySignal + int(s.Signal)
	}
	say("%v", err)
	return 1
}

// run starts engines, runs the command meanwhile, and stops them.
func run(ctx context.Context, kinds []launcher.Kind, command []string) int {
	folder, err := os.MkdirTemp("", "tenure-engines-")
	if err == nil {
		err = os.Chmod(folder, 0o711) // the user of PostgreSQL must enter its own in it
	}
	if err != nil {
		return failed(ctx, err)
	}
	var engines []*engine
	kept := false // the logs
	defer func() {
		for _, e := range engines {
			e.stop()
		}
		if !kept {
			_ = os.RemoveAll(folder) // it is the system's to clean, then
		}
	}()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = os.Environ()
	for _, k := range kinds {
		e := &engine{Kind: k, dir: filepath.Join(folder, k.Name), log: filepath.Join(folder, k.Name+".log")}
		engines = append(engines, e)
		address, err := e.start(ctx)
		if err != nil {
			kept = ctx.Err() == nil
			return failed(ctx, fmt.Errorf("%s: %w", k.Name, err))
		}
		cmd.Env = append(cmd.Env, k.Variable+"="+address)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error {
		//nolint:errorlint,forcetypeassert // nothing else ends it
		return cmd.Process.Signal(context.Cause(ctx).(signaled).Signal)
	}
	cmd.WaitDelay = stopAfter
	err = cmd.Run()
	for _, e := range engines {
		if e.ended() {
			say("%s ended by itself; its log is %s", e.Name, e.log)
			kept = true
		}
	}
	var exit *exec.ExitError
	switch {
	case cmd.ProcessState == nil && ctx.Err() == nil:
		say("%v", err)
		return notThere
	case ctx.Err() != nil || err != nil && !errors.As(err, &exit):
		return failed(ctx, err)
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return bySignal + int(status.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

// engine is one that runs.
type engine struct {
	launcher.Kind
	dir, log  string
	processes []*launcher.Process
}

// start starts the engine, and waits until it answers.
func (e *engine) start(ctx context.Context) (address string, err error) {
	if err := os.Mkdir(e.dir, 0o700); err != nil {
		return "", err
	}
	servers, address, err := e.Servers(e.dir)
	if err != nil {
		return "", err
	}
	for _, s := range servers {
		p, err := s.Start(e.log)
		if err != nil {
			return "", err
		}
		e.processes = append(e.processes, p)
		if err := p.Await(ctx); err != nil {
			return "", err
		}
	}
	return address, nil
}

func (e *engine) ended() bool { return slices.ContainsFunc(e.processes, (*launcher.Process).HasEnded) }

// stop ends the servers, the last one first, and deletes their data.
func (e *engine) stop() {
	for _, p := range slices.Backward(e.processes) {
		p.End()
	}
	if err := os.RemoveAll(e.dir); err != nil {
		say("%v", err)
	}
}
