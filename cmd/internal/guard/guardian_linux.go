// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guardianArg marks a guardian's command line: name, guardianArg, a spec, the program's path,
// the words of Command.Last, the command's arguments. People see it in ps.
const guardianArg = "--tenure-guardian"

// A process that [Start] has begun is a guardian, or becomes the command, from its
// initialization on: package main and its other imports are not initialized in it. They may
// include the clients of ten engines, and take more time and memory than all that a guardian
// does.
//
// Among packages whose imports are initialized, Go initializes the one with the lowest import
// path first. So this package imports little, and nothing with a high path, such as
// path/filepath: see TestGuardianInitializesLittle of package cli.
func init() {
	if len(os.Args) < 2 || os.Args[1] != guardianArg && os.Args[1] != stubArg {
		return
	}
	// The command's parent-death signal comes when the thread that started it ends.
	runtime.LockOSThread()
	if os.Args[1] == stubArg {
		become(os.Args)
	}
	g, err := newGuardian(os.Args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: started by hand? %v\n", guardianArg, err)
		os.Exit(64)
	}
	if err := g.run(); err != nil {
		fmt.Fprintf(os.Stderr, "tenure guardian: %v\n", err)
		os.Exit(1) // the caller inherits and kills what is left
	}
	os.Exit(0)
}

// guardianSpec is what a guardian has to know from its start. The four descriptors begin at
// fd: the caller's frames, frames to the caller, a pidfd of the caller, the terminal. The
// last two may be closed.
type guardianSpec struct {
	fd         int
	parent     int // the caller's pid, without contain
	contain    bool
	confined   bool // contain came with a user namespace
	foreground bool // give the terminal to the command from its start
	last       []string
}

const guardianSpecFormat = "fd=%d,parent=%d,contain=%t,confined=%t,foreground=%t,last=%d"

func (s guardianSpec) String() string {
	return fmt.Sprintf(guardianSpecFormat, s.fd, s.parent, s.contain, s.confined, s.foreground, len(s.last))
}

type phase int

const (
	waiting     phase = iota // for the first limits
	running                  // the command was started
	terminating              // everything was sent SIGTERM
	killing                  // everything is sent SIGKILL
)

// guardian is the state of a guardian process. It is used by one locked thread: the order of
// each round (read the clock, then the pipe, then the children, then decide) is what
// makes the decisions right after the process was stopped for a while.
type guardian struct {
	clock             func() Instant
	spec              guardianSpec
	path              string
	args              []string
	in, out           int
	parentFD, ttyFD   int
	timer, childEvent int
	proc              procFS

	inbox, outbox []byte
	given         bool // the first orders have come
	orders        orders
	callerGone    bool
	pipeEnded     bool          // and not only nonsense in it
	early         []unix.Signal // came before the command was started, which gets them then

	phase     phase
	pid       int  // the command's
	alive     bool // the command itself has not been reaped
	childless bool // wait4 said ECHILD
	reason    Reason
	killed    bool
	nextCall  Instant // when the caller may be continued again
}

func newGuardian(argv []string) (*guardian, error) {
	if len(argv) < 5 {
		return nil, errors.New("too few arguments")
	}
	g := &guardian{clock: Now, path: argv[3]}
	s, last := &g.spec, 0
	if _, err := fmt.Sscanf(argv[2], guardianSpecFormat, &s.fd, &s.parent, &s.contain, &s.confined, &s.foreground,
		&last); err != nil {
		return nil, err
	}
	if last < 0 || len(argv) < 5+last {
		return nil, errors.New("too few arguments")
	}
	s.last, g.args = argv[4:4+last], argv[4+last:]
	if s.contain && unix.Getpid() != 1 {
		return nil, errors.New("contain was asked for, but this is not process 1 of a pid namespace")
	}
	g.in, g.out, g.parentFD, g.ttyFD = s.fd, s.fd+1, s.fd+2, s.fd+3
	for _, fd := range []int{g.in, g.out} {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
			return nil, fmt.Errorf("descriptor %d is not a pipe", fd)
		}
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, err
		}
	}
	// The command must not get any of them: it could keep the pipes open, or take the terminal.
	for _, fd := range []*int{&g.in, &g.out, &g.parentFD, &g.ttyFD} {
		if _, err := unix.FcntlInt(uintptr(*fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
			*fd = -1
		}
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, os.NewSyscallError("prctl(PR_SET_CHILD_SUBREAPER)", err)
	}
	// A guardian that is stopped does not read the end of the pipe, so the death of the caller
	// continues it. The signal comes, too, when the thread that forked has ended, and then again with
	// the process: a guardian that runs does not notice it. It is asked for here, not in the fork, since
	// the kernel forgets it when a program with capabilities of its file is executed.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGCONT), 0, 0, 0); err != nil {
		return nil, os.NewSyscallError("prctl(PR_SET_PDEATHSIG)", err)
	}
	var err error
	if g.timer, err = openTimer(); err != nil {
		return nil, err
	}
	if g.childEvent, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	g.catchSignals()
	_ = os.WriteFile("/proc/self/comm", []byte("tenure-guardian"), 0) // "exe" means nothing to people
	return g, nil
}

