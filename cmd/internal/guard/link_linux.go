// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"
)

// The caller and its guardian speak in frames of one size through two pipes. A frame
// is shorter than PIPE_BUF, so that the kernel never splits a write, but a reader may see
// several, or with an unlucky buffer a part. Both ends are the same binary: no versions.
const frameSize = 40

// frameKind is the kind of a frame.
type frameKind uint8

const (
	// From the caller.
	frameOrders   frameKind = iota + 1 // limits, stop
	frameSignal                        // arg: a signal for the command's group
	frameContinue                      // arg: 1 to hand the terminal to the command's group first

	// From the guardian.
	frameStarting    // from here on the command may have begun
	frameStarted     // arg: the command's pid as the guardian sees it
	frameNotStarted  // arg: errno; the guardian ends
	frameUncontained // arg: errno of mounting /proc; the guardian ends
	frameRefused     // the deadline had passed; the guardian ends
	frameStopped     // arg: the signal that stopped the command
	frameTerminating // SIGTERM was sent to everything
	frameEnded       // arg: the command's wait status
	frameDone        // no descendant is left; arg: the reason, doneKilled
)

// doneKilled is added to the reason in frameDone when SIGKILL was used.
const doneKilled = 1 << 8

const frameMagic = 0x7e

type frame struct {
	kind   frameKind
	arg    int32
	orders orders
}

func (f frame) append(b []byte) []byte {
	b = append(b, frameMagic, byte(f.kind), 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(f.arg))
	for _, t := range [...]Instant{f.orders.Term, f.orders.Kill, f.orders.Expiry, f.orders.stop} {
		b = binary.LittleEndian.AppendUint64(b, uint64(t))
	}
	return b
}

var errFrame = errors.New("not a frame")

func parseFrame(b []byte) (frame, error) {
	if len(b) != frameSize || b[0] != frameMagic {
		return frame{}, fmt.Errorf("%w: % x", errFrame, b[:min(len(b), 8)])
	}
	at := func(i int) Instant { return Instant(binary.LittleEndian.Uint64(b[8+8*i:])) }
	return frame{
		kind: frameKind(b[1]),
		arg:  int32(binary.LittleEndian.Uint32(b[4:])),
		orders: orders{
			Limits: Limits{Term: at(0), Kill: at(1), Expiry: at(2)},
			stop:   at(3),
		},
	}, nil
}

// The caller's end of the pipes, and notices to people.

// wake makes the writer check for something to write.
func (g *Guard) wake() {
	select {
	case g.poke <- struct{}{}:
	default:
	}
}

// write sends orders and signals to the guardian. Only this goroutine waits for a full pipe.
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

// listen reads what the guardian reports, until its end.
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
	g.note(f)
	switch f.kind {
	case frameStarted:
		g.started <- nil
	case frameNotStarted:
		g.started <- startError(g.path, syscall.Errno(f.arg))
	case frameUncontained:
		g.started <- containError(syscall.Errno(f.arg))
	case frameRefused:
		g.started <- ErrTooLate
	case frameStopped:
		g.suspend(syscall.Signal(f.arg))
	case frameTerminating:
		g.notice(Notice{Kind: Terminating})
	case frameEnded:
		if g.tty != nil {
			// Processes that it left behind still run. Its group may be empty, and Ctrl-C
			// would reach no process if it kept the terminal.
			g.tty.reclaim()
		}
		g.notice(Notice{Kind: Awaiting}) // filled in and delayed by notify
	}
}

// note keeps what a frame says of the state of the guardian and of the command.
func (g *Guard) note(f frame) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch f.kind {
	case frameStarting:
		g.starting = true
	case frameStarted:
		g.pid = int(f.arg)
	case frameTerminating:
		g.terminated = true
		if !g.over {
			g.alarm.set(g.nextAlarm())
		}
	case frameEnded:
		g.ended, g.status = true, syscall.WaitStatus(f.arg)
	case frameNotStarted, frameUncontained, frameRefused:
		g.done = true
	case frameDone:
		g.done = true
		if reason := Reason(f.arg &^ doneKilled); reason != Ended {
			g.reason = reason
		}
		g.killed = g.killed || f.arg&doneKilled != 0
	}
}

// notice queues a notice. The returned channel is closed after it was reported.
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
	gone := g.gone // nil once it was closed: nothing is awaited any more
	for {
		select {
		case n, ok := <-g.notices:
			switch {
			case !ok:
				return
			case n.Kind != Awaiting:
				tell(n)
			case gone != nil:
				again = time.After(firstAwaiting)
			}
		case <-again:
			again = time.After(nextAwaiting)
			var left []Process // what lives below the guardian
			if g.withGuardian(func(pid int) { left = g.proc.alive(pid) }); len(left) > 0 {
				notify(Notice{Kind: Awaiting, Processes: left, Exit: g.exit()})
			}
		case <-gone:
			again, gone = nil, nil
		}
	}
}
