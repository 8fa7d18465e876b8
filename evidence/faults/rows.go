// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// row is a fault, thrown at each client.
type row struct {
	id, title string
	// how is how the fault is made, rule what a pass is.
	how, rule string
	try       func(context.Context, *scene) (cell, error)
	lease     time.Duration // zero: the column's
	alone     bool          // columns are looked at one after the other
}

func (r row) name() string { return r.id }

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
	{
		id: "lost-acquire", title: "Reply lost on acquire", try: lostOnAcquire,
		how: "The write that takes a free lock reaches the store, and its reply is lost. etcd's caller calls " +
			"again at once.",
		rule: "the lock is got within a lease.",
	},
	{
		id: "lost-heartbeat", title: "Reply lost on a heartbeat",
		how:  "The reply to a holder's heartbeat is lost; another process waits.",
		rule: "the holder still has the lock after two and a half leases.",
		try:  keptUnder(func(ctx context.Context, p *pair) error { return p.strike(ctx, gate.Gate.LoseReply) }),
	},
	{
		id: "lost-cut", title: "Reply lost on a heartbeat, then cut off",
		how: "As before, and then nothing reaches the store any more. The lease in the store is longer than the " +
			"holder knows.",
		rule: "the holder is told before the other has the lock.",
		try: cutOff(2, manner{}, "", func(ctx context.Context, p *pair, _ int) error {
			err := p.strike(ctx, gate.Gate.LoseReply)
			p.holder.gate.BlackHole()
			return err
		}),
	},
	{
		id: "slow-reply", title: "Slow reply just inside the lease",
		how: "A heartbeat reaches the store at once, and its reply takes 0.3, 0.6 and 0.9 of the lease. Nothing " +
			"that is sent later arrives.",
		rule: "the holder is told before the other has the lock.",
		try: cutOff(3, manner{unbounded: true}, "without a time-out for requests, as in its example",
			func(ctx context.Context, p *pair, i int) error {
				return p.strike(ctx, func(g gate.Gate) { g.SlowThenBlackHole(time.Duration(i+1) * 3 * p.lease / 10) })
			}),
	},
	{
		id: "black-hole", title: "Black-holed store",
		how: "From a random instant on nothing that the holder sends arrives, nothing comes back, and no " +
			"connection ends.",
		rule: "the holder is told before the other has the lock.",
		try: cutOff(4, manner{releasing: true}, "with ReleaseOnCancel", func(_ context.Context, p *pair, _ int) error {
			p.holder.gate.BlackHole()
			return nil
		}),
	},
	{
		id: "stopped", title: "Holder stopped and continued", try: stopped(6, false),
		how:  "SIGSTOP, until another has the lock, and SIGCONT a heartbeat later.",
		rule: "the first check after SIGCONT says no.",
	},
	{
		id: suspendRow, title: "Machine suspended and resumed", try: stopped(3, true),
		how: "As before, and the clocks are those after a suspend of the machine: the monotonic clock has stood " +
			"still.",
		rule: "the first check says no.",
	},
	{
		id: "close-waiting", title: "Close while waiting", try: closeWaiting,
		how:  "A process waits for a held lock, and its client is closed.",
		rule: "Close and the waiting call return within 0.5 s.",
	},
	{
		id: manyRow, title: "1,000 locks at 10 ms", try: holdMany, lease: 5 * time.Second, alone: true,
		how: "One process holds 1,000 locks with a lease of 5 s for 20 s; each request takes 10 ms longer. On " +
			"Kubernetes and in a bucket Tenure holds them under a session.",
		rule: "the holder's checks say yes for all in the end.",
	},
	{
		id: "dead-try", title: "Dead holder, caller that does not wait", try: tryDead,
		how:  "A holder is killed. A process that does not wait asks each 0.1 s.",
		rule: "it gets the lock within two leases of the death.",
	},
	{
		id: endAtWorkRow, title: "Release while work still runs", try: endAtWork,
		how:  "A program closes its client, tells its work to stop, which takes 1.5 s, and then releases the lock.",
		rule: "another gets the lock after the work has ended.",
	},
	{
		id: childRow, title: "Command under a lock that is lost", try: childAfterLoss,
		how: "The library's own program runs a command under a lock, and is cut off from the store; a second one " +
			"waits to run it.",
		rule: "the first command has ended before the second begins.",
	},
	{
		id: "tokens", title: "Token after release and re-creation", try: tokens,
		how: "The lock is taken and released twice, taken by one that is killed, taken over, and taken once more " +
			"after its record was deleted by hand.",
		rule: "a number rises with each of the four grants; the deletion is shown, not judged.",
	},
}

