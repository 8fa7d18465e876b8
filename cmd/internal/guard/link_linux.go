// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"io"
	"syscall"
	"time"
)

// The caller's end of the pipes, and what is told to people.

// wake lets the writer look for something to write.
func (g *Guard) wake() {
	select {
	case g.poke <- struct{}{}:
	default:
	}
}

// write sends orders and signals to the guardian. It is the only one that a full pipe holds up.
func (g *Guard) write() {
	for range g.poke {
		for {
			g.mu.Lock()
			if g.over {
				g.mu.Unlock()
				return
			}
			var b []byte
			switch {
			case g.newOrders:
				g.newOrders = false
				b = frame{kind: frameOrders, orders: g.orders}.append(nil)
			case len(g.queue) > 0:
				b = g.queue[0].append(nil)
				g.queue = g.queue[1:]
			}
			g.mu.Unlock()
			if b == nil {
				break
			}
			if _, err := g.toIt.Write(b); err != nil {
				return // the guardian is gone; its end is noticed elsewhere
			}
		}
	}
}

// listen takes in what the guardian tells, until its end.
func (g *Guard) listen() {
	var b [frameSize]byte
	for {
		if _, err := io.ReadFull(g.fromIt, b[:]); err != nil {
			return
		}
		f, err := parseFrame(b[:])
		if err != nil {
			return
		}
		g.hear(f)
	}
}

func (g *Guard) hear(f frame) {
	switch f.kind {
	case frameStarting:
		g.mu.Lock()
		g.starting = true
		g.mu.Unlock()
	case frameStarted:
		g.mu.Lock()
		g.pid = int(f.arg)
		g.mu.Unlock()
		g.started <- nil
	case frameNotStarted:
		g.setDone(f)
		g.started <- startError(g.path, syscall.Errno(f.arg))
	case frameUncontained:
		g.setDone(f)
		g.started <- containError(syscall.Errno(f.arg))
	case frameRefused:
		g.setDone(f)
		g.started <- ErrTooLate
	case frameStopped:
		g.suspend(syscall.Signal(f.arg))
	case frameTerminating:
		g.mu.Lock()
		g.terminated = true
		if !g.over {
			g.alarm.set(g.nextAlarm())
		}
		g.mu.Unlock()
		g.notice(Notice{Kind: Terminating})
	case frameEnded:
		g.mu.Lock()
		g.ended, g.status = true, syscall.WaitStatus(f.arg)
		g.mu.Unlock()
		if g.tty != nil {
			// What it left behind is waited for. Its group may be empty, and Ctrl-C
			// would reach nobody if it kept the terminal.
			g.tty.reclaim()
		}
		g.notice(Notice{Kind: Awaiting}) // filled in and delayed by notify
	case frameDone:
		g.setDone(f)
	}
}

func (g *Guard) setDone(f frame) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.done = true
	if f.kind == frameDone {
		if reason := Reason(f.arg &^ doneKilled); reason != Ended {
			g.reason = reason
		}
		g.killed = g.killed || f.arg&doneKilled != 0
	}
}

// notice queues a notice. The returned channel is closed when it was told.
func (g *Guard) notice(n Notice) (told <-chan struct{}) {
	q := queued{n, make(chan struct{})}
	select {
	case g.notices <- q:
	default: // a slow Notify loses notices
		close(q.told)
	}
	return q.told
}

type queued struct {
	Notice
	told chan struct{}
}

const (
	firstAwaiting = time.Second
	nextAwaiting  = 30 * time.Second
)

// notify calls Notify, one notice at a time.
func (g *Guard) notify() {
	notify := g.cmd.Notify
	if notify == nil {
		notify = func(Notice) {}
	}
	tell := func(q queued) {
		notify(q.Notice)
		close(q.told)
	}
	var again <-chan time.Time
	for {
		select {
		case n, ok := <-g.notices:
			switch {
			case !ok:
				return
			case n.Kind == Awaiting:
				again = time.After(firstAwaiting)
			default:
				tell(n)
			}
		case <-again:
			again = time.After(nextAwaiting)
			if left := g.awaited(); len(left) > 0 {
				notify(Notice{Kind: Awaiting, Processes: left, Exit: g.exit()})
			}
		case <-g.gone:
			again = nil
			n, ok := <-g.notices
			if !ok {
				return
			}
			if n.Kind != Awaiting {
				tell(n)
			}
		}
	}
}

// awaited returns what lives below the guardian.
func (g *Guard) awaited() []Process {
	var left []Process
	g.withGuardian(func(pid int) { left = g.proc.alive(pid) })
	return left
}
