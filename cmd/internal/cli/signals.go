// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

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

// catchSignals takes all signals that mean something to the command or to the
// waiting for its lock. Those that are ignored stay so (nohup).
func catchSignals() *signals {
	s := &signals{c: make(chan os.Signal, 64)}
	for _, sig := range guard.Signals() {
		if !signal.Ignored(sig) {
			signal.Notify(s.c, sig)
		}
	}
	return s
}

// surviveBrokenPipe has writes to a closed standard error fail instead of
// ending this process, and with it the command: that nobody reads the messages
// any more is no reason for it. Caught, not ignored, since what is ignored
// stays so in the command.
func surviveBrokenPipe() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// toEnd is to for what ends at a signal: those that end no program are left out.
func (s *signals) toEnd(f func(syscall.Signal)) (stop func()) {
	return s.to(func(sig syscall.Signal) {
		if !harmless(sig) {
			f(sig)
		}
	})
}

// to hands the signals that come to f, until stop is called.
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
// cause. After stop, signals wait for whoever takes them next. Stop returns the
// signal that came, or 0: it may have come when all was done, and nobody else hears
// of it.
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
