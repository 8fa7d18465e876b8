// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"time"

	"golang.org/x/sys/unix"
)

// How a guardian's signals reach the family. In a pid namespace of its own the kernel
// knows the family: kill(-1) reaches all of it at once, forks under way included, and
// every process group in sight is one of the family's.

// killNamespace signals everything in the pid namespace of this process but itself. Anywhere
// but in a namespace of the guardian's own that is the whole machine: it looks at its number
// each time, whatever it was started with.
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
	if err := g.proc.terminateFamily(unix.Getpid(), g.orders.looksEnd()); err != nil && g.alive {
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
	// What lost its parent is a child of this process at once. Looking at these alone takes
	// microseconds, so that a family cannot fork away from it.
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
	// maxChase is how often the children of this process are looked at and killed before all
	// of /proc is read: a process that does not die yet may hide others behind it.
	maxChase = 20
	// chasePause is how long to wait for a death between two such looks.
	chasePause = 500 * time.Microsecond
)

// awaitChild waits for a change of a child's state, for a while.
func (g *guardian) awaitChild(limit time.Duration) {
	fds := []unix.PollFd{{Fd: int32(g.childEvent), Events: unix.POLLIN}}
	timeout := unix.NsecToTimespec(limit.Nanoseconds())
	_, _ = unix.Ppoll(fds, &timeout, nil) // an interrupted poll is a look too many
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
	if err != nil {
		return false
	}
	for _, p := range table.descendants(unix.Getpid()) {
		if p.pgrp == g.pid {
			return true
		}
	}
	return false
}
