// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package service

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/chaos/trial"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/holds"
	"github.com/tenurelock/tenure/evidence/peers/service"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// lockName is the lock that all contend for.
const lockName = "jobs/nightly"

// plan is what a round is to be.
type plan struct {
	Tenured  string // the path of the program
	Replicas int
	Lease    time.Duration
	Programs []*peers.Program // a seat for each
	Seed     uint64
	Length   time.Duration // of the nemesis
	// Only has the nemesis deal no other faults, by their names, if it is not empty.
	Only []string
}

// round is one run of clients that contend for a lock, under one nemesis: a lock service on a
// fresh file, a resource, and the clients.
type round struct {
	plan
	replicas *service.Replicas
	resource *trial.Resource
	dir      string
	file     string // of the store
	log      string // what the clients' work writes
	random   *rand.Rand
	seats    []*seat

	storeBusy   sync.Mutex
	replicaBusy sync.Mutex

	struck  trial.Counter // what the nemesis did
	weather trial.Counter // what the gates did
	errors  trial.Counter // what clients' work came to, beside grants

	mu       sync.Mutex // guards the fields below
	deaths   map[string]holds.Death
	problems []string
	healed   bool

	began, ended int64
	recovery     time.Duration // from the last kill to the next hold
	bound        time.Duration // of that
}

// seat is where one client after another lives.
type seat struct {
	*round
	index   int
	program *peers.Program
	busy    sync.Mutex // held by the fault that it is under
	hold    time.Duration

	mu    sync.Mutex // guards the fields below
	lives int
	now   *client
	works *peers.Call
}

// client is a process that holds locks by the service, behind a gate of its own.
type client struct {
	*peers.Member
	front *gate.HTTP
	owner string
}

// play plays a round. The error is one of this program, or of the machine.
func (p plan) play(ctx context.Context) (v *verdict, err error) {
	r := &round{plan: p, random: rand.New(rand.NewPCG(p.Seed, 1)), deaths: map[string]holds.Death{}}
	if r.dir, err = os.MkdirTemp("", "tenure-chaos-service-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	r.file, r.log = filepath.Join(r.dir, "locks.db"), filepath.Join(r.dir, "holds.log")
	if err := os.WriteFile(r.log, nil, 0o600); err != nil {
		return nil, err
	}
	r.resource = trial.OpenResource(proc.Monotonic, false)
	defer r.resource.Close()
	r.replicas, err = service.Start(ctx, service.Config{
		Program: p.Tenured, Dir: r.dir, Stores: slices.Repeat([]string{"sqlite:" + r.file},
			p.Replicas), Lease: p.Lease, Drain: p.Lease / 4,
	})
	if err != nil {
		return nil, err
	}
	defer r.replicas.Close()
	defer func() {
		for _, s := range r.seats {
			if c := s.current(); c != nil {
				c.Kill()
				c.front.Close()
			}
		}
	}()
	if err := r.run(ctx); err != nil {
		return nil, err
	}
	return r.verdict(ctx)
}

func (r *round) run(ctx context.Context) error {
	for i, program := range r.Programs {
		// Most holds live by their heartbeats.
		hold := time.Duration((0.5 + 2.5*r.random.Float64()) * float64(r.Lease))
		r.seats = append(r.seats, &seat{round: r, index: i, program: program, hold: hold})
	}
	if err := r.each(ctx, (*seat).fill); err != nil {
		return err
	}
	r.began = proc.Monotonic()
	if err := wait.Until(ctx, "somebody holds the lock",
		func() bool { owner, _ := r.holder(); return owner != "" }); err != nil {
		return err
	}
	striking, stop := context.WithTimeout(ctx, r.Length)
	r.nemesis(striking)
	stop()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := r.heal(); err != nil {
		return err
	}
	if err := r.lastBlow(ctx); err != nil {
		return err
	}
	r.ended = proc.Monotonic()
	return r.each(ctx, (*seat).finish)
}

// each does something to all seats at once.
func (r *round) each(ctx context.Context, do func(*seat, context.Context) error) error {
	return wait.AtOnce(ctx, len(r.seats), len(r.seats),
		func(ctx context.Context, i int) error { return do(r.seats[i], ctx) })
}

// fill starts a client in the seat, and has it work: it takes the lock and holds it for a
// while, over and over. Half of that is between a check and the effect that it allows: a
// process that is stopped there is late, as nothing but a fence can tell.
func (s *seat) fill(ctx context.Context) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lives++
	w := gate.Storm(s.Lease)
	s.round.mu.Lock()
	if s.healed {
		w = gate.Fair
	}
	s.round.mu.Unlock()
	c := &client{owner: fmt.Sprintf("%s-%d.%d", s.program.Kind, s.index+1, s.lives)}
	if c.front, err = service.NewFront(s.replicas.URLs(), w, s.Seed<<16+uint64(s.index<<8+s.lives)); err != nil {
		return err
	}
	c.Member, err = s.program.Open(ctx, wire.Request{
		Command: wire.Open, Endpoint: c.front.Address(), Owner: c.owner, Secret: s.replicas.Worker,
	})
	if err != nil {
		c.front.Close()
		return fmt.Errorf("%s: %w", c.owner, err)
	}
	s.now = c
	s.works = c.Begin(wire.Request{
		Command: wire.Work, Name: lockName, Log: s.log, Resource: s.resource.URL(), EffectMs: 10, HesitateMs: 10,
		HoldMs: s.hold.Milliseconds(), PauseMs: 50,
		DurationMs: long.Milliseconds(), WaitMs: peers.Milliseconds(2 * time.Second),
	})
	return nil
}

