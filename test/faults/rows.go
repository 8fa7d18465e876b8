// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/test/harness/gate"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/page"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// row is a fault, injected into each client. docs/evidence/faults.md explains under its title how
// the fault is made, and what a pass is.
type row struct {
	named
	try   tried
	lease time.Duration // zero: the column's
	alone bool          // columns are looked at one after the other
}

// tried runs a row. It is for [must.Try].
type tried = func(context.Context, *fixture) cell

// Rows that more than the table below speaks of: that need something built, or that not every
// library can be tried in.
const (
	suspendRow   = "suspend"
	childRow     = "child"
	manyRow      = "many"
	endAtWorkRow = "end-at-work"
)

// rows are the faults, in the order of the table.
var rows = []row{
	{named: named{"lost-acquire", "Reply lost on acquire"}, try: lostOnAcquire},
	{
		named: named{"lost-heartbeat", "Reply lost on a heartbeat"},
		try:   keptUnder(func(ctx context.Context, p *pair) { p.strike(ctx, gate.Gate.LoseReply) }),
	},
	{
		named: named{"lost-cut", "Reply lost on a heartbeat, then cut off"},
		try: cutOff(2, manner{}, "", func(ctx context.Context, p *pair, _ int) {
			p.strike(ctx, gate.Gate.LoseReply)
			p.holder.gate.BlackHole()
		}),
	},
	{
		named: named{"slow-reply", "Slow reply just inside the lease"},
		try: cutOff(3, manner{unbounded: true}, "without a time-out for requests, as in its example",
			func(ctx context.Context, p *pair, i int) {
				p.strike(ctx, func(g gate.Gate) { g.SlowThenBlackHole(time.Duration(i+1) * 3 * p.lease / 10) })
			}),
	},
	{
		named: named{"black-hole", "Black-holed store"},
		try: cutOff(4, manner{releasing: true}, "with ReleaseOnCancel",
			func(_ context.Context, p *pair, _ int) { p.holder.gate.BlackHole() }),
	},
	{named: named{"stopped", "Holder stopped and continued"}, try: stopped(6, false)},
	{named: named{suspendRow, "Machine suspended and resumed"}, try: stopped(3, true)},
	{named: named{"close-waiting", "Close while waiting"}, try: closeWaiting},
	{named: named{manyRow, "1,000 locks at 10 ms"}, try: holdMany, lease: 5 * time.Second, alone: true},
	{named: named{"dead-try", "Dead holder, caller that does not wait"}, try: tryDead},
	{named: named{endAtWorkRow, "Release while work still runs"}, try: endAtWork},
	{named: named{childRow, "Command under a lock that is lost"}, try: childAfterLoss},
	{named: named{"tokens", "Token after release and re-creation"}, try: tokens},
}

// lostOnAcquire loses the reply to the write that takes a free lock.
func lostOnAcquire(ctx context.Context, s *fixture) cell {
	figures := s.runs(ctx, 3, func(ctx context.Context, _ int) float64 {
		m := s.member(ctx, manner{})
		defer m.Kill()
		// The first acquire of a process makes connections. A heartbeat of that lock must not be
		// what the fault hits.
		first := s.lock(ctx)
		m.Acquire(ctx, first)
		m.Release(ctx, first)
		m.gate.LoseReply()
		a := m.Acquire(ctx, s.lock(ctx))
		if m.gate.Struck().IsZero() {
			must.Do(errors.New("the fault hit nothing"))
		}
		return milliseconds(a.GotNs - a.SentNs)
	})
	if slices.Max(figures) >= milliseconds(s.lease.Nanoseconds()) {
		return judged(false, figures, "got it after %s: it waited until its own record had expired", span(figures))
	}
	return judged(true, figures, "got it after %s", span(figures))
}

// cutOff is a row of a fault that cuts the holder off: it must know before another has the
// lock. A variant of client-go runs as well: the verdict is on its defaults.
func cutOff(n int, variant manner, said string, cut func(context.Context, *pair, int)) tried {
	run := func(ctx context.Context, p *pair, i int) float64 {
		cut(ctx, p, i)
		return p.margin(ctx)
	}
	return func(ctx context.Context, s *fixture) cell {
		c := margins(s.pairs(ctx, n, manner{}, run))
		if s.id == kubeID && said != "" {
			c.Seen += "; " + said + ": " + margins(s.pairs(ctx, n, variant, run)).Seen
		}
		return c
	}
}

