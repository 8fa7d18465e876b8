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
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Guard is a command under guard. Its methods may be called from any goroutine and, except
// for Wait, never wait for the guardian.
//
// The caller passes on the signals that it chooses from [Signals] with [Guard.Signal], and leaves
// SIGTSTP, SIGTTIN and SIGTTOU to the Guard. A caller that was started with a signal ignored
// (nohup) should keep it ignored: check os/signal.Ignored before Notify.
type Guard struct {
	cmd  Command
	path string
	proc procFS
	tty  *terminal // nil without one

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
	// guardian that was stopped for long does not find old orders when it continues.
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

	// pin is held while a caller reaps the guardian, or needs its pid to stay its own. It is
	// not mu: the heartbeat must not wait while /proc is read.
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
	restore, err := g.prepare()
	if err != nil {
		underway.Store(false)
		return nil, err
	}
	go g.run(restore)
	if err := <-g.started; err != nil {
		<-g.finished
		return nil, err
	}
	return g, nil
}

// prepare gets what this process needs for a guardian, and starts it. Restore gives it back.
func (g *Guard) prepare() (restore func(), err error) {
	if g.proc, err = openProc(); err != nil {
		return nil, err
	}
	before, err := becomeSubreaper()
	if err != nil {
		g.proc.close()
		return nil, err
	}
	restore = func() {
		before()
		g.proc.close()
	}
	if err := g.launch(); err != nil {
		restore()
		return nil, err
	}
	return restore, nil
}

// Extend gives the family until newer limits, after a heartbeat. Limits that are out of order
// are a programmer's error and panic. After the kill instant Extend does nothing; after SIGTERM
// was sent it moves only the kill instant.
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
func (g *Guard) run(restore func()) {
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
	restore()
	select {
	case g.started <- unstarted:
	default: // it has answered
	}
	underway.Store(false)
	close(g.finished)
}

