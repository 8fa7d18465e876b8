// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/tenurelock/tenure/cmd/internal/flags"
)

// manager tells the service manager of this process what it waits for or holds, and that it
// lives. Messages go out from a goroutine of their own, since a manager may be slow. Its methods
// may be called on nil, which tells nobody.
type manager struct {
	poke chan struct{} // has room for one: there is something to tell
	end  chan struct{}
	done sync.WaitGroup

	mu     sync.Mutex
	ready  bool   // with READY=1
	status string // what was not told yet
}

// newManager returns nil without a manager that wants to know. Until close is called it says
// that this process lives, if the manager wants that, while idle returns true: a command
// that runs says so for itself.
func newManager(idle func() bool) *manager {
	if !flags.Managed() {
		return nil
	}
	m := &manager{poke: make(chan struct{}, 1), end: make(chan struct{})}
	m.done.Go(func() { m.tell(idle) })
	return m
}

// watchdogPeriod is half of the time within which the manager wants a sign of life, 0 if it
// wants none of this process.
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

func (m *manager) tell(idle func() bool) {
	var alive <-chan time.Time
	if period := watchdogPeriod(); period > 0 {
		ticker := time.NewTicker(period)
		defer ticker.Stop()
		alive = ticker.C
	}
	for {
		text := ""
		select {
		case <-m.poke:
			m.mu.Lock()
			text = "STATUS=" + m.status
			if m.ready {
				text = "READY=1\n" + text
			}
			m.mu.Unlock()
		case <-alive:
			if idle() {
				text = "WATCHDOG=1"
			}
		case <-m.end:
			return
		}
		if text != "" {
			_ = flags.Notify(text) // no reason to do anything else than without a manager
		}
	}
}

// start says that the service has started: what follows may take as long as it does.
func (m *manager) start() {
	if m != nil {
		m.mu.Lock()
		m.ready = true
		m.mu.Unlock()
	}
}

// say says what this process is at.
func (m *manager) say(format string, args ...any) {
	if m == nil {
		return
	}
	m.mu.Lock()
	m.status = fmt.Sprintf(format, args...)
	m.mu.Unlock()
	select {
	case m.poke <- struct{}{}:
	default:
	}
}

func (m *manager) close() {
	if m != nil {
		close(m.end)
		m.done.Wait()
	}
}