// keptUnder is a row of a fault under which a holder must keep its lock.
func keptUnder(fault func(context.Context, *pair)) tried {
	return func(ctx context.Context, s *fixture) cell {
		p := s.pair(ctx, manner{})
		fault(ctx, p)
		return p.keeps(ctx)
	}
}

// keeps is the cell of whether the holder still has the lock after two and a half leases, in
// which another one waits for it.
func (p *pair) keeps(ctx context.Context) cell {
	looked := 5 * p.lease / 2
	wait.Unless(looked, p.granted.Done(), ctx.Done())
	must.Do(context.Cause(ctx))
	b := p.belief()
	if p.granted.Answered() {
		gap := p.margin(ctx)
		seen := "nobody held it for " + length(gap)
		if gap < 0 {
			seen = "two holders for " + length(-gap)
		}
		return judged(false, []float64{gap}, "lost a living holder's lock; %s", seen)
	}
	if !b.goesOn() {
		return judged(false, nil, "given up, though nobody else has it")
	}
	return judged(true, nil, "kept for the whole %s", lengthOf(looked))
}

// stopped is a row in which a holder is stopped until another one has had its lock for a
// heartbeat; with suspend it finds its clocks as after a suspend of the machine. It must not
// believe for an instant that it still has the lock.
func stopped(n int, suspend bool) tried {
	run := func(ctx context.Context, p *pair, _ int) float64 {
		// A check must be the first thing that the holder does when it continues.
		must.Have(p.holder.Do(ctx, p.holder.Asking(wire.Hurry, p.name)))
		must.Do(p.holder.Hang())
		at := proc.Monotonic()
		p.passes(ctx)
		must.Do(wait.For(ctx, p.beat()))
		behind := int64(0) // the clock of the log
		if suspend {
			slept := proc.Monotonic() - at
			p.holder.sleep(time.Duration(slept))
			if p.onLibc() {
				behind = slept
			}
		}
		continued := proc.Monotonic()
		p.holder.Continue()
		// A check that passed before the instant does not count.
		return max(0, milliseconds(p.over(ctx, 2*p.lease).until()+behind-continued))
	}
	return func(ctx context.Context, s *fixture) cell {
		return beliefs(s.pairs(ctx, n, manner{suspendable: suspend}, run))
	}
}

// closeWaiting closes a client whose caller waits for a lock that another process
// holds.
func closeWaiting(ctx context.Context, s *fixture) cell {
	// For how long the waiter is ready to wait beyond a lease, where the library takes that
	// for an argument; and how soon Close and the waiter have to return.
	const patience, promptly = 5 * time.Second, 500 * time.Millisecond
	_, waiter, name := s.held(ctx)
	ask := waiter.Asking(wire.Acquire, name)
	ask.WaitMs = peers.Milliseconds(patience)
	waiting := waiter.Begin(ask)
	must.Do(wait.For(ctx, s.beat()))
	sent := proc.Monotonic()
	calls := []*peers.Call{waiter.Begin(waiter.Asking(wire.Close, name)), waiting}
	figures := make([]float64, len(calls))
	must.AtOnce(ctx, len(calls), len(calls), func(ctx context.Context, i int) {
		wait.Unless(10*s.lease, calls[i].Done(), ctx.Done()) // either may return an error, and that is an answer
		figures[i] = milliseconds(proc.Monotonic() - sent)
		must.Do(context.Cause(ctx))
	})
	ok := slices.Max(figures) <= milliseconds(promptly.Nanoseconds())
	return judged(ok, figures, "Close returned after %s, the waiter after %s", length(figures[0]), length(figures[1]))
}

// holdMany holds many locks in one process, with a distant store.
func holdMany(ctx context.Context, s *fixture) cell {
	const (
		locks   = 1000
		atOnce  = 32
		latency = 10 * time.Millisecond
		looked  = 20 * time.Second
	)
	said := ""
	if s.crowded {
		said = "under one session, "
	}
	m := s.member(ctx, manner{session: s.crowded})
	m.gate.Slow(latency)
	names := make([]string, locks)
	for i := range names {
		names[i] = s.named(i)
	}
	must.AtOnce(ctx, locks, atOnce, func(ctx context.Context, i int) { m.Acquire(ctx, names[i]) })
	before, began := m.gate.Count(), time.Now()
	must.Do(wait.For(ctx, looked))
	sent := math.Round(float64(m.gate.Count()-before) / time.Since(began).Seconds())
	var lost atomic.Int64
	must.AtOnce(ctx, locks, atOnce, func(ctx context.Context, i int) {
		if !m.Holds(ctx, names[i]) {
			lost.Add(1)
		}
	})
	n := lost.Load()
	return judged(n == 0, []float64{float64(n), sent}, "%slost %d; %s a second",
		said, n, page.Plural(int(sent), "request"))
}

