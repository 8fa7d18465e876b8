// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// The program scripts/engines installs and starts the engines that the tests run on, which
// package launcher knows.
package main

import (
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
  scripts/engines install NAME...         install alone

Names: %s.

Programs are installed below .bin/engines; those of PostgreSQL, Redis and MariaDB are the system's, which
scripts/setup installs. Servers listen on free ports of the loopback interface. Data are in TMPDIR, and gone
with the engine.
`

// misused is the exit status of an error of the user's own.
const misused = 64

func main() {
	// An engine ends when the thread does that started it: this one is there to the end.
	runtime.LockOSThread()
	os.Exit(do(os.Args[1:]))
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "scripts/engines: "+format+"\n", args...)
}

// do returns the exit status.
func do(args []string) int {
	var all []string
	for _, k := range launcher.Kinds() {
		all = append(all, k.Name)
	}
	known := strings.Join(all, ", ")
	if len(args) == 0 || slices.Contains([]string{"help", "-h", "--help"}, args[0]) {
		fmt.Fprintf(os.Stdout, usage, known)
		return 0
	}
	verb, names, command := args[0], args[1:], []string(nil)
	if i := slices.Index(names, "--"); i >= 0 {
		names, command = names[:i], names[i+1:]
	}
	if verb != "run" && verb != "install" || len(names) == 0 || (verb == "run") != (len(command) > 0) {
		fmt.Fprintf(os.Stderr, usage, known)
		return misused
	}
	ctx, stop := untilSignal()
	defer stop()
	var kinds []launcher.Kind
	for _, name := range names {
		k, err := launcher.Find(name)
		if err != nil {
			say("%v; known are: %s", err, known)
			return misused
		}
		kinds = append(kinds, k)
	}
	for _, k := range kinds {
		if err := k.Ensure(ctx); err != nil {
			say("%v", err)
			return 1
		}
	}
	if verb == "install" {
		return 0
	}
	status, err := run(ctx, kinds, command)
	if err != nil {
		say("%v", err)
	}
	return status
}

// untilSignal returns a context that a signal ends, unless the signal is ignored, as under
// nohup.
func untilSignal() (context.Context, context.CancelFunc) {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
	return signal.NotifyContext(context.Background(), slices.DeleteFunc(all, signal.Ignored)...)
}

// run starts engines, runs the command meanwhile, and stops them. It returns the exit status of the command.
func run(ctx context.Context, kinds []launcher.Kind, command []string) (status int, err error) {
	folder, err := os.MkdirTemp("", "tenure-engines-")
	if err == nil {
		err = os.Chmod(folder, 0o711) // the user of PostgreSQL must enter its own in it
	}
	if err != nil {
		return 1, err
	}
	kept := false // the logs
	var stops []func()
	defer func() {
		for _, stop := range slices.Backward(stops) { // the last server first
			stop()
		}
		if !kept {
			_ = os.RemoveAll(folder) // it is the system's to clean, then
		}
	}()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = os.Environ()
	processes := map[*launcher.Process]string{} // and their engines
	for _, k := range kinds {
		dir := filepath.Join(folder, k.Name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return 1, err
		}
		stops = append(stops, func() { _ = os.RemoveAll(dir) })
		all, address, err := k.Start(ctx, dir, dir+".log")
		for _, p := range all {
			processes[p] = k.Name
			stops = append(stops, p.End)
		}
		if err != nil {
			kept = ctx.Err() == nil
			return 1, fmt.Errorf("%s: %w", k.Name, err)
		}
		cmd.Env = append(cmd.Env, k.Variable+"="+address)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second // for it to end after that
	err = cmd.Run()
	for p, name := range processes {
		if p.HasEnded() {
			say("%s ended by itself; its log is %s", name, filepath.Join(folder, name+".log"))
			kept = true
		}
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}
