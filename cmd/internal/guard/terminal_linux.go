// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal of the caller's session.
type terminal struct {
	fd    int
	group int // the caller's process group
	// lent is set while the terminal belongs to the command's group.
	lent  bool
	modes *unix.Termios
}

// openTerminal returns nil if the session has no controlling terminal.
func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	t := &terminal{fd: fd, group: unix.Getpgrp()}
	t.modes, _ = unix.IoctlGetTermios(fd, unix.TCGETS)
	return t
}

// mine reports whether the caller's group is the foreground group.
func (t *terminal) mine() bool {
	pgrp, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && pgrp == t.group
}

// lendable reports whether the command may have the terminal from its start: the caller is in
// the foreground, and alone there but for the programs that wait for it. In a pipeline
// (tenure run ... | less) another member of the group may want the terminal, too, and would
// be stopped for asking; there the command gets it when it asks itself.
func (t *terminal) lendable(proc procFS) bool {
	return t.mine() && !t.shared(proc)
}

func (t *terminal) shared(proc procFS) bool {
	table, err := proc.processes()
	if err != nil {
		return false
	}
	parents := make(map[int]int, len(table.all))
	for _, p := range table.all {
		parents[p.pid] = p.ppid
	}
	kin := map[int]bool{}
	for pid := unix.Getpid(); pid != 0 && !kin[pid]; pid = parents[pid] {
		kin[pid] = true
	}
	for _, p := range table.descendants(unix.Getpid()) {
		kin[p.pid] = true
	}
	for _, p := range table.all {
		if p.pgrp == t.group && p.state != 'Z' && !kin[p.pid] {
			return true
		}
	}
	return false
}

// reclaim makes the caller's group the foreground group if it had lent the terminal.
func (t *terminal) reclaim() {
	if t.lent {
		t.lent = false
		_ = setForeground(t.fd, t.group)
	}
}

// restore undoes what a command that was killed has done to the terminal's modes.
func (t *terminal) restore() {
	if t.modes != nil && t.mine() {
		_ = withoutSIGTTOU(func() error { return unix.IoctlSetTermios(t.fd, unix.TCSETSW, t.modes) })
	}
}

func (t *terminal) close() { _ = unix.Close(t.fd) }

// setForeground makes a group the terminal's foreground group.
func setForeground(tty, group int) error {
	return withoutSIGTTOU(func() error { return unix.IoctlSetPointerInt(tty, unix.TIOCSPGRP, group) })
}

// withoutSIGTTOU runs f on a thread that blocks SIGTTOU, which the kernel otherwise sends to
// a background process that changes its terminal. Blocked, not ignored: what is ignored
// would stay so in every program that is started.
func withoutSIGTTOU(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var set, old unix.Sigset_t
	set.Val[0] = 1 << (unix.SIGTTOU - 1) // below 32: in the first word on every machine
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, &old); err != nil {
		return err
	}
	defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil) }()
	return f()
}
