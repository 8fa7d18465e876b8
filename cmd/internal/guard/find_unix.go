// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package guard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// find looks a program up as execvp(3) does, which is what people know from env, nice
// and flock: an empty or relative entry of PATH counts, and a file that exists but may
// not be executed is told from a missing file. (os/exec does neither.)
func (c *Command) find() (string, error) {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return "", fmt.Errorf("%w: no command given", ErrNotFound)
	}
	name := c.Args[0]
	if strings.Contains(name, "/") {
		return name, runnable(name)
	}
	path := "/usr/local/bin:/usr/bin:/bin"
	for _, kv := range c.environ() {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	var denied error
	for dir := range strings.SplitSeq(path, ":") {
		if dir == "" {
			dir = "."
		}
		file := dir + "/" + name
		err := runnable(file)
		if err == nil {
			return file, nil
		}
		if denied == nil && errors.Is(err, ErrCannotRun) {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", fmt.Errorf("%w: %q is not in PATH", ErrNotFound, name)
}

// runnable reports why a file cannot be executed.
func runnable(file string) error {
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			return fmt.Errorf("%w: %s: %w", ErrNotFound, file, err)
		}
		return fmt.Errorf("%w: %s: %w", ErrCannotRun, file, err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return fmt.Errorf("%w: %s: %w", ErrCannotRun, file, unix.EISDIR)
	}
	if err := unix.Access(file, unix.X_OK); err != nil {
		return fmt.Errorf("%w: %s: %w (chmod +x, or name its interpreter)", ErrCannotRun, file, err)
	}
	return nil
}

// Transient reports whether an error of [Start] is likely to pass by itself: there were too many
// processes or open files, or too little memory, for the guardian or for the command, or the program's
// file was open for writing.
func Transient(err error) bool {
	passing := []unix.Errno{unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.ETXTBSY}
	return errors.Is(err, errGuardianEnded) ||
		slices.ContainsFunc(passing, func(errno unix.Errno) bool { return errors.Is(err, errno) })
}

// startError explains why the kernel did not run a program that [Command.find] accepted.
func startError(path string, err error) error {
	hint := ""
	kind := ErrCannotRun
	switch {
	case errors.Is(err, unix.ENOEXEC):
		hint = " (not a program for this machine)"
	case errors.Is(err, unix.ENOENT):
		// The file was there a moment ago: what is missing is what it names.
		hint = " (its interpreter or loader is missing)"
		if unix.Access(path, unix.F_OK) != nil {
			kind, hint = ErrNotFound, ""
		}
	case errors.Is(err, unix.E2BIG):
		hint = " (arguments and environment are too long together)"
	}
	return fmt.Errorf("%w: %s: %w%s", kind, path, err, hint)
}

// shellPath is what runs a script that does not say what runs it.
const shellPath = "/bin/sh"

// forkExec is syscall.ForkExec, and has the shell run a script without a #! line, as
// execvp(3) does, and with it env, nohup and flock.
func forkExec(path string, args []string, attr *syscall.ProcAttr) (pid int, err error) {
	if pid, err = syscall.ForkExec(path, args, attr); errors.Is(err, unix.ENOEXEC) && isScript(path) {
		return syscall.ForkExec(shellPath, scriptArgs(path, args), attr)
	}
	return pid, err
}

// scriptArgs returns the shell's arguments.
func scriptArgs(path string, args []string) []string {
	return append([]string{shellPath, path}, args[1:]...)
}

// isScript says that a file can be a script, by what bash goes by: there is no zero byte in what it
// begins with. A shell that is given a program for another machine says nothing that helps.
func isScript(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	begin := make([]byte, 80)
	n, err := io.ReadFull(f, begin)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return false
	}
	return bytes.IndexByte(begin[:n], 0) < 0
}
