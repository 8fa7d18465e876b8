// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package relay passes connections of any protocol between clients and an engine, and simulates
// faults of networks.
package relay

import (
	"cmp"
	"net"
	"sync"
	"time"
)

// Relay passes bytes between clients and an engine. It knows only bytes, so that a piece of the
// sent bytes counts as a request. Its methods may be called concurrently.
type Relay struct {
	// Addr is where it listens: host and port.
	Addr string

	writes   func() func([]byte) bool
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	target string
	count  int
	trips  int
	delay  time.Duration
	hit    time.Time
	fault  fault
	hold   time.Duration
	next   chan struct{} // closed with the next change
	lost   int
	links  map[*link]struct{}
	hurt   *link // whose request the last fault has hit
	over   bool
}

// fault is what a relay is set to.
type fault int

const (
	pass fault = iota
	losing
	holding // the next write's reply is to be held back
	vanishing
	swallowing // what is left of a reply that is lost
	losingAll  // replies, each with its connection
)

// link is a client's connection and its connection to the store.
type link struct {
	client, store net.Conn
	isWrite       func([]byte) bool
	broken        bool // a piece is missing: it is of no more use
	dark          bool // nothing passes any more
	asked         bool // the last piece was for the engine
}

func (l *link) end() {
	_ = l.client.Close()
	_ = l.store.Close()
}

const (
	// settled is how long the bytes of one request may take to arrive, or of
	// its reply: a request is a few hundred bytes on loopback.
	settled = 150 * time.Millisecond
	// swallow is the time after which a connection with a lost reply ends.
	swallow = 20 * time.Millisecond
	chunk   = 64 << 10
	// dialBound bounds a dial to a store on this machine.
	dialBound = time.Second
)

// New returns a relay to a host and port. All that is sent counts as a write. It must be closed.
func New(target string) (*Relay, error) {
	return NewWrites(target, func() func([]byte) bool { return func([]byte) bool { return true } })
}

// NewWrites is New with a function for each connection, which gets all pieces that are
// sent there, in their order, and says which are writes. It must not keep them.
func NewWrites(target string, writes func() func([]byte) bool) (*Relay, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &Relay{
		Addr: listener.Addr().String(), target: target, writes: writes, listener: listener, next: make(chan struct{}),
		links: map[*link]struct{}{},
	}
	g.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			g.running.Go(func() { g.serve(conn) })
		}
	})
	return g, nil
}

// Address is the host and port of the relay.
func (g *Relay) Address() string { return g.Addr }

// change releases delayed pieces, and ends links that have lost something, unless
// everything is to be lost. The caller holds mu.
func (g *Relay) change() {
	close(g.next)
	g.next = make(chan struct{})
	for l := range g.links {
		if l.broken && g.fault != vanishing {
			l.end()
		}
	}
}

func (g *Relay) set(f fault, hold time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fault, g.hold, g.hit = f, hold, time.Time{}
	g.change()
}

// LoseReply lets the next write through, and loses its reply: the connection ends in its place.
func (g *Relay) LoseReply() { g.set(losing, 0) }

// BlackHole lets nothing through any more, in either direction, and ends no connection.
func (g *Relay) BlackHole() { g.set(vanishing, 0) }

// SlowThenBlackHole passes the next write, holds its reply back for d, and passes nothing else.
func (g *Relay) SlowThenBlackHole(d time.Duration) { g.set(holding, d) }

// Slow delays each request by d. At the next change delayed requests go on at once.
func (g *Relay) Slow(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.delay = d
	g.change()
}

// LoseReplies loses all replies: the connection ends in the place of each.
func (g *Relay) LoseReplies() { g.set(losingAll, 0) }

// Heal ends all faults and delays, and the connections that have lost something.
func (g *Relay) Heal() {
	g.Slow(0)
	g.set(pass, 0)
}

// Hold passes nothing on until resume is called, like an engine whose process is stopped. Then the
// engine gets what clients have sent meanwhile, also clients that are gone.
func (g *Relay) Hold() (resume func()) {
	g.Slow(time.Hour)
	return func() { g.Slow(0) }
}

// Forget leaves all connections open, but passes nothing on them any more, like a NAT that
// has dropped them. New ones work.
func (g *Relay) Forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for l := range g.links {
		l.dark = true
	}
}

// Cut closes all connections.
func (g *Relay) Cut() { g.Aim("") }