// catchSignals makes the guardian survive signals that end or stop a program: its caller
// passes on the signals for the command. They are caught, not ignored, because ignored
// signals stay ignored in the command; signals that were ignored at the start (nohup) stay so
// for the same reason.
func (g *guardian) catchSignals() {
	deaf := make(chan os.Signal, 1)
	for _, sig := range append(Signals(), syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGPIPE) {
		if !signal.Ignored(sig) {
			signal.Notify(deaf, sig)
		}
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	go func() { // lives as long as the process
		one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
		for range children {
			_, _ = unix.Write(g.childEvent, one)
		}
	}()
}

// run returns nil when nothing is left below the guardian. Any error means that the
// guardian cannot do its duty; the caller then takes over what it leaves.
func (g *guardian) run() error {
	if err := g.prepare(); err != nil && g.spec.contain {
		g.tell(frame{kind: frameUncontained, arg: int32(errnoOf(err))})
		return g.flush()
	} else if err != nil {
		return err
	}
	backoff := time.Millisecond
	for {
		now := g.look()
		switch {
		case g.phase == waiting && g.callerGone:
			g.last()
			return nil
		case g.phase == waiting && !g.given:
		case g.phase == waiting && g.orders.term(now):
			g.tell(frame{kind: frameRefused})
			return g.flush()
		case g.phase == waiting:
			if err := g.start(); err != nil {
				g.tell(frame{kind: frameNotStarted, arg: int32(errnoOf(err))})
				return g.flush()
			}
			continue // it may have ended already
		case g.childless:
			err := g.finish()
			g.last()
			return err
		case g.phase != killing && (g.callerGone || now >= g.orders.kill()):
			g.phase = killing
			g.reason = g.orders.reason(g.reason)
			g.killed = true
		case g.phase == running && g.orders.term(now):
			g.phase = terminating
			g.reason = g.orders.reason(g.reason)
			g.tell(frame{kind: frameTerminating})
			g.terminate()
		}

		if g.phase == killing {
			if g.kill(); g.childless {
				continue
			}
		}
		if g.phase >= terminating && now >= g.orders.Expiry {
			g.continueCaller(now)
		}
		backoff = g.sleep(backoff)
	}
}

// prepare opens /proc. With its own namespace the guardian mounts a new /proc first: in the
// caller's /proc, the command would find other processes under its numbers.
func (g *guardian) prepare() error {
	if g.spec.contain {
		if err := mountProc(); err != nil {
			return err
		}
		if g.spec.confined {
			if err := dropCapabilities(); err != nil {
				return err
			}
		}
	}
	var err error
	g.proc, err = openProc()
	return err
}

// look reads all events, and returns the instant to judge them by.
//
// It reads the clock before the pipe, so that it sees what the caller wrote before this instant.
// Otherwise a guardian that is stopped in between would judge old limits by a late clock.
func (g *guardian) look() Instant {
	now := g.clock()
	g.listen()
	g.reap()
	return now
}

// sleep waits for the next thing to do, and returns the next backoff of killing.
func (g *guardian) sleep(backoff time.Duration) time.Duration {
	fds := []unix.PollFd{
		{Fd: int32(g.in), Events: unix.POLLIN},
		{Fd: int32(g.childEvent), Events: unix.POLLIN},
		{Fd: int32(g.timer), Events: unix.POLLIN},
		{Fd: int32(g.out), Events: unix.POLLOUT},
	}
	if g.callerGone {
		fds[0].Fd = -1 // always readable from now on
	}
	if len(g.outbox) == 0 || g.callerGone {
		fds[3].Fd = -1
	}
	timeout := -1
	switch g.phase {
	case waiting:
		fds[2].Fd = -1
	case running:
		_ = armTimer(g.timer, g.orders.Term)
	case terminating:
		_ = armTimer(g.timer, g.orders.kill())
	case killing:
		// Every scan of /proc costs time, so the deaths of a large family do not each cause one.
		timeout = int(backoff / time.Millisecond)
		backoff = min(2*backoff, 64*time.Millisecond)
		fds[0].Fd, fds[2].Fd, fds[3].Fd = -1, -1, -1
		time.Sleep(time.Millisecond) //nolint:forbidigo // nothing may stop the killing
	}
	_, _ = unix.Poll(fds, timeout) // an interrupted poll is a round too many
	g.clearChildEvent()
	return backoff
}

// listen takes in all frames that the pipe holds.
func (g *guardian) listen() {
	if g.callerGone {
		return
	}
	var buf [64 * frameSize]byte
	for {
		n, err := unix.Read(g.in, buf[:])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return
		case err != nil || n == 0:
			g.callerGone, g.pipeEnded = true, err == nil
			return
		}
		g.inbox = append(g.inbox, buf[:n]...)
		for len(g.inbox) >= frameSize {
			f, err := parseFrame(g.inbox[:frameSize])
			if err != nil {
				g.callerGone = true // nothing that comes can be trusted
				return
			}
			g.inbox = g.inbox[frameSize:]
			g.obey(f)
		}
	}
}

