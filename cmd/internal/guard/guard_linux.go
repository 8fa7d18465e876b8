// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Guard is a command under guard. Its methods may be called from any goroutine and never
// wait for the guardian, but for Wait.
//
// The caller passes signals on with [Guard.Signal], those of [Signals] that it wants passed on, and
// leaves SIGTSTP, SIGTTIN and SIGTTOU to the Guard. A caller that was started with a signal
// ignored (nohup) should see to it that it stays so: os/signal.Ignored before Notify.
type Guard struct {
	cmd  Command
	path string
	proc procFS
	tty  *terminal      // nil without one
	keys chan os.Signal // Ctrl-Z, while it reaches the caller

	suspended atomic.Bool // the command was stopped, and this process stops itself for it

	guardian int
	toIt     *os.File
	fromIt   *os.File
	alarm    *alarm

	started  chan error    // one answer
	gone     chan struct{} // closed when the guardian is reaped
	finished chan struct{} // closed when nothing is left
	poke     chan struct{} // there is something to write
	notices  chan queued

	mu     sync.Mutex
	orders orders
	// stopAt is when Stop was called first.
	stopAt Instant
	// newOrders is set while the latest orders are not in the pipe. Only the latest matter, so a
	// guardian that is stopped for long does not find old ones when it goes on.
	newOrders  bool
	queue      []frame // signals and continuations, in order
	over       bool    // the kill instant has come, or nothing is left: nothing can be extended
	terminated bool    // the guardian has sent SIGTERM, or the watchdog has for it
	warnedAt   Instant // when the watchdog found SIGTERM overdue for the first time, or 0
	ended      bool    // status is the command's
	status     syscall.WaitStatus
	starting   bool // the guardian was about to start the command: it may have begun
	pid        int  // of the command, as the guardian sees it
	done       bool
	reason     Reason
	killed     bool
	lost       bool

	// pin is held by whoever reaps the guardian or needs its number to stay its own. It is not mu:
	// the heartbeat must not wait while /proc is read.
	pin    sync.Mutex
	reaped bool
}

// maxQueue bounds what waits for a guardian that does not read. Signals beyond are dropped.
const maxQueue = 64

// underway is set while a command is under guard. It is the process's, not a Guard's, since
// orphans are inherited by the process.
var underway atomic.Bool

// Start runs a command under guard until the first limits at most; [Guard.Extend] gives it
// longer. It returns once the command is running. On an error nothing is left running:
// see [ErrNotFound], [ErrCannotRun], [ErrContain], [ErrProc], [ErrTooLate], [ErrOverdue], [ErrBusy],
// [ErrGuardian].
func Start(cmd Command, first Limits) (*Guard, error) {
	if err := first.check(); err != nil {
		return nil, err
	}
	path, err := cmd.find()
	if err != nil {
		return nil, err
	}
	if cmd.Dir != "" {
		if st, err := os.Stat(cmd.Dir); err != nil {
			return nil, fmt.Errorf("%w: working directory: %w", ErrCannotRun, err)
		} else if !st.IsDir() {
			return nil, fmt.Errorf("%w: working directory %s: %w", ErrCannotRun, cmd.Dir, unix.ENOTDIR)
		}
	}
	if Now() >= first.Term {
		return nil, ErrTooLate
	}
	return begin(cmd, path, first)
}

// begin is Start without the checks that a guardian makes again.
func begin(cmd Command, path string, first Limits) (*Guard, error) {
	if !underway.CompareAndSwap(false, true) {
		return nil, ErrBusy
	}
	g := &Guard{
		cmd:       cmd,
		path:      path,
		orders:    orders{Limits: first},
		newOrders: true,
		started:   make(chan error, 1),
		gone:      make(chan struct{}),
		finished:  make(chan struct{}),
		poke:      make(chan struct{}, 1),
		notices:   make(chan queued, 16),
	}
	subreaper, err := g.prepare()
	if err == nil {
		if err = g.launch(); err != nil {
			subreaper.restore()
			g.proc.close()
		}
	}
	if err != nil {
		underway.Store(false)
		return nil, err
	}
	go g.run(subreaper)
	if err := <-g.started; err != nil {
		<-g.finished
		return nil, err
	}
	return g, nil
}

// prepare gets what this process needs before it has a guardian.
func (g *Guard) prepare() (subreaper, error) {
	proc, err := openProc()
	if err != nil {
		return subreaper{}, err
	}
	subreaper, err := becomeSubreaper()
	if err != nil {
		proc.close()
		return subreaper, fmt.Errorf("%w: %w", ErrGuardian, err)
	}
	g.proc = proc
	return subreaper, nil
}

