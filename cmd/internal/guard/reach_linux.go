// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
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
	if err := terminateFamily(unix.Getpid(), g.orders.looksEnd()); err != nil && g.alive {
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
	_ = killFamily(unix.Getpid())
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
	table, err := readProcesses()
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