// tried is how a row is tried.
type tried = func(context.Context, *scene) (cell, error)

// lostOnAcquire loses the reply to the write that takes a free lock.
func lostOnAcquire(ctx context.Context, s *scene) (cell, error) {
	figures, err := s.repeat(ctx, 3, func(ctx context.Context, _ int) (float64, error) {
		m, err := s.member(ctx, manner{})
		if err != nil {
			return 0, err
		}
		defer m.Kill()
		// The first acquire of a process makes connections. A heartbeat of that lock must not be
		// what the fault hits.
		first := s.lock()
		if _, err := m.Acquire(ctx, first); err != nil {
			return 0, err
		}
		if _, err := m.Release(ctx, first); err != nil {
			return 0, err
		}
		m.gate.LoseReply()
		a, err := m.Acquire(ctx, s.lock())
		if err == nil && m.gate.Struck().IsZero() {
			err = errors.New("the fault hit nothing")
		}
		return milliseconds(a.GotNs - a.SentNs), err
	})
	if err != nil {
		return cell{}, err
	}
	for _, f := range figures {
		if f >= milliseconds(s.lease.Nanoseconds()) {
			return judged(false, figures, "got it after %s: it waited for its own record to run out", span(figures)), nil
		}
	}
	return judged(true, figures, "got it after %s", span(figures)), nil
}

// pairRun is a run of a row with a pair. It returns a figure.
type pairRun = func(ctx context.Context, p *pair, i int) (float64, error)

// pairs makes runs of a row with a pair each, and returns their figures.
func (s *scene) pairs(ctx context.Context, n int, how manner, run pairRun) ([]float64, error) {
	return s.repeat(ctx, n, func(ctx context.Context, i int) (float64, error) {
		p, err := s.pair(ctx, how)
		if err != nil {
			return 0, err
		}
		// What comes later wants the machine for itself.
		defer p.waiter.Kill()
		defer p.holder.Kill()
		return run(ctx, p, i)
	})
}

// cutOff is a row of a fault that cuts the holder off: it must know before another has the
// lock. Of client-go a variant is looked at beside: the verdict is on its defaults.
func cutOff(n int, variant manner, said string, cut func(context.Context, *pair, int) error) tried {
	run := func(ctx context.Context, p *pair, i int) (float64, error) {
		if err := cut(ctx, p, i); err != nil {
			return 0, err
		}
		return p.margin(ctx)
	}
	return func(ctx context.Context, s *scene) (cell, error) {
		figures, err := s.pairs(ctx, n, manner{}, run)
		if err != nil {
			return cell{}, err
		}
		c := margins(figures)
		if s.id == kubeID && said != "" {
			if figures, err = s.pairs(ctx, n, variant, run); err != nil {
				return cell{}, err
			}
			c.Seen += "; " + said + ": " + margins(figures).Seen
		}
		return c, nil
	}
}

// keptUnder is a row of a fault under which a holder must keep its lock.
func keptUnder(fault func(context.Context, *pair) error) tried {
	return func(ctx context.Context, s *scene) (cell, error) {
		p, err := s.pair(ctx, manner{})
		if err != nil {
			return cell{}, err
		}
		if err := fault(ctx, p); err != nil {
			return cell{}, err
		}
		return p.keeps(ctx)
	}
}

// keeps is the cell of whether the holder still has the lock after two and a half leases, in
// which another one waits for it.
func (p *pair) keeps(ctx context.Context) (cell, error) {
	looked := 5 * p.lease / 2
	wait.Unless(looked, p.granted.Done(), ctx.Done())
	switch b, err := p.belief(); {
	case ctx.Err() != nil:
		return cell{}, context.Cause(ctx)
	case p.passed():
		gap, err := p.margin(ctx)
		seen := "nobody held it for " + length(gap)
		if gap < 0 {
			seen = "two holders for " + length(-gap)
		}
		return judged(false, []float64{gap}, "lost a living holder's lock; %s", seen), err
	case err != nil || !b.goesOn():
		return judged(false, nil, "given up, though nobody else has it"), err
	}
	return judged(true, nil, "kept for the %s that were looked at", lengthOf(looked)), nil
}

