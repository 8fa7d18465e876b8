// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import "slices"

// client is a program that holds locks without the store: replicas of a lock service carry
// out what it sends. It has a clock of its own, stands still, crashes and starts again as
// processes do, and its clock counts suspends: see [host].
type client struct {
	*host
	visits []*visit // at most one for each lock
	count  int
	at     int // the replica that it calls first
}

func newClient(w *World, name string) *client {
	c := &client{host: w.newHost(name), at: w.src.Intn(w.cfg.Replicas)}
	c.host.client = c
	return c
}

// come has the client acquire a lock now and then, if it is not about that already.
func (c *client) come(l *lock) {
	busy := slices.ContainsFunc(c.visits, func(v *visit) bool { return v.l == l })
	if c.up && l.now >= c.paused && !busy {
		c.visit(l)
	}
	l.after(l.t.Lease/16+l.upTo(l.t.Lease/2), func() { c.come(l) })
}

// looks has each visit look at the clock, which was set. c may be nil.
func (c *client) looks() {
	if c == nil {
		return
	}
	for _, v := range slices.Clone(c.visits) {
		v.look()
	}
}

// dies ends all visits with the program. c may be nil.
func (c *client) dies() {
	if c == nil {
		return
	}
	for _, v := range slices.Clone(c.visits) {
		v.over("crashed")
	}
}

// heal is for a client what World.heal is for a process: one that has a lock, or a grant,
// crashes, and those that wait go on.
func (c *client) heal() {
	crashed := !c.up
	c.paused = min(c.paused, c.w.now)
	for _, v := range c.visits {
		crashed = crashed || v.stage > visitCalls
	}
	if crashed {
		if c.up {
			c.crash()
		}
		c.restart()
	}
	c.wake()
}

// leave forgets a visit that is over.
func (c *client) leave(v *visit) {
	c.visits = slices.DeleteFunc(c.visits, func(other *visit) bool { return other == v })
}

// owners is in how many names locks may be held, and someOwner returns one of them.
func (l *lock) owners() int { return len(l.procs) + len(l.clients) }

func (l *lock) someOwner(n int) string {
	if n < len(l.procs) {
		return l.procs[n].name
	}
	return l.clients[n-len(l.procs)].name
}