func (g *guardian) obey(f frame) {
	switch f.kind {
	case frameOrders:
		g.given = true
		g.orders = f.orders
	case frameSignal:
		if g.phase == waiting && len(g.early) < maxQueue {
			g.early = append(g.early, unix.Signal(f.arg))
		}
		g.signalGroup(unix.Signal(f.arg))
	case frameContinue:
		if g.phase != running {
			return
		}
		if f.arg == 1 && g.ttyFD >= 0 {
			_ = setForeground(g.ttyFD, g.pid)
		}
		g.signalGroup(unix.SIGCONT)
	}
}

// reap takes in all changes of state of children, its own and inherited.
func (g *guardian) reap() {
	for g.phase != waiting {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG|unix.WUNTRACED, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ECHILD:
			g.childless = true
			return
		case err != nil || pid == 0:
			return
		case pid != g.pid:
		case status.Stopped():
			if g.phase == running {
				g.tell(frame{kind: frameStopped, arg: int32(status.StopSignal())})
			}
		default:
			g.alive = false
			g.tell(frame{kind: frameEnded, arg: int32(status)})
		}
	}
}

func (g *guardian) start() error {
	attr := &syscall.ProcAttr{
		Env:   os.Environ(), // the command's: the guardian was started with it
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
	if g.spec.foreground {
		attr.Sys.Foreground, attr.Sys.Ctty = true, g.ttyFD
	}
	path, args := g.path, g.args
	if meantFor(attr.Env, g.spec.parent) {
		path, args = self, g.stub()
	}
	// If this process is killed from here on, the command may have begun.
	g.tell(frame{kind: frameStarting})
	pid, err := forkExec(path, args, attr)
	if g.spec.foreground && (errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EIO) || errors.Is(err, unix.EPERM)) {
		attr.Sys.Foreground = false // the terminal hung up meanwhile
		pid, err = forkExec(path, args, attr)
	}
	if err != nil {
		return err
	}
	g.pid, g.alive, g.phase = pid, true, running
	g.tell(frame{kind: frameStarted, arg: int32(pid)})
	for _, sig := range g.early {
		g.signalGroup(sig)
	}
	return nil
}

