// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gate

import (
	"context"
	"slices"
	"time"

	"github.com/tenurelock/tenure/test/bed/wait"
)

// Strike is one fault that calls of a kind are to have, in the place of what is drawn.
type Strike struct {
	Fault Fault
	// Of says of a call whether it is to have the fault. Nil: all are. It is asked about one
	// call after the other.
	Of func(Call) bool
	// Times is how many calls have it. Zero: all.
	Times int

	left int
	late time.Duration
	then Fault // what all others have after this one; only of those of a [Gate]
	gate bool  // it is one of a [Gate], which [HTTP.Heal] ends
}

// Strike has calls have a fault, from now on.
func (g *HTTP) Strike(s Strike) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.add(s)
}

func (g *HTTP) add(s Strike) {
	s.left = s.Times
	g.strikes = append(g.strikes, &s)
}

// struck returns the strike that a call is to have, or nil. The caller holds mu.
func (g *HTTP) struck(c Call) *Strike {
	for _, s := range g.strikes {
		if s.Of != nil && !s.Of(c) || s.Times > 0 && s.left == 0 {
			continue
		}
		s.left--
		if s.gate && s.Fault != Hole {
			g.hit = time.Now()
		}
		if s.then != None {
			g.add(Strike{Fault: s.then, gate: true})
		}
		return s
	}
	return nil
}

// set puts a fault of a [Gate] in the place of those that it has.
func (g *HTTP) set(all ...Strike) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hit = time.Time{}
	g.strikes = slices.DeleteFunc(g.strikes, func(s *Strike) bool { return s.gate })
	for _, s := range all {
		s.gate = true
		g.add(s)
	}
}

func isWrite(c Call) bool { return c.write }

// LoseReply loses the reply to the next write: see [Gate].
func (g *HTTP) LoseReply() { g.set(Strike{Fault: LoseAnswer, Of: isWrite, Times: 1}) }

// BlackHole lets nothing through any more.
func (g *HTTP) BlackHole() { g.set(Strike{Fault: Hole}) }

// SlowThenBlackHole holds back the reply to the next write.
func (g *HTTP) SlowThenBlackHole(d time.Duration) {
	g.set(Strike{Fault: DelayAnswer, Of: isWrite, Times: 1, late: d, then: Hole})
}

// Slow has each request take d longer.
func (g *HTTP) Slow(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.delay = d
}

// Heal ends the faults of a [Gate], and all connections.
func (g *HTTP) Heal() {
	g.set()
	g.server.CloseClientConnections()
}

// Struck is when the last fault of a [Gate] hit a request.
func (g *HTTP) Struck() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hit
}

// Change has other weather from now on.
func (g *HTTP) Change(w Weather) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.weather = w
}

// Attack sends one of the calls of a kind that it has seen again, each period, until ctx ends: of
// the last few of them one after the other, to a server that is drawn. Whatever it gets: others
// see what it does. It returns how many it has sent.
func (g *HTTP) Attack(ctx context.Context, period time.Duration, few int, of func(Call) bool) (sent int) {
	for n := 0; ctx.Err() == nil; n++ {
		g.mu.Lock()
		calls := slices.DeleteFunc(slices.Clone(g.calls), func(c Call) bool { return !of(c) })
		server := g.random.IntN(len(g.servers))
		g.mu.Unlock()
		if calls = calls[max(0, len(calls)-few):]; len(calls) > 0 {
			bound, cancel := context.WithTimeout(ctx, resendBound)
			g.do(bound, calls[n%len(calls)], server)
			cancel()
			sent++
		}
		wait.Rest(ctx, period)
	}
	return sent
}