// long is a time that no round takes.
const long = time.Hour

// current is the client in the seat.
func (s *seat) current() *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// kill kills the client.
func (s *seat) kill() {
	c := s.current()
	c.Kill()
	s.round.mu.Lock()
	s.deaths[c.owner] = holds.Death{At: proc.Monotonic(), Holds: long}
	s.round.mu.Unlock()
	s.leave(c)
}

// leave ends what stands before a client, and counts the weather that it had.
func (s *seat) leave(c *client) {
	c.front.Close()
	for fault, n := range c.front.Counts() {
		if fault != gate.None {
			s.weather.Add(string(fault), n)
		}
	}
}

// holder returns who holds the lock, as far as the log tells: one that was killed does not
// say that it is over.
func (r *round) holder() (owner string, since int64) {
	text, err := os.ReadFile(r.log)
	if err != nil {
		return "", 0
	}
	for line := range strings.Lines(string(text)) {
		l, err := wire.ParseLog(line)
		switch {
		case err != nil: // it is being written
		case l.What == wire.LogBegin:
			owner, since = l.Owner, l.At
		case l.What == wire.LogEnd && l.Owner == owner:
			owner = ""
		}
	}
	return owner, since
}

// heal ends all faults.
func (r *round) heal() error {
	r.mu.Lock()
	r.healed = true
	r.mu.Unlock()
	for _, s := range r.seats {
		c := s.current()
		c.front.Heal()
		if err := c.front.Change(gate.Fair); err != nil {
			return err
		}
	}
	return nil
}

// lastBlow kills the holder, and measures how long it takes until another one holds the
// lock. The one that was killed is not replaced.
func (r *round) lastBlow(ctx context.Context) error {
	// Whatever was late has come by then: a call that is carried out again, and the grants to
	// those who have gone.
	if err := wait.For(ctx, 4*r.Lease); err != nil {
		return err
	}
	lateness := wait.Lateness()
	// A lease, with what clocks may differ by; a look of the waiter's replica; a takeover.
	r.bound = r.Lease*3/2 + 2*time.Second
	var killed string
	var at int64
	err := wait.Until(ctx, "a holder to be killed", func() bool {
		owner, _ := r.holder()
		for _, s := range r.seats {
			if c := s.current(); c.owner == owner && c.Alive() {
				at, killed = proc.Monotonic(), owner
				s.kill()
				return true
			}
		}
		return false
	})
	if err != nil {
		return err
	}
	r.recovery = -1
	wait.Within(ctx, 4*r.Lease+10*time.Second, func() bool {
		owner, since := r.holder()
		if since > at && owner != "" && owner != killed {
			r.recovery = time.Duration(since - at)
			return true
		}
		return false
	})
	r.bound += 10 * lateness()
	return ctx.Err()
}

// finish tells the client to end its work, and takes down what it came to.
func (s *seat) finish(ctx context.Context) error {
	c := s.current()
	if !c.Alive() {
		return nil
	}
	if _, err := c.Do(ctx, c.Asking(wire.End, lockName)); err != nil {
		return err
	}
	bound, cancel := context.WithTimeout(ctx, 5*s.Lease+wait.Bound)
	defer cancel()
	a, err := s.works.Wait(bound)
	if err != nil {
		return fmt.Errorf("%s does not end: %w", c.owner, err)
	}
	s.leave(c)
	if n := a.Counts; n != nil && n.Errors > 0 {
		kind, _, _ := strings.Cut(n.LastError, ":")
		s.errors.Add(kind, int(n.Errors))
		// Without an answer for long an acquire ends so, and so may a release.
		if !strings.Contains(kind, "Unavailable") && !strings.Contains(kind, "Uncertain") {
			s.trouble("a client's work came to an error: %s", n.LastError)
		}
	}
	return nil
}

// trouble notes what should not happen, whatever the nemesis does.
func (r *round) trouble(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}
