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
func (g *HTTP) Change(w Weather) error {
	if err := w.check(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.weather = w
	return nil
}

// captured returns the calls that were seen last and are of a kind, the oldest first.
func (g *HTTP) captured(of func(Call) bool) []Call {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(g.calls), func(c Call) bool { return !of(c) })
}

// resend sends a call again, as an attacker does that has seen it, to a server that is drawn.
// Whatever it gets: others see what it does.
func (g *HTTP) resend(ctx context.Context, c Call) {
	ctx, cancel := context.WithTimeout(ctx, resendBound)
	defer cancel()
	g.mu.Lock()
	server := g.random.IntN(len(g.servers))
	g.mu.Unlock()
	g.do(ctx, c, server)
}

// Attack sends one of the captured calls of a kind again, each period, until ctx ends: of
// the last few of them one after the other. It returns how many it has sent.
func (g *HTTP) Attack(ctx context.Context, period time.Duration, few int, of func(Call) bool) (sent int) {
	for n := 0; ctx.Err() == nil; n++ {
		if calls := g.captured(of); len(calls) > 0 {
			last := calls[max(0, len(calls)-few):]
			g.resend(ctx, last[n%len(last)])
			sent++
		}
		wait.Rest(ctx, period)
	}
	return sent
}
