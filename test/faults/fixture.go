// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/test/harness/gate"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// harness is what all cells share.
type harness struct {
	programs    map[string]*peers.Program // by column
	tenured     string                    // the service's command, by its path, if its clients are looked at
	tenure      string                    // the command that runs others, the same
	suspendable string                    // this program, with a runtime that can be put to sleep
	dir         string                    // for logs and programs
	say         func(format string, args ...any)
	peers.Scope // of the whole run

	mu       sync.Mutex
	versions map[string]string // of the columns' libraries
}

// fixture is one client under one fault.
type fixture struct {
	*harness
	column
	*place
	lease   time.Duration
	word    string // of its locks' names
	service *servedBy
	names   atomic.Int64 // of its locks
	peers.Scope
}

// cell injects the fault of a row into the client of a column.
func (r *harness) cell(ctx context.Context, row row, c column) (found cell) {
	if why := c.lacksRows[row.id]; why != "" {
		return lacking(why)
	}
	s := &fixture{harness: r, column: c, lease: cmp.Or(row.lease, c.lease), word: strings.ToLower(rand.Text())}
	if err := must.Try(func() {
		s.Run(func() {
			s.place = c.open(ctx, s)
			found = row.try(ctx, s)
		})
	}); err != nil {
		must.Do(fmt.Errorf("%s, %s: %w", row.id, c.id, err))
	}
	return found
}

// beat is the time between two heartbeats.
func (s *fixture) beat() time.Duration { return s.lease / s.beats }

// lock returns the name of an unused lock.
func (s *fixture) lock(ctx context.Context) string {
	name := s.named(int(s.names.Add(1)))
	if s.prepare != nil {
		s.prepare(ctx, name)
	}
	return name
}

func (s *fixture) named(n int) string { return fmt.Sprintf("tenure-faults-%s-%d", s.word, n) }

// runs makes runs of a row, some of them at the same time, and returns their figures.
func (s *fixture) runs(ctx context.Context, n int, run func(ctx context.Context, i int) float64) []float64 {
	figures := make([]float64, n)
	must.AtOnce(ctx, n, s.together, func(ctx context.Context, i int) { figures[i] = run(ctx, i) })
	return figures
}

// pairs are runs with a pair each.
func (s *fixture) pairs(
	ctx context.Context, n int, how manner, run func(ctx context.Context, p *pair, i int) float64,
) []float64 {
	return s.runs(ctx, n, func(ctx context.Context, i int) float64 {
		p := s.pair(ctx, how)
		// The next runs need an idle machine.
		defer p.waiter.Kill()
		defer p.holder.Kill()
		return run(ctx, p, i)
	})
}

// member is a process with an open client, behind a gate of its own.
type member struct {
	*peers.Member
	owner string
	gate  gate.Gate
	slept []byte // of a member that can be suspended
}

// manner is how a member differs from the default.
type manner struct {
	// eager polls a held lock each 20 ms if it can only poll, so that it takes over
	// when the lock becomes free, not at its next poll.
	eager       bool
	unbounded   bool // without the time-out of requests that a library leaves to its user
	releasing   bool // with the option that client-go needs to release a lock at all
	suspendable bool // as if with its machine
	session     bool // with its locks under one session, which Tenure alone has
	tokens      bool // its log has tokens, and not what the client says by itself
}

const eagerRefresh = 20 * time.Millisecond

func (s *fixture) member(ctx context.Context, how manner) *member {
	m := &member{}
	program := s.programs[s.id]
	if how.suspendable {
		program, m.slept = s.sleeper(program)
	}
	r := wire.Request{
		Command: wire.Open, Table: s.table, Secret: s.secret,
		Owner: "faults-" + strings.ToLower(rand.Text()), LeaseMs: peers.Milliseconds(s.lease), Notice: !how.tokens,
		RequestTimeout: !how.unbounded, ReleaseOnCancel: how.releasing, Session: how.session,
	}
	if s.heartbeat > 0 {
		r.HeartbeatMs = peers.Milliseconds(time.Duration(s.heartbeat * float64(s.lease)))
	}
	if s.refresh > 0 {
		r.RefreshMs = peers.Milliseconds(time.Duration(s.refresh * float64(s.lease)))
		if how.eager {
			r.RefreshMs = peers.Milliseconds(eagerRefresh)
		}
	}
	m.owner, m.gate = r.Owner, s.gate(r.Owner)
	s.After(m.gate.Close)
	r.Endpoint = s.endpoint(m.gate.Address())
	m.Member = program.Open(ctx, r)
	s.After(m.Kill)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions[s.id] = m.Ready.Version + ", " + m.Ready.Runtime
	return m
}

// held returns two members; the first one holds a lock.
func (s *fixture) held(ctx context.Context) (holder, other *member, name string) {
	holder, other, name = s.member(ctx, manner{}), s.member(ctx, manner{}), s.lock(ctx)
	holder.Acquire(ctx, name)
	return holder, other, name
}