// finish reports that no process is left. If it had to enforce the deadline for a stopped
// caller, it stays to continue that caller: otherwise the loss would not be reported.
func (g *guardian) finish() error {
	done := frame{kind: frameDone, arg: int32(g.reason)}
	if g.killed {
		done.arg |= doneKilled
	}
	g.tell(done)
	for g.phase >= terminating && !g.spec.contain && g.proc.isStopped(g.spec.parent) && g.isParent() {
		now := Now()
		if now >= g.orders.Expiry {
			g.continueCaller(now)
			break
		}
		g.write()
		wait := min(g.orders.Expiry.Sub(now), 50*time.Millisecond)
		_, _ = unix.Poll(nil, int(wait/time.Millisecond)+1)
	}
	return g.flush()
}

// isParent guards against a number that changed hands.
func (g *guardian) isParent() bool { return unix.Getppid() == g.spec.parent }

// continueCaller wakes a stopped caller, at most once a second: a user that stops it
// again may mean it.
func (g *guardian) continueCaller(now Instant) {
	if g.callerGone || g.spec.contain || now < g.nextCall || !g.proc.isStopped(g.spec.parent) || !g.isParent() {
		return
	}
	g.nextCall = now.Add(time.Second)
	if g.parentFD < 0 { // before Linux 5.3
		_ = unix.Kill(g.spec.parent, unix.SIGCONT)
		return
	}
	_ = unix.PidfdSendSignal(g.parentFD, unix.SIGCONT, nil, 0)
}

// tell queues a frame for the caller, which may be stopped: the guardian never waits for it.
func (g *guardian) tell(f frame) {
	if f.kind == frameStopped && len(g.outbox) > 0 {
		return // the only kind that can come without end
	}
	g.outbox = f.append(g.outbox)
	g.write()
}

func (g *guardian) write() {
	for len(g.outbox) > 0 && !g.callerGone {
		n, err := unix.Write(g.out, g.outbox)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return
		case err != nil:
			g.outbox = nil // the end of the other pipe will show it
			return
		default:
			g.outbox = g.outbox[n:]
		}
	}
}

// flush writes what is queued. Nothing is left below the guardian by now, so it may wait.
func (g *guardian) flush() error {
	for {
		g.write()
		if len(g.outbox) == 0 || g.callerGone {
			return nil
		}
		fds := []unix.PollFd{{Fd: int32(g.out), Events: unix.POLLOUT}}
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return os.NewSyscallError("poll", err)
		}
	}
}

// How a guardian's signals reach the family. In a pid namespace of its own the kernel
// knows the family: kill(-1) reaches all of it at once, including forks in progress, and
// every visible process group belongs to the family.

// killNamespace signals all processes in the pid namespace of this process except itself.
// Outside of the guardian's own namespace that is the whole machine, so it checks its own
// number every time.
func killNamespace(sig unix.Signal) {
	if unix.Getpid() == 1 {
		_ = unix.Kill(-1, sig)
	}
}

// terminate sends SIGTERM to everything, once.
func (g *guardian) terminate() {
	if g.spec.contain {
		killNamespace(unix.SIGTERM)
		killNamespace(unix.SIGCONT)
		return
	}
	if err := g.proc.terminateFamily(unix.Getpid(), g.orders.scansEnd()); err != nil && g.alive {
		// /proc cannot be read: out of descriptors, most likely.
		_ = unix.Kill(-g.pid, unix.SIGTERM)
		_ = unix.Kill(-g.pid, unix.SIGCONT)
	}
}

// kill sends SIGKILL to everything that is there now.
func (g *guardian) kill() {
	if g.spec.contain {
		killNamespace(unix.SIGKILL)
		return
	}
	if g.alive {
		_ = unix.Kill(-g.pid, unix.SIGKILL) // at once for most families, and for fork bombs
	}
	// Orphans become children of this process at once. Checking only these takes microseconds,
	// so a family cannot outrun it by forking.
	for range maxChase {
		g.proc.killChildren()
		if g.reap(); g.childless {
			return
		}
		g.awaitChild(chasePause)
	}
	_ = g.proc.killFamily(unix.Getpid())
}