// stopped is a row in which a holder is stopped until another one has had its lock for a
// heartbeat, and with suspend finds its clocks as after a suspend of the machine. It must not
// believe for an instant that it has the lock still.
func stopped(n int, suspend bool) tried {
	run := func(ctx context.Context, p *pair, _ int) (float64, error) {
		// A check must be the first thing that the holder does when it goes on.
		if _, err := p.holder.Do(ctx, p.holder.Asking(wire.Hurry, p.name)); err != nil && !refusedAs(err, wire.Unsupported) {
			return 0, err
		}
		if err := p.holder.Stop(ctx); err != nil {
			return 0, err
		}
		at := proc.Monotonic()
		if _, err := p.passes(ctx); err != nil {
			return 0, err
		}
		if err := wait.For(ctx, p.beat()); err != nil {
			return 0, err
		}
		behind := int64(0) // the clock of the log
		if suspend {
			slept := proc.Monotonic() - at
			p.holder.sleep(time.Duration(slept))
			if p.onLibc() {
				behind = slept
			}
		}
		continued := proc.Monotonic()
		if err := p.holder.Continue(); err != nil {
			return 0, err
		}
		b, err := p.over(ctx, 2*p.lease)
		// A check that was passed before the instant is none of these.
		return max(0, milliseconds(b.until()+behind-continued)), err
	}
	return func(ctx context.Context, s *scene) (cell, error) {
		figures, err := s.pairs(ctx, n, manner{suspendable: suspend}, run)
		if err != nil {
			return cell{}, err
		}
		return beliefs(figures), nil
	}
}

// closeWaiting closes a client whose caller waits for a lock that another process
// holds.
func closeWaiting(ctx context.Context, s *scene) (cell, error) {
	// For how long the waiter is ready to wait beyond a lease, where the library takes that
	// for an argument; and how soon Close and the waiter have to return.
	const patience, promptly = 5 * time.Second, 500 * time.Millisecond
	_, waiter, name, err := s.held(ctx)
	if err != nil {
		return cell{}, err
	}
	ask := waiter.Asking(wire.Acquire, name)
	ask.WaitMs = peers.Milliseconds(patience)
	waiting := waiter.Begin(ask)
	if err := wait.For(ctx, s.beat()); err != nil {
		return cell{}, err
	}
	sent := proc.Monotonic()
	calls := []*peers.Call{waiter.Begin(waiter.Asking(wire.Close, name)), waiting}
	figures := make([]float64, len(calls))
	err = wait.AtOnce(ctx, len(calls), len(calls), func(ctx context.Context, i int) error {
		wait.Unless(10*s.lease, calls[i].Done(), ctx.Done()) // either may return an error, and that is an answer
		figures[i] = milliseconds(proc.Monotonic() - sent)
		return context.Cause(ctx)
	})
	closed, waited := figures[0], figures[1]
	ok := max(closed, waited) <= milliseconds(promptly.Nanoseconds())
	return judged(ok, figures, "Close returned after %s, the waiter after %s", length(closed), length(waited)), err
}

// holdMany holds many locks in one process, with a store that is not near.
func holdMany(ctx context.Context, s *scene) (cell, error) {
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
	m, err := s.member(ctx, manner{session: s.crowded})
	if err != nil {
		return cell{}, err
	}
	m.gate.Slow(latency)
	names := make([]string, locks)
	for i := range names {
		names[i] = s.lock()
	}
	err = wait.AtOnce(ctx, locks, atOnce, func(ctx context.Context, i int) error {
		_, err := m.Acquire(ctx, names[i])
		return err
	})
	if err != nil {
		return cell{}, err
	}
	before, began := m.gate.Count(), time.Now()
	if err := wait.For(ctx, looked); err != nil {
		return cell{}, err
	}
	sent := math.Round(float64(m.gate.Count()-before) / time.Since(began).Seconds())
	var lost atomic.Int64
	err = wait.AtOnce(ctx, locks, atOnce, func(ctx context.Context, i int) error {
		holds, err := m.Holds(ctx, names[i])
		if err == nil && !holds {
			lost.Add(1)
		}
		return err
	})
	n, figures := lost.Load(), []float64{float64(lost.Load()), sent}
	return judged(n == 0, figures, "%slost %d; %s a second", said, n, plural(int(sent), "request")), err
}