// refusedAs reports whether an error is a refusal of a kind.
func refusedAs(err error, kind string) bool {
	var refused *peers.Refused
	return errors.As(err, &refused) && refused.Kind == kind
}

// pair is a holder at work, and a waiter for its lock in another process.
type pair struct {
	*fixture
	name           string
	holder, waiter *member
	log            string // of the work
	granted        *peers.Call
}

// longHold is longer than any row.
const longHold = 10 * time.Minute

// pair sets the two up, and lets them run for a while that ends at a random moment
// between two heartbeats.
func (s *fixture) pair(ctx context.Context, how manner) *pair {
	p := s.working(ctx, how)
	p.waits()
	must.Do(wait.For(ctx, s.beat()+time.Duration(mathrand.Float64()*float64(s.beat()))))
	return p
}

// working sets the two up, and lets the holder begin.
func (s *fixture) working(ctx context.Context, how manner) *pair {
	p := &pair{fixture: s, name: s.lock(ctx), holder: s.member(ctx, how), waiter: s.member(ctx, manner{eager: true})}
	p.log = s.file(p.name+"-*.log", "")
	o := p.holder.Asking(wire.Work, p.name)
	o.HoldMs, o.DurationMs, o.Log = longHold.Milliseconds(), 50, p.log
	work := p.holder.Begin(o)
	err := wait.Until(ctx, "work begins", func() bool { return p.belief().begin > 0 || work.Answered() })
	if work.Answered() {
		answer, ended := work.Wait(ctx)
		err = errors.Join(err, ended, fmt.Errorf("work has ended before it was seen to begin: %+v", answer.Counts))
	}
	must.Do(err)
	return p
}

// waits lets the waiter begin.
func (p *pair) waits() { p.granted = p.waiter.Begin(p.waiter.Asking(wire.Acquire, p.name)) }

// strike makes a fault, and waits until it has hit a request of the holder.
func (p *pair) strike(ctx context.Context, fault func(gate.Gate)) {
	fault(p.holder.gate)
	must.Do(wait.Until(ctx, "the fault hits a heartbeat", func() bool { return !p.holder.gate.Struck().IsZero() }))
}

// passes waits until the other one has the lock, for as long as that could take.
func (p *pair) passes(ctx context.Context) (granted int64) {
	ctx, cancel := context.WithTimeout(ctx, 8*p.lease)
	defer cancel()
	a, err := p.granted.Wait(ctx)
	if err != nil {
		err = fmt.Errorf("the other one gets the lock: %w", err)
	}
	return must.Have(a, err).GotNs
}

// margin waits until the other one has the lock and the holder knows, and returns how long
// before the grant it knew.
func (p *pair) margin(ctx context.Context) float64 {
	granted := p.passes(ctx)
	return apart(p.over(ctx, 2*p.lease).told(), granted)
}

// apart is how long the lock had no holder between the holder's last instant and the grant to the
// other one. It is negative where both held it.
func apart(last, granted int64) float64 { return milliseconds(granted - last) }

// belief is for how long a holder took the lock for its own, on the machine's
// monotonic clock. What has not happened is zero.
type belief struct{ begin, end, no, notice int64 }

// until is the instant up to which the holder believed: it stops at a check that
// fails or at a notice, whichever comes first.
func (b belief) until() int64 { return earlier(b.end, b.notice) }

// told is the instant at which the holder knew. It is later than until if a check hangs before
// it fails.
func (b belief) told() int64 { return earlier(cmp.Or(b.no, b.end), b.notice) }

// earlier is the earlier of two instants. The second one may not have come.
func earlier(at, other int64) int64 {
	if other > 0 && other < at {
		return other
	}
	return at
}

// goesOn reports that nothing has ended.
func (b belief) goesOn() bool { return b.end == 0 && b.notice == 0 }

// belief reads the log of the holder's work.
func (p *pair) belief() (b belief) {
	instants := map[string]*int64{
		wire.LogBegin: &b.begin, wire.LogEnd: &b.end, wire.LogNo: &b.no, wire.LogNotice: &b.notice,
	}
	for line := range strings.Lines(string(must.Have(os.ReadFile(p.log)))) {
		l, err := wire.ParseLog(line)
		if at := instants[l.What]; err == nil && at != nil { // else it is being written
			*at = l.At
		}
	}
	return b
}

// over waits for the end of the work, for as long as it could take.
func (p *pair) over(ctx context.Context, bound time.Duration) (b belief) {
	ended := wait.Within(ctx, bound, func() bool {
		b = p.belief()
		return b.end > 0
	})
	must.Do(context.Cause(ctx))
	if !ended {
		b.end = proc.Monotonic() // it believes still
	}
	return b
}

// file writes a file under a new name, and returns its path.
func (r *harness) file(name, text string) string {
	file := must.Have(os.CreateTemp(r.dir, name))
	_, err := file.WriteString(text)
	must.Do(errors.Join(err, file.Close()))
	return file.Name()
}
