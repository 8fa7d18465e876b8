// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/guard"
)

// signaled is why a command ends that a signal reached while nothing ran that
// it could be passed on to.
type signaled struct{ sig syscall.Signal }

func (s signaled) Error() string { return fmt.Sprintf("ended by signal %d (%v)", int(s.sig), s.sig) }

// ExitCode is the status that a shell shows for it.
func (s signaled) ExitCode() int { return 128 + int(s.sig) }

// signals takes the signals to this process from its start to its end, so that
// none is lost between waiting for a lock and running a command.
type signals struct {
	c chan os.Signal
}

// catchSignals takes all signals that matter to the command or to the wait for its
// lock. Ignored signals stay ignored (nohup).
func catchSignals() *signals {
	s := &signals{c: make(chan os.Signal, 64)}
	for _, sig := range guard.Signals() {
		if !signal.Ignored(sig) {
			signal.Notify(s.c, sig)
		}
	}
	return s
}

// surviveBrokenPipe makes writes to a closed standard error fail instead of ending
// this process, and with it the command, only because its messages have no reader any
// more. The signal is caught, not ignored, because an ignored signal stays ignored in
// the command.
func surviveBrokenPipe() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// toEnd is to without the signals that do not end a program.
func (s *signals) toEnd(f func(syscall.Signal)) (stop func()) {
	return s.to(func(sig syscall.Signal) {
		if !harmless(sig) {
			f(sig)
		}
	})
}

// to passes signals to f until stop is called.
func (s *signals) to(f func(syscall.Signal)) (stop func()) {
	end := make(chan struct{})
	var handing sync.WaitGroup
	handing.Go(func() {
		for {
			select {
			case sig := <-s.c:
				if sig, ok := sig.(syscall.Signal); ok {
					f(sig)
				}
			case <-end:
				return
			}
		}
	})
	return func() { close(end); handing.Wait() }
}

// cancel returns a context that the first signal that ends a program ends, with a signaled for its
// cause. After stop, signals wait for the next caller that takes them. Stop returns the
// signal that came, or 0: it may have come when all was done, and is not reported
// anywhere else.
func (s *signals) cancel(parent context.Context) (ctx context.Context, stop func() syscall.Signal) {
	ctx, cancel := context.WithCancelCause(parent)
	var first syscall.Signal
	unhand := s.toEnd(func(sig syscall.Signal) {
		if first == 0 {
			first = sig
		}
		cancel(signaled{sig})
	})
	return ctx, sync.OnceValue(func() syscall.Signal {
		unhand()
		cancel(nil)
		return first
	})
}

// sleep waits for d, and returns earlier with the cause if ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// manager reports to the service manager what this process waits for or holds, and that it is
// alive. A separate goroutine sends the messages, because a manager may be slow. Its methods
// may be called on nil, which sends nothing.
type manager struct {
	states chan string // has room for the last one
	ready  atomic.Bool // with READY=1
	end    func()
}

// newManager returns nil without a manager that wants to know. Until close is called it says
// that this process lives, if the manager wants that, while idle returns true: a command
// that runs says so for itself.
func newManager(idle func() bool) *manager {
	if !flags.Managed() {
		return nil
	}
	m := &manager{states: make(chan string, 1)}
	m.end = beside(context.Background(), func(ctx context.Context) { m.tell(ctx, idle) })
	return m
}

// watchdogPeriod is half of the time within which the manager expects a sign of life, 0 if it
// expects none from this process.
func watchdogPeriod() time.Duration {
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || usec <= 0 || usec > int64(time.Hour/time.Microsecond)*24 {
		return 0
	}
	return time.Duration(usec) * time.Microsecond / 2
}

func (m *manager) tell(ctx context.Context, idle func() bool) {
	var alive <-chan time.Time
	if period := watchdogPeriod(); period > 0 {
		ticker := time.NewTicker(period)
		defer ticker.Stop()
		alive = ticker.C
	}
	for {
		select {
		case state := <-m.states:
			_ = flags.Notify(state) // on an error, continue as without a manager
		case <-alive:
			if idle() {
				_ = flags.Notify("WATCHDOG=1")
			}
		case <-ctx.Done():
			return
		}
	}
}

// start says that the service has started: what follows may take as long as it does.
func (m *manager) start() {
	if m != nil {
		m.ready.Store(true)
	}
}

// say says what this process is at.
func (m *manager) say(format string, args ...any) {
	if m == nil {
		return
	}
	state := "STATUS=" + fmt.Sprintf(format, args...)
	if m.ready.Load() {
		state = "READY=1\n" + state
	}
	for {
		select {
		case m.states <- state:
			return
		case <-m.states: // a state that was not sent yet is out of date
		}
	}
}

func (m *manager) close() {
	if m != nil {
		m.end()
	}
}
