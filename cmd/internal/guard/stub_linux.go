// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// stubArg marks the command line of a process that becomes the command: name, stubArg, the pid
// of the guardian, that of the caller, the program's path, the command's arguments.
const stubArg = "--tenure-command"

// ownPID are the variables by which a service manager says which process may use what it has
// handed over. A program goes by them only if they have its own pid: sd_listen_fds(3),
// sd_watchdog_enabled(3).
var ownPID = []string{"LISTEN_PID", "WATCHDOG_PID"}

// meantFor says whether one of these variables has the pid.
func meantFor(env []string, pid int) bool {
	return slices.ContainsFunc(ownPID, func(name string) bool {
		return slices.Contains(env, name+"="+strconv.Itoa(pid))
	})
}

// stub returns the command line that puts the command's pid into these variables in place of
// the caller's, which only the process itself can know before the command begins.
func (g *guardian) stub() []string {
	return append([]string{"tenure-command", stubArg, strconv.Itoa(unix.Getpid()), strconv.Itoa(g.spec.parent), g.path},
		g.args...)
}

// become is the life of a stub. It does not return. The thread must be locked.
func become(argv []string) {
	if len(argv) < 6 {
		fmt.Fprintf(os.Stderr, "%s: started by hand? too few arguments\n", stubArg)
		os.Exit(64)
	}
	guardian, path, args := argv[2], argv[4], argv[5:]
	// The kernel has it of the thread that was forked, which need not be this one.
	err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
	if err == nil && strconv.Itoa(unix.Getppid()) != guardian {
		err = errGuardianEnded
	}
	env := os.Environ()
	for i, entry := range env {
		if name, pid, _ := strings.Cut(entry, "="); pid == argv[3] && slices.Contains(ownPID, name) {
			env[i] = name + "=" + strconv.Itoa(unix.Getpid())
		}
	}
	if err == nil {
		err = syscall.Exec(path, args, env)
	}
	if errors.Is(err, unix.ENOEXEC) && isScript("", path) {
		err = syscall.Exec(shellPath, scriptArgs(path, args), env)
	}
	err = startError(path, err)
	fmt.Fprintf(os.Stderr, "tenure: %v\n", err)
	os.Exit(StartStatus(err))
}
