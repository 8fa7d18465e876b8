// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// Signals that have a process hang, and go on.
const (
	hang = syscall.SIGSTOP
	goOn = syscall.SIGCONT
)

// reserve keeps a port for this process, until it ends, from others that call it: by a name of
// the kernel's, which has the scope of ports.
func reserve(port int) bool {
	name, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return true // as on other systems
	}
	if syscall.Bind(name, &syscall.SockaddrUnix{Name: fmt.Sprintf("@tenure-port-%d", port)}) == nil {
		return true
	}
	_ = syscall.Close(name)
	return false
}

// lock waits for the lock on a file, which lasts until the file is closed.
func lock(file *os.File) error { return syscall.Flock(int(file.Fd()), syscall.LOCK_EX) }

// bind has a command end when this process does, however it ends, and not by Ctrl-C at the
// terminal. If this process is root and a user is named, that one runs it, in no other
// group than its own.
func bind(cmd *exec.Cmd, name string) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if name == "" || os.Geteuid() != 0 {
		return nil
	}
	uid, gid, err := idsOf(name)
	//nolint:gosec // they are no larger
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return err
}

// give gives a folder to a user, if this process is root.
func give(folder, name string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	uid, gid, err := idsOf(name)
	if err == nil {
		err = os.Chown(folder, uid, gid)
	}
	return err
}

// idsOf returns the numbers of a user and of its group.
func idsOf(name string) (uid, gid int, err error) {
	is, err := user.Lookup(name)
	if err == nil {
		uid, err = strconv.Atoi(is.Uid)
	}
	if err == nil {
		gid, err = strconv.Atoi(is.Gid)
	}
	return uid, gid, err
}
