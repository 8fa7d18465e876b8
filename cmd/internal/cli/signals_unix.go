// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cli

import (
	"os"
	"os/signal"
	"syscall"
)

// harmless says that a signal ends no program that does not ask for it.
func harmless(sig syscall.Signal) bool { return sig == syscall.SIGWINCH || sig == syscall.SIGCONT }

// ownGroup has a command begin a process group of its own, and killGroup kills that.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func killGroup(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }

// suspendable has Ctrl-Z stop this process between before and after, until
// stop is called.
func suspendable(before, after func()) (stop func()) {
	if signal.Ignored(syscall.SIGTSTP) {
		return func() {}
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTSTP)
	go func() {
		for range c {
			before()
			_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) // one may always stop oneself
			after()
		}
	}()
	return func() {
		signal.Stop(c)
		close(c)
	}
}
