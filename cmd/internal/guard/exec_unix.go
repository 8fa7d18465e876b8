// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package guard

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path"
	"syscall"

	"golang.org/x/sys/unix"
)

// shellPath is what runs a script that does not say what runs it.
const shellPath = "/bin/sh"

// forkExec is syscall.ForkExec, and has the shell run a script without a #! line, as
// execvp(3) does, and with it env, nohup and flock.
func forkExec(path string, args []string, attr *syscall.ProcAttr) (pid int, err error) {
	if pid, err = syscall.ForkExec(path, args, attr); errors.Is(err, unix.ENOEXEC) && isScript(attr.Dir, path) {
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
func isScript(dir, file string) bool {
	if dir != "" && !path.IsAbs(file) {
		file = path.Join(dir, file)
	}
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