const (
	// maxChase is how often the children of this process are checked and killed before all of
	// /proc is read: a process that is not dead yet may have other children.
	maxChase = 20
	// chasePause is how long to wait for a death between two such checks.
	chasePause = 500 * time.Microsecond
)

// awaitChild waits for a change of a child's state, for a while.
func (g *guardian) awaitChild(limit time.Duration) {
	fds := []unix.PollFd{{Fd: int32(g.childEvent), Events: unix.POLLIN}}
	timeout := unix.NsecToTimespec(limit.Nanoseconds())
	_, _ = unix.Ppoll(fds, &timeout, nil) // an interrupted poll only costs another check
	g.clearChildEvent()
}

func (g *guardian) clearChildEvent() {
	var count [8]byte
	_, _ = unix.Read(g.childEvent, count[:])
}

// signalGroup sends a signal to the command's process group. Once the command has been
// reaped its number is free to be used again unless a descendant is still in the group.
func (g *guardian) signalGroup(sig unix.Signal) {
	if g.phase == waiting {
		return
	}
	if !g.alive && !g.spec.contain && !g.groupLives() {
		return
	}
	_ = unix.Kill(-g.pid, sig)
}

func (g *guardian) groupLives() bool {
	table, err := g.proc.processes()
	return err == nil &&
		slices.ContainsFunc(table.descendants(unix.Getpid()), func(p process) bool { return p.pgrp == g.pid })
}

// The last act of a guardian whose caller has ended: see [Command.Last].

// last becomes the program of Command.Last, if it is proved that nothing is left: neither
// the caller, nor the command and what that has started. Otherwise it returns, and the
// guardian ends.
func (g *guardian) last() {
	if len(g.spec.last) == 0 {
		return
	}
	if g.listen(); !g.pipeEnded {
		return // the caller lives, or has written nonsense
	}
	if _, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != unix.ECHILD {
		return
	}
	ended := g.clock()
	if !g.callerEnded() {
		return
	}
	argv := append(append([]string(nil), g.spec.last...), formatInstant(ended), formatInstant(g.orders.Expiry))
	if err := letGo(); err != nil {
		return
	}
	_ = syscall.Exec(self, argv, os.Environ()) // if that fails, the death is not reported
}

// callerEnded says that the caller's process has ended, with all of its threads. The end
// of the pipe comes a bit earlier, and would come too if the caller had closed it. It
// waits for no longer than the limits of the caller.
func (g *guardian) callerEnded() bool {
	for {
		switch {
		case g.parentFD >= 0:
			fds := []unix.PollFd{{Fd: int32(g.parentFD), Events: unix.POLLIN}}
			if n, err := unix.Poll(fds, 10); err == nil && n == 1 && fds[0].Revents&unix.POLLIN != 0 {
				return true
			}
		case g.spec.contain:
			return false // from within a namespace nothing else shows it
		default: // before Linux 5.3
			if unix.Getppid() != g.spec.parent {
				return true
			}
			time.Sleep(time.Millisecond) //nolint:forbidigo // no event reports it
		}
		if g.clock() >= g.orders.Expiry {
			return false
		}
	}
}

// letGo closes all inherited files: a process that waits for the end of the command's
// output must not wait for what follows.
func letGo() error {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for fd := range 3 {
		if err := unix.Dup3(null, fd, 0); err != nil {
			return err
		}
	}
	for fd := range inheritedDescriptors() {
		unix.CloseOnExec(fd)
	}
	return nil
}

func formatInstant(t Instant) string { return strconv.FormatInt(int64(t), 10) }

// stubArg marks the command line of a process that becomes the command: name, stubArg, the pids
// of the guardian and of the caller, the program's path, the command's arguments.
const stubArg = "--tenure-command"

// ownPID are the variables in which a service manager names the process that may use what it has
// handed over. A program uses them only if they contain its own pid: sd_listen_fds(3),
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
	if errors.Is(err, unix.ENOEXEC) && isScript(path) {
		err = syscall.Exec(shellPath, scriptArgs(path, args), env)
	}
	err = startError(path, err)
	fmt.Fprintf(os.Stderr, "tenure: %v\n", err)
	os.Exit(StartStatus(err))
}