// Aim closes all connections, and takes new ones to another host and port, or to the same if it is empty.
func (g *Relay) Aim(target string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.target = cmp.Or(target, g.target)
	for l := range g.links {
		l.end()
	}
}

// Connections returns how many connections of clients there are.
func (g *Relay) Connections() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.links)
}

// Trips returns how many round trips were begun since the last call: how often a connection has
// carried something to the engine, where it had carried an answer before.
func (g *Relay) Trips() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.trips
	g.trips = 0
	return n
}

// Count is how many pieces were sent to the engine.
func (g *Relay) Count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count
}

// Struck is when the last of the faults of one write hit it, and zero before.
func (g *Relay) Struck() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hit
}

// Lost is how many pieces have vanished.
func (g *Relay) Lost() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lost
}

// Close ends the relay, and all connections.
func (g *Relay) Close() {
	_ = g.listener.Close() // nobody is there any more
	g.mu.Lock()
	g.over = true
	g.change() // nothing that is late is waited for
	for l := range g.links {
		l.end()
	}
	g.mu.Unlock()
	g.running.Wait()
}

func (g *Relay) serve(client net.Conn) {
	g.mu.Lock()
	target := g.target
	g.mu.Unlock()
	store, err := net.DialTimeout("tcp", target, dialBound)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{client: client, store: store, isWrite: g.writes()}
	defer l.end()
	g.mu.Lock()
	over := g.over || g.target != target
	if !over {
		g.links[l] = struct{}{}
	}
	g.mu.Unlock()
	if over {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { g.pump(l, client, store, false) })
	both.Go(func() { g.pump(l, store, client, true) })
	both.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.links, l)
}

// piece is some bytes on their way.
type piece struct {
	bytes   []byte
	due     time.Time
	changed <-chan struct{} // closed with the next change: then it is late enough
}

// pump copies bytes in one direction, each piece with its delay. When it ends, so
// does the other direction.
func (g *Relay) pump(l *link, from, to net.Conn, replies bool) {
	defer l.end()
	pieces := make(chan piece, 1024)
	var out sync.WaitGroup
	out.Go(func() {
		failed := false
		for p := range pieces {
			if late := time.Until(p.due); late > 0 {
				select {
				case <-time.After(late):
				case <-p.changed:
					if g.vanishes(l) {
						continue
					}
				}
			}
			if _, err := to.Write(p.bytes); err != nil && !failed {
				failed = true
				_ = from.Close()
			}
		}
	})
	for {
		buffer := make([]byte, chunk)
		n, err := from.Read(buffer)
		if n > 0 {
			if p, ok := g.judge(l, buffer[:n], replies); ok {
				pieces <- p
			}
		}
		if err != nil {
			break
		}
	}
	close(pieces)
	out.Wait()
}

// vanishes says that a piece that was on its way when something changed is lost.
func (g *Relay) vanishes(l *link) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fault != vanishing {
		return false
	}
	g.lose(l)
	return true
}

// lose notes that a piece of a link is missing. The caller holds mu.
func (g *Relay) lose(l *link) {
	g.lost++
	l.broken = true
}

// judge says when a piece that came now may go on, and whether it may.
func (g *Relay) judge(l *link, bytes []byte, reply bool) (piece, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := piece{bytes: bytes, due: time.Now().Add(g.delay / 2), changed: g.next}
	write := !reply && l.isWrite(bytes)
	since := time.Since(g.hit)
	if !reply && !l.asked {
		g.trips++
	}
	l.asked = !reply
	switch {
	case l.dark:
		return p, false
	case g.fault == vanishing, g.fault == holding && !g.hit.IsZero() && since > settled:
		g.lose(l)
		return p, false
	case g.fault == losingAll && reply:
		g.lose(l)
		l.end()
		return p, false
	case !reply:
		if write && (g.fault == losing || g.fault == holding) && g.hit.IsZero() {
			g.hit, g.hurt = time.Now(), l
		}
		g.count++
	case g.fault == losing && !g.hit.IsZero() && l == g.hurt:
		g.fault = swallowing
		g.lose(l)
		time.AfterFunc(swallow, l.end)
		return p, false
	case g.fault == swallowing && since < swallow && l == g.hurt:
		g.lose(l)
		return p, false
	case g.fault == swallowing && since >= swallow:
		g.fault = pass
	case g.fault == holding && !g.hit.IsZero():
		p.due = time.Now().Add(g.hold)
	}
	return p, true
}