// tryDead kills a holder, and has another process ask for the lock now and then
// without waiting.
func tryDead(ctx context.Context, s *scene) (cell, error) {
	holder, caller, name, err := s.held(ctx)
	if err != nil {
		return cell{}, err
	}
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
			return cell{}, errors.New("it got a lock that is held")
		case err == nil:
			return s.gotAfterDeath(a.GotNs - killed), nil
		case refusedAs(err, wire.Unsupported):
			return lacking("has no call that does not wait"), nil
		case !refusedAs(err, wire.Held):
			return cell{}, err
		case killed != 0 && proc.Monotonic()-killed > (5*s.lease).Nanoseconds():
			return judged(false, nil, "refused for %s, %d times", lengthOf(5*s.lease), asked), nil
		}
		if err := wait.For(ctx, 100*time.Millisecond); err != nil {
			return cell{}, err
		}
	}
}

// gotAfterDeath is the cell of how long after a holder's death another one had the lock.
func (s *scene) gotAfterDeath(ns int64) cell {
	took := milliseconds(ns)
	return judged(ns < (2*s.lease).Nanoseconds(), []float64{took}, "got it %s after the holder's death", length(took))
}

// handsOver closes the client of the holder, and has its work end a while later, as a program
// does that is told to end. It returns how long after that the other one has the lock.
func (p *pair) handsOver(ctx context.Context, drain time.Duration) (gap float64, err error) {
	o := p.holder.Asking(wire.End, p.name)
	o.DrainMs = drain.Milliseconds()
	p.holder.Begin(o) // what comes of it shows the lock
	granted, err := p.passes(ctx)
	if err != nil {
		return 0, err
	}
	b, err := p.over(ctx, 3*p.lease)
	return milliseconds(granted - b.end), err
}

// endAtWork closes the client of a holder whose work needs a moment to stop.
func endAtWork(ctx context.Context, s *scene) (cell, error) {
	p, err := s.pair(ctx, manner{releasing: true})
	if err != nil {
		return cell{}, err
	}
	gap, err := p.handsOver(ctx, 1500*time.Millisecond)
	when := map[bool]string{true: "after", false: "before"}[gap >= 0]
	return judged(gap >= 0, []float64{gap}, "the successor began %s %s the work's end", length(math.Abs(gap)), when), err
}

// tokens looks at the fencing token over releases, a takeover, and after the record
// was deleted by hand.
func tokens(ctx context.Context, s *scene) (cell, error) {
	one, other, err := s.two(ctx, manner{releasing: true}, manner{releasing: true})
	if err != nil {
		return cell{}, err
	}
	name := s.lock()
	var seen []uint64
	grants := func(m *member, last bool) error {
		a, err := m.Acquire(ctx, name)
		if err == nil && a.Token != nil {
			seen = append(seen, *a.Token)
		}
		if err == nil && !last {
			_, err = m.Release(ctx, name)
		}
		return err
	}
	for _, m := range []*member{one, one, other} {
		if err := grants(m, m == other); err != nil {
			return cell{}, err
		}
	}
	other.Kill()
	if err := grants(one, false); err != nil {
		return cell{}, err
	}
	if len(seen) == 0 {
		return judged(false, nil, "has none"), nil
	}
	c := judged(true, nil, "rises: %s", listed(seen))
	for i := 1; i < len(seen); i++ {
		if seen[i] <= seen[i-1] {
			c = judged(false, nil, "does not rise: %s", listed(seen))
		}
	}
	if s.forget == nil {
		return c, nil
	}
	if err := s.forget(ctx, name); err != nil {
		return c, err
	}
	before := len(seen)
	err = grants(one, true)
	if len(seen) > before {
		c.Seen += fmt.Sprintf("; after its record was deleted by hand: %d", seen[before])
	}
	return c, err
}

// listed are numbers with commas between.
func listed(tokens []uint64) (text string) {
	for i, t := range tokens {
		text += []string{"", ", "}[min(i, 1)] + fmt.Sprint(t)
	}
	return text
}