// awaitGuardian reaps the guardian, and reports whether it left no process behind.
func (g *Guard) awaitGuardian() (clean bool) {
	_, _ = retry(func() (int, error) {
		return 0, unix.Waitid(unix.P_PID, g.guardian, new(unix.Siginfo), unix.WEXITED|unix.WNOWAIT, nil)
	})
	g.pin.Lock()
	defer g.pin.Unlock()
	g.reaped = true
	var status syscall.WaitStatus
	_, err := retry(func() (int, error) { return syscall.Wait4(g.guardian, &status, 0, nil) })
	return err == nil && status.Exited() && status.ExitStatus() == 0
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

// reapAll reaps all dead children, and reports whether no child is left.
func (g *Guard) reapAll() (childless bool) {
	for {
		var status syscall.WaitStatus
		pid, err := retry(func() (int, error) { return syscall.Wait4(-1, &status, syscall.WNOHANG, nil) })
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

// becomeSubreaper makes this process one, until restore is called, which leaves no trace of a guard.
func becomeSubreaper() (restore func(), err error) {
	var was int32
	if err := prctlGetSubreaper(&was); err == nil && was != 0 {
		return func() {}, nil
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrGuardian, os.NewSyscallError("prctl(PR_SET_CHILD_SUBREAPER)", err))
	}
	return func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }, nil
}

// The caller's own watch over the deadlines, for a guardian that does not keep them.
// The guardian goes first: SIGTERM must reach a process once. SIGKILL does no harm twice, and
// comes from both at the kill instant.

// patience is how long a guardian may be late with SIGTERM, or with dying after SIGKILL was
// due, at most. It is cut to a quarter of the time that there is.
const patience = 200 * time.Millisecond

// nextAlarm is when the watchdog has to check again. The caller holds the lock.
func (g *Guard) nextAlarm() Instant {
	kill := g.orders.kill()
	if g.terminated {
		return kill
	}
	due := g.orders.Term
	if g.stopAt != 0 {
		due = min(due, g.stopAt)
	}
	due = max(due, g.warnedAt)
	late := max(0, min(patience, kill.Sub(due)/4)) // the guardian may be
	return min(due.Add(late), kill)
}

// watch keeps the deadlines until the guardian is gone. Nothing it does waits for the network, a
// mutex held for long, or the guardian.
func (g *Guard) watch() {
	for g.alarm.wait() {
		now := Now()
		g.mu.Lock()
		if g.over {
			g.mu.Unlock()
			return
		}
		switch {
		case now >= g.orders.kill():
			g.over = true
			if !g.done {
				g.reason = g.orders.reason(g.reason)
				g.killed = true
			}
			limit := max(0, min(patience, g.orders.Expiry.Sub(g.orders.kill())/4))
			g.mu.Unlock()
			g.killAll(now.Add(limit))
			return
		case !g.orders.term(now) || g.terminated:
			g.warnedAt = 0
			g.alarm.set(g.nextAlarm())
		case now < g.nextAlarm(): // a timer may be early
			g.alarm.set(g.nextAlarm())
		case g.warnedAt == 0:
			// This process may itself have been stopped, with the guardian's word unread in the
			// pipe. It gets the time to read it.
			g.warnedAt = now
			g.alarm.set(g.nextAlarm())
		default:
			g.terminated = true
			g.reason = g.orders.reason(g.reason)
			g.alarm.set(g.nextAlarm())
			scansEnd := g.orders.scansEnd()
			g.mu.Unlock()
			g.withGuardian(func(pid int) { _ = g.proc.terminateFamily(pid, scansEnd) })
			g.notice(Notice{Kind: Terminating})
			continue
		}
		g.mu.Unlock()
	}
}

// killAll kills everything below the guardian until the guardian is gone, and from an
// instant on the guardian, too. Then the rest is this process's: see adopt.
func (g *Guard) killAll(guardianToo Instant) {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		select {
		case <-g.gone:
			return
		default:
		}
		g.withGuardian(func(pid int) {
			_ = g.proc.killFamily(pid)
			if Now() >= guardianToo {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		})
		timer := time.NewTimer(pause)
		select {
		case <-g.gone:
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// withGuardian calls f while the guardian's pid is sure to be the guardian's.
func (g *Guard) withGuardian(f func(pid int)) {
	g.pin.Lock()
	defer g.pin.Unlock()
	if !g.reaped {
		f(g.guardian)
	}
}

// The real-time signals that os/signal can catch. The C libraries reserve 32 to
// 34.
const (
	firstRealTime = 35
	lastRealTime  = 64
)

// Signals returns the signals that a caller may catch to pass them on with [Guard.Signal].
// They are all signals of os/signal except those that this process causes itself (SIGCHLD,
// SIGPIPE, faults, limits), those that stop it, and SIGURG and SIGPROF, which Go's runtime
// uses.
func Signals() []os.Signal {
	all := []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM, syscall.SIGVTALRM, syscall.SIGWINCH, syscall.SIGIO, syscall.SIGCONT,
		syscall.SIGPWR,
	}
	for sig := syscall.Signal(firstRealTime); sig <= lastRealTime; sig++ {
		all = append(all, sig)
	}
	return all
}

// launch starts the guardian. On success the Guard owns its ends of the pipes, the alarm and
// the terminal; on failure nothing is left open.
func (g *Guard) launch() (err error) {
	var theirs, ours []int
	defer func() {
		closeAll(theirs)
		if err != nil {
			closeAll(ours)
			if g.tty != nil {
				g.tty.close()
			}
		}
	}()
	var down, up [2]int
	if err := unix.Pipe2(down[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("%w: %w", ErrGuardian, os.NewSyscallError("pipe2", err))
	}
	theirs, ours = append(theirs, down[0]), append(ours, down[1])
	if err := unix.Pipe2(up[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("%w: %w", ErrGuardian, os.NewSyscallError("pipe2", err))
	}
	theirs, ours = append(theirs, up[1]), append(ours, up[0])
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		self = -1 // before Linux 5.3: the guardian goes by its parent's pid
	} else {
		theirs = append(theirs, self)
	}
	tty, foreground := -1, false
	if g.tty = openTerminal(); g.tty != nil {
		tty, foreground = g.tty.fd, g.tty.lendable(g.proc)
	}

	files, at := descriptorTable([]int{down[0], up[1], self, tty})
	spec := guardianSpec{fd: at, parent: os.Getpid(), contain: g.cmd.Contain, foreground: foreground, last: g.cmd.Last}
	attr := &syscall.ProcAttr{
		Env:   lastWins(g.cmd.environ()),
		Files: files,
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	}
	if err := g.fork(spec, attr); err != nil {
		return err
	}
	if foreground {
		g.tty.lent = true
	}
	if g.alarm, err = newAlarm(); err != nil {
		// The guardian has no orders yet, and ends with its pipe.
		closeAll(ours)
		ours = nil
		_, _ = syscall.Wait4(g.guardian, nil, 0, nil)
		return fmt.Errorf("%w: %w", ErrGuardian, err)
	}
	g.alarm.set(g.nextAlarm())
	for _, fd := range ours {
		_ = unix.SetNonblock(fd, true)
	}
	g.toIt, g.fromIt = os.NewFile(uintptr(down[1]), "to the guardian"), os.NewFile(uintptr(up[0]), "from the guardian")
	g.wake()
	return nil
}

// self is the running binary, even if its file was replaced or removed since.
const self = "/proc/self/exe"

func (g *Guard) fork(spec guardianSpec, attr *syscall.ProcAttr) (err error) {
	start := func() (int, error) {
		argv := append([]string{"tenure-guardian", guardianArg, spec.String(), g.path}, spec.last...)
		argv = append(argv, g.cmd.Args...)
		return syscall.ForkExec(self, argv, attr)
	}
	if !spec.contain {
		if g.guardian, err = start(); err != nil {
			return fmt.Errorf("%w: start %s: %w", ErrGuardian, self, err)
		}
		return nil
	}
	// The mount namespace is for a /proc of the pid namespace: see prepare.
	attr.Sys.Cloneflags = unix.CLONE_NEWPID | unix.CLONE_NEWNS
	g.guardian, err = start()
	refused := "pid and mount namespaces"
	if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 {
		refused = "a user namespace with pid and mount namespaces"
		attr.Sys.Cloneflags |= unix.CLONE_NEWUSER
		attr.Sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
		attr.Sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		// For mounting /proc. An exec by another user than root loses all others.
		attr.Sys.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
		spec.confined = true
		g.guardian, err = start()
	}
	if err != nil {
		return fmt.Errorf("%w: the kernel does not allow %s (%w): run as root or with CAP_SYS_ADMIN, or let users make "+
			"namespaces (%s), or do without contain",
			ErrContain, refused, err, strings.Join(namespaceSettings(), ", "))
	}
	return nil
}

// containError explains why the guardian could not make its namespace a /proc of its own.
func containError(err error) error {
	return fmt.Errorf("%w: the kernel does not allow mounting a /proc of the new pid namespace (%w), most likely "+
		"because parts of the /proc here are covered, as container engines do: uncover them, or run as root with "+
		"CAP_SYS_ADMIN, or do without contain",
		ErrContain, err)
}

// namespaceSettings names the settings that can forbid namespaces, with their values here.
func namespaceSettings() []string {
	var all []string
	for _, name := range []string{
		"user.max_user_namespaces", "user.max_pid_namespaces",
		"kernel.unprivileged_userns_clone", "kernel.apparmor_restrict_unprivileged_userns",
	} {
		b, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
		if err == nil {
			all = append(all, "sysctl "+name+" is "+strings.TrimSpace(string(b)))
		}
	}
	return append(all, "a container's seccomp profile may forbid it, too")
}

// descriptorTable returns the table for a child that gets our descriptors in one row, after
// all descriptors that the caller itself was started with (9>lockfile, <(list), socket
// activation), which the command gets under their own numbers. The table has all of them,
// because package syscall uses numbers after it while it shuffles.
func descriptorTable(ours []int) (files []uintptr, at int) {
	inherited := inheritedDescriptors()
	at = 3
	for fd := range inherited {
		at = max(at, fd+1)
	}
	const none = ^uintptr(0)
	for i := range at {
		if i < 3 || inherited[i] {
			files = append(files, uintptr(i))
		} else {
			files = append(files, none)
		}
	}
	for _, fd := range ours {
		files = append(files, uintptr(fd)) // -1: no descriptor
	}
	return files, at
}

// inheritedDescriptors returns the descriptors above 2 that survive an exec. Go itself opens
// none of these.
func inheritedDescriptors() map[int]bool {
	found := make(map[int]bool)
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return found
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd < 3 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			found[fd] = true
		}
	}
	return found
}

// lastWins drops what a later entry of the same name overrides, as os/exec does: the guardian,
// which hands the environment on, would keep the first.
func lastWins(env []string) []string {
	seen := make(map[string]bool, len(env))
	kept := make([]string, 0, len(env))
	for _, entry := range slices.Backward(env) {
		name, _, _ := strings.Cut(entry, "=")
		if !seen[name] {
			seen[name] = true
			kept = append(kept, entry)
		}
	}
	slices.Reverse(kept)
	return kept
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

func prctlGetSubreaper(was *int32) error {
	_, _, errno := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(was)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Now reads the raw clock, plus the time that the machine was suspended. Leases count by that
// clock, which no time service slews. A sandbox without it gives the boot clock.
func Now() Instant {
	// In this order: a pause between the readings makes the result late by as much at most.
	raw, err := readClock(unix.CLOCK_MONOTONIC_RAW)
	if err != nil {
		return bootClock()
	}
	monotonic, err := readClock(unix.CLOCK_MONOTONIC)
	if err != nil {
		return bootClock()
	}
	return raw + bootClock() - monotonic
}

func bootClock() Instant {
	now, err := readClock(unix.CLOCK_BOOTTIME)
	if err != nil {
		// In Linux since 2.6.39; nothing can be guarded without it.
		panic("guard: no boot clock: " + err.Error()) //nolint:forbidigo // see above
	}
	return now
}

func readClock(id int32) (Instant, error) {
	var ts unix.Timespec
	err := unix.ClockGettime(id, &ts)
	return Instant(ts.Nano()), err
}

// openTimer opens a timer on the boot clock.
func openTimer() (int, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	return fd, os.NewSyscallError("timerfd_create", err)
}

// slowdown bounds how many times slower than Now the boot clock may run: see MaxSlowdown of
// package clock.
const slowdown = 3

// armTimer makes a timer readable at an instant, or before: the boot clock, which there are timers
// for, may be slewed. The process that waits then reads the clock, and arms it again.
func armTimer(fd int, at Instant) error {
	boot := bootClock()                   // before Now: a pause in between makes the timer early
	at = max(timerAt(boot, Now(), at), 1) // 0 would disarm it
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(at))}
	return os.NewSyscallError("timerfd_settime", unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME, &spec, nil))
}

// timerAt returns when a timer on the boot clock, which shows boot, goes off for the instant at.
func timerAt(boot, now, at Instant) Instant {
	left := at.Sub(now)
	return boot.Add(max(left/slowdown, min(left, timerSlack)))
}

// timerSlack is how late a timer may be, rather than early once more.
const timerSlack = 50 * time.Microsecond

// alarm wakes one goroutine at an instant that others may move, or before: see armTimer. Moving
// it does not block. set and close must not be called at the same time.
type alarm struct {
	fd   int
	file *os.File
}

func newAlarm() (*alarm, error) {
	fd, err := openTimer()
	if err != nil {
		return nil, err
	}
	return &alarm{fd: fd, file: os.NewFile(uintptr(fd), "timer")}, nil
}

func (a *alarm) set(at Instant) { _ = armTimer(a.fd, at) }

// wait returns true once the timer has gone off, false when the alarm is closed.
func (a *alarm) wait() bool {
	var count [8]byte
	_, err := a.file.Read(count[:])
	return err == nil
}

func (a *alarm) close() { _ = a.file.Close() }