// Extend gives the family until newer limits, after a heartbeat. Limits that are out of order
// are a programmer's error and panic. Once the kill instant has come, Extend does nothing; after
// SIGTERM was sent it moves the kill instant alone.
func (g *Guard) Extend(l Limits) {
	if err := l.check(); err != nil {
		panic("guard: " + err.Error()) //nolint:forbidigo // a programmer's error
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.orders.Limits = l
	g.order()
}

// Stop makes the family end, because the lease is lost or asked back: SIGTERM to everything
// now, SIGKILL to what is left at kill or at Limits.Kill, whichever comes first.
// Limits.Kill can still be extended meanwhile, kill cannot: a later call only makes it earlier.
func (g *Guard) Stop(kill Instant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.orders.stop == 0 {
		g.stopAt = Now()
	}
	g.orders.ask(kill)
	g.order()
}

// order passes the orders on to the watchdog and to the guardian. It needs the lock.
func (g *Guard) order() {
	if g.over {
		return
	}
	g.newOrders = true
	g.alarm.set(g.nextAlarm())
	g.wake()
}

// Signal passes a signal on to the command's process group: to the command and what it has
// not put into groups of their own, as a terminal does. Where a signal comes in faster than a
// stopped guardian can take it, it is dropped. So is a SIGCONT that continues this process after
// Ctrl-Z: the Guard continues the command itself, with the terminal, if the limits allow it.
func (g *Guard) Signal(sig os.Signal) {
	s, ok := sig.(syscall.Signal)
	switch {
	case !ok:
	case s != syscall.SIGCONT:
		g.send(frame{kind: frameSignal, arg: int32(s)})
	case !g.suspended.Load():
		g.send(frame{kind: frameContinue})
	}
}

func (g *Guard) send(f frame) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over || len(g.queue) >= maxQueue {
		return
	}
	g.queue = append(g.queue, f)
	g.wake()
}

// Done is closed when nothing is left of the command and all that it started.
func (g *Guard) Done() <-chan struct{} { return g.finished }

// Wait returns when nothing is left of the command and all that it started: a lock may be
// released then. It may be called more than once.
func (g *Guard) Wait() Exit {
	<-g.finished
	return g.exit()
}

// exit is what is known of the end.
func (g *Guard) exit() Exit {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := Exit{Code: -1, Signal: syscall.SIGKILL, Reason: g.reason, Killed: g.killed, GuardianLost: g.lost}
	switch {
	case !g.ended: // only SIGKILL keeps the guardian from reporting the status
	case g.status.Signaled():
		e.Signal = g.status.Signal()
	default:
		e.Code, e.Signal = g.status.ExitStatus(), 0
	}
	return e
}

// run owns all goroutines of the guard, from the start of the guardian to the end.
func (g *Guard) run(subreaper subreaper) {
	var workers, notifier sync.WaitGroup
	workers.Go(g.write)
	workers.Go(g.listen)
	workers.Go(g.watch)
	notifier.Go(g.notify)
	stopJobControl := g.controlJobs(&workers)

	clean := g.awaitGuardian()
	close(g.gone)
	if !clean {
		g.mu.Lock()
		done := g.done
		g.mu.Unlock()
		if !done {
			g.notice(Notice{Kind: GuardianLost})
		}
		if !g.cmd.Contain { // a namespace has ended with its guardian
			g.adopt()
		}
	}
	g.mu.Lock()
	g.over = true
	g.alarm.close()
	g.mu.Unlock()
	g.wake()
	_ = g.toIt.Close()
	stopJobControl()
	workers.Wait()
	_ = g.fromIt.Close()

	g.mu.Lock()
	if !g.done {
		g.lost = true
		if g.reason == Ended {
			g.reason = Abandoned
		}
	}
	killed := g.reason != Ended || g.ended && g.status.Signaled()
	unstarted := errGuardianEnded
	switch {
	case g.reason == Overdue:
		unstarted = ErrOverdue
	case g.starting:
		unstarted = nil // it may have begun, and was killed then: to start it again would be once too often
	}
	g.mu.Unlock()
	if g.tty != nil {
		g.tty.reclaim()
		if killed {
			g.tty.restore()
		}
		g.tty.close()
	}
	close(g.notices)
	notifier.Wait()
	subreaper.restore()
	g.proc.close()
	select {
	case g.started <- unstarted:
	default: // it has answered
	}
	underway.Store(false)
	close(g.finished)
}

// awaitGuardian reaps the guardian, and reports whether it left nothing behind.
func (g *Guard) awaitGuardian() (clean bool) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, g.guardian, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	g.pin.Lock()
	defer g.pin.Unlock()
	g.reaped = true
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(g.guardian, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		return err == nil && status.Exited() && status.ExitStatus() == 0
	}
}

// adopt kills everything that this process has inherited from its guardian, until wait4 says
// that nothing is left. Its own helpers are among it: see the package comment.
func (g *Guard) adopt() {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		for range maxChase {
			g.proc.killChildren()
			if g.reapAll() {
				return
			}
			time.Sleep(chasePause) //nolint:forbidigo // nothing may stop the killing
		}
		_ = g.proc.killFamily(os.Getpid())
		time.Sleep(pause) //nolint:forbidigo // nothing may stop the killing
	}
}

// reapAll reaps all children that are dead, and reports whether none is left.
func (g *Guard) reapAll() (childless bool) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if errors.Is(err, syscall.ECHILD) {
			return true
		}
		if err != nil || pid == 0 {
			return false
		}
		g.mu.Lock()
		if pid == g.pid && !g.ended {
			g.ended, g.status = true, status
		}
		g.mu.Unlock()
	}
}

// subreaper is what the process was before; restoring it leaves no trace of a guard.
type subreaper struct{ changed bool }

func becomeSubreaper() (subreaper, error) {
	var was int32
	if err := prctlGetSubreaper(&was); err == nil && was != 0 {
		return subreaper{}, nil
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return subreaper{}, os.NewSyscallError("prctl(PR_SET_CHILD_SUBREAPER)", err)
	}
	return subreaper{changed: true}, nil
}

func (s subreaper) restore() {
	if s.changed {
		_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	}
}