// tryDead kills a holder, and has another process ask for the lock now and then
// without waiting.
func tryDead(ctx context.Context, s *fixture) cell {
	holder, caller, name := s.held(ctx)
	ask := caller.Asking(wire.Acquire, name)
	ask.TryOnly = true
	killed, began := int64(0), time.Now()
	for asked := 0; ; asked++ {
		if killed == 0 && time.Since(began) > s.lease/2 {
			killed = proc.Monotonic()
			holder.Kill()
		}
		switch a, err := caller.Do(ctx, ask); {
		case err == nil && killed == 0:
			must.Do(errors.New("it got a lock that is held"))
		case err == nil:
			return s.gotAfterDeath(a.GotNs - killed)
		case refusedAs(err, wire.Unsupported):
			return lacking("has no call that returns at once")
		case !refusedAs(err, wire.Held):
			must.Do(err)
		case killed != 0 && proc.Monotonic()-killed > (5*s.lease).Nanoseconds():
			return judged(false, nil, "refused for %s, %d times", lengthOf(5*s.lease), asked)
		}
		must.Do(wait.For(ctx, 100*time.Millisecond))
	}
}

// gotAfterDeath is the cell of how long after a holder's death another one had the lock.
func (s *fixture) gotAfterDeath(ns int64) cell {
	took := milliseconds(ns)
	return judged(ns < (2*s.lease).Nanoseconds(), []float64{took}, "got it %s after the holder's death", length(took))
}

// handsOver closes the client of the holder, and ends its work a while later, as a program does
// at its shutdown. It returns how long after that the other one has the lock.
func (p *pair) handsOver(ctx context.Context, drain time.Duration) (gap float64) {
	o := p.holder.Asking(wire.End, p.name)
	o.DrainMs = drain.Milliseconds()
	p.holder.Begin(o) // what comes of it shows the lock
	granted := p.passes(ctx)
	return apart(p.over(ctx, 3*p.lease).end, granted)
}

// endAtWork closes the client of a holder whose work needs a moment to stop.
func endAtWork(ctx context.Context, s *fixture) cell {
	gap := s.pair(ctx, manner{releasing: true}).handsOver(ctx, 1500*time.Millisecond)
	return judged(gap >= 0, []float64{gap}, "the successor began %s", sinceEnd(gap))
}

// sinceEnd is when the other one had the lock, by how long after the end of the holder's work.
func sinceEnd(gap float64) string {
	if gap < 0 {
		return length(gap) + " before the work's end"
	}
	return length(gap) + " after the work's end"
}

// tokens checks the fencing token over releases, a takeover, and after the record
// was deleted by hand.
func tokens(ctx context.Context, s *fixture) cell {
	one, other := s.member(ctx, manner{releasing: true}), s.member(ctx, manner{releasing: true})
	name := s.lock(ctx)
	var seen []uint64
	grant := func(m *member) {
		if a := m.Acquire(ctx, name); a.Token != nil {
			seen = append(seen, *a.Token)
		}
	}
	for range 2 {
		grant(one)
		one.Release(ctx, name)
	}
	grant(other)
	other.Kill()
	grant(one)
	one.Release(ctx, name)
	c, n := rises(4, seen), len(seen)
	if s.forget == nil || n == 0 {
		return c
	}
	must.Do(s.forget(ctx, name))
	if grant(one); len(seen) > n {
		c.Seen += fmt.Sprintf("; after its record was deleted by hand: %d", seen[n])
	}
	return c
}

// rises is the cell of the tokens of so many grants: each must have one, above the one before.
func rises(grants int, seen []uint64) cell {
	texts := strings.Trim(strings.ReplaceAll(fmt.Sprint(seen), " ", ", "), "[]")
	rising := slices.Compact(slices.Sorted(slices.Values(seen)))
	switch {
	case len(seen) == 0:
		return judged(false, nil, "has no token")
	case len(seen) < grants:
		return judged(false, nil, "has a token at %d of %d grants: %s", len(seen), grants, texts)
	case !slices.Equal(rising, seen):
		return judged(false, nil, "does not rise: %s", texts)
	}
	return judged(true, nil, "rises: %s", texts)
}
