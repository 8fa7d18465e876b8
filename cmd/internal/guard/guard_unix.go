// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package guard

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Guard is a command under guard: off Linux, a process group that only this process
// signals. Processes that leave the group are not covered, nor is this process's own end or stop.
// Methods may be called from any goroutine.
type Guard struct {
	pid      int
	changed  chan struct{}
	reaped   chan struct{}
	finished chan struct{}

	mu     sync.Mutex
	orders orders
	done   bool // the command is reaped: its pid is the group's only while it has members
	exit   Exit
}

// Start runs a command under guard until the first limits at most; [Guard.Extend] gives it
// longer. It returns once the command is running. On an error nothing is left running:
// see [ErrNotFound], [ErrCannotRun], [ErrTooLate], [ErrUnsupported].
func Start(cmd Command, first Limits) (*Guard, error) {
	if err := first.check(); err != nil {
		return nil, err
	}
	if cmd.Contain {
		return nil, fmt.Errorf("%w: contain needs the namespaces of Linux: do without it", ErrUnsupported)
	}
	path, err := cmd.find()
	if err != nil {
		return nil, err
	}
	if Now() >= first.Term {
		return nil, ErrTooLate
	}
	attr := &syscall.ProcAttr{
		Env:   cmd.environ(),
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	}
	pid, err := forkExec(path, cmd.Args, attr)
	if err != nil {
		return nil, startError(path, err)
	}
	g := &Guard{
		pid:      pid,
		orders:   orders{Limits: first},
		changed:  make(chan struct{}, 1),
		reaped:   make(chan struct{}),
		finished: make(chan struct{}),
	}
	go g.reap()
	go g.run(cmd.Notify)
	return g, nil
}

// Extend gives the command until newer limits, after a heartbeat.
func (g *Guard) Extend(l Limits) {
	if err := l.check(); err != nil {
		panic("guard: " + err.Error())
	}
	g.mu.Lock()
	g.orders.Limits = l
	g.mu.Unlock()
	g.wake()
}

// Stop makes the command end: SIGTERM to its group now, SIGKILL at kill or at Limits.Kill,
// whichever comes first.
func (g *Guard) Stop(kill Instant) {
	g.mu.Lock()
	g.orders.ask(kill)
	g.mu.Unlock()
	g.wake()
}

func (g *Guard) wake() {
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// Signal passes a signal on to the command's process group.
func (g *Guard) Signal(sig os.Signal) {
	if s, ok := sig.(syscall.Signal); ok {
		g.signal(s)
	}
}

func (g *Guard) signal(sig syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.done {
		_ = syscall.Kill(-g.pid, sig)
	}
}

// Wait returns when the command and its process group have ended. It may be called more than once.
func (g *Guard) Wait() Exit {
	<-g.finished
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.exit
}

// reap waits for the command.
func (g *Guard) reap() {
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(g.pid, &status, 0, nil); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	g.mu.Lock()
	if status.Signaled() {
		g.exit.Code, g.exit.Signal = -1, status.Signal()
	} else {
		g.exit.Code = status.ExitStatus()
	}
	g.mu.Unlock()
	close(g.reaped)
}

// poll is how often the clock and the group are checked: Go's timers do not count suspends
// everywhere, and no event reports the end of a group's last member.
const poll = 50 * time.Millisecond

func (g *Guard) run(notify func(Notice)) {
	defer close(g.finished)
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	terminated, reaped := false, g.reaped
	for {
		select {
		case <-g.changed:
		case <-ticker.C:
		case <-reaped:
			reaped = nil
		}
		if reaped == nil && errors.Is(unix.Kill(-g.pid, 0), unix.ESRCH) {
			g.mu.Lock()
			g.done = true
			g.mu.Unlock()
			return
		}
		now := Now()
		g.mu.Lock()
		o := g.orders
		term, kill := o.term(now), now >= o.kill()
		if term || kill {
			g.exit.Reason = o.reason(Ended)
			g.exit.Killed = g.exit.Killed || kill
		}
		g.mu.Unlock()
		if term && !terminated {
			terminated = true
			g.signal(syscall.SIGTERM)
			g.signal(syscall.SIGCONT)
			if notify != nil {
				go notify(Notice{Kind: Terminating})
			}
		}
		if kill {
			g.signal(syscall.SIGKILL)
		}
	}
}

// Supported returns nil: this process signals the command's process group, and needs nothing for it.
func Supported() error { return nil }

// Signals returns the signals that a caller may catch to pass them on with [Guard.Signal].
func Signals() []os.Signal {
	return []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM, syscall.SIGVTALRM, syscall.SIGWINCH, syscall.SIGIO, syscall.SIGCONT,
	}
}
