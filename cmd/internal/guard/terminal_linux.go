// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

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
// the foreground, and alone there except for programs that wait for it. In a pipeline
// (tenure run ... | less) another member of the group may want the terminal, too, and would
// be stopped for asking; there the command gets it when it asks for it.
func (t *terminal) lendable(proc procFS) bool {
	if !t.mine() {
		return false
	}
	table, err := proc.processes()
	if err != nil {
		return true
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
	return !slices.ContainsFunc(table.all, func(p process) bool {
		return p.pgrp == t.group && p.state != 'Z' && !kin[p.pid]
	})
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

// Job control: with a terminal, the command's being stopped stops the caller, so that the
// shell sees its job stopped. The guardian is not stopped and keeps the deadlines.

// stopPatience is how long to wait for the stop that this process has sent itself.
// If it does not come, no shell could continue it: the kernel lets the members of an orphaned
// process group run.
const stopPatience = 100 * time.Millisecond

// noticePatience is how long a notice to people may take before the process is stopped.
const noticePatience = time.Second

// controlJobs passes Ctrl-Z on while the terminal is the caller's (in a pipeline, or after fg of a
// background job). The returned function ends that.
func (g *Guard) controlJobs(workers *sync.WaitGroup) (stop func()) {
	if g.tty == nil || signal.Ignored(syscall.SIGTSTP) {
		return func() {}
	}
	keys := make(chan os.Signal, 1)
	end := make(chan struct{})
	signal.Notify(keys, syscall.SIGTSTP)
	workers.Go(func() {
		for {
			select {
			case sig := <-keys:
				g.Signal(sig)
			case <-end:
				return
			}
		}
	})
	return func() { signal.Stop(keys); close(end) }
}

// suspend handles a stop of the command. It returns when the command was continued, or
// when this process need not wait for it any more.
func (g *Guard) suspend(sig syscall.Signal) {
	if g.tty == nil || g.termDue() {
		return
	}
	g.suspended.Store(true)
	defer g.suspended.Store(false)
	wantsTerminal := sig == syscall.SIGTTIN || sig == syscall.SIGTTOU
	if wantsTerminal && !g.tty.lent && g.tty.mine() {
		g.proceed() // it has asked for the terminal, and may have it
		return
	}
	lent := g.tty.lent
	g.tty.reclaim()
	select {
	case <-g.notice(Notice{Kind: Suspended}):
	case <-time.After(noticePatience): // the stop does not wait for a slow reader
	}
	if wantsTerminal && !lent && g.tty.mine() {
		// The user was quicker: fg has found no stopped job to continue, and a stop now would
		// be one more.
		g.notice(Notice{Kind: Resumed})
		g.proceed()
		return
	}
	stopped := g.stopSelf(sig)
	if g.termDue() {
		return // the guardian has dealt, or is dealing, with the family
	}
	if !stopped && wantsTerminal {
		// In the background of a session where no shell can put it into the foreground. The kernel
		// hangs up on such a group.
		g.Signal(syscall.SIGHUP)
	}
	g.notice(Notice{Kind: Resumed})
	g.proceed()
}

// proceed continues the command, with the terminal if it is this process's to give.
func (g *Guard) proceed() {
	f := frame{kind: frameContinue}
	if g.tty.mine() {
		g.tty.lent = true
		f.arg = 1
	}
	g.send(f)
}

func (g *Guard) termDue() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.over || g.ended || g.orders.term(Now())
}

// stopSelf stops this process's group as the terminal would, so that the shell sees the whole
// job stopped, and returns when it was continued. It reports whether it was stopped at all.
func (g *Guard) stopSelf(sig syscall.Signal) bool {
	if sig != syscall.SIGTTIN && sig != syscall.SIGTTOU {
		sig = syscall.SIGTSTP // not SIGSTOP: the kernel must spare an orphaned group
	}
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	restore, err := defaultAction(sig)
	if err != nil {
		sig = syscall.SIGSTOP // the better of two evils: the shell must see a stopped job
	} else {
		defer restore()
	}
	if err := syscall.Kill(0, sig); err != nil {
		return false
	}
	timer := time.NewTimer(stopPatience)
	defer timer.Stop()
	select {
	case <-continued:
		return true
	case <-timer.C:
	}
	// The timer runs while the process is stopped: both may be due.
	timer.Reset(stopPatience)
	select {
	case <-continued:
		return true
	case <-timer.C:
		return false
	}
}

// defaultAction gives a signal its default action until restore is called. os/signal cannot:
// once a signal was asked for by Notify, the runtime swallows it after Stop. The kernel's struct is
// kept as opaque bytes, so its layout does not matter; all zero is SIG_DFL on every machine.
func defaultAction(sig syscall.Signal) (restore func(), err error) {
	const setSize = 8 // of the kernel's sigset_t; MIPS has 16 and answers EINVAL
	var old, none [64]byte
	act := func(next, prev *[64]byte) error {
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig),
			uintptr(unsafe.Pointer(next)), uintptr(unsafe.Pointer(prev)), setSize, 0, 0)
		if errno != 0 {
			return errno
		}
		return nil
	}
	if err := act(&none, &old); err != nil {
		return nil, err
	}
	return func() { _ = act(&old, nil) }, nil
}
