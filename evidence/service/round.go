// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// plan is what a round is to be.
type plan struct {
	setting
	Programs []*peers.Program // a seat for each
	Seed     uint64
	Length   time.Duration // of the nemesis
	// Only has the nemesis deal no other faults, by their names, if it is not empty.
	Only []string
}

// round is one run of clients that contend for a lock, under one nemesis.
type round struct {
	*stage
	plan   plan
	random *rand.Rand
	deck   []fault
	seats  []*seat
	faults counter // what the nemesis did

	storeBusy   sync.Mutex
	replicaBusy sync.Mutex

	weather counter // what the proxies did

	mu       sync.Mutex // guards the fields below
	problems []string
	errors   map[string]int // what clients' work came to, beside grants
	healed   bool

	began, ended int64
	recovery     time.Duration // from the last kill to the next hold
	bound        time.Duration // of that
}

// counter counts by name. It may be used concurrently.
type counter struct {
	mu sync.Mutex
	of map[string]int
}

func (c *counter) add(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[name] += n
}

func (c *counter) all() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.of)
}

// seat is where one client after another lives.
type seat struct {
	r       *round
	index   int
	program *peers.Program
	busy    sync.Mutex // held by the fault that it is under
	hold    time.Duration

	mu    sync.Mutex // guards the fields below
	lives int
	now   *client
	works *peers.Call
}

// play plays a round. The error is one of this program, or of the machine.
func (p plan) play(ctx context.Context) (v *verdict, err error) {
	r := &round{plan: p, random: rand.New(rand.NewPCG(p.Seed, 1)), deck: p.deck(), errors: map[string]int{}}
	if r.stage, err = p.setting.open(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.stage.close()) }()
	if err := r.run(ctx); err != nil {
		return nil, err
	}
	return r.verdict(ctx)
}

func (r *round) run(ctx context.Context) error {
	for i, program := range r.plan.Programs {
		// Most holds live by their heartbeats.
		hold := time.Duration((0.5 + 2.5*r.random.Float64()) * float64(r.Lease))
		r.seats = append(r.seats, &seat{r: r, index: i, program: program, hold: hold})
	}
	if err := wait.AtOnce(ctx, len(r.seats), len(r.seats), func(ctx context.Context, i int) error { return r.seats[i].fill(ctx) }); err != nil {
		return err
	}
	r.began = proc.Monotonic()
	if err := wait.Until(ctx, "somebody holds the lock", func() bool { owner, _ := r.holder(); return owner != "" }); err != nil {
		return err
	}
	striking, stop := context.WithTimeout(ctx, r.plan.Length)
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
	return r.finish(ctx)
}

// fill starts a client in the seat, and has it work.
func (s *seat) fill(ctx context.Context) error {
	r := s.r
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lives++
	w := gate.Storm(r.Lease)
	r.mu.Lock()
	if r.healed {
		w = gate.Fair
	}
	r.mu.Unlock()
	owner := fmt.Sprintf("%s-%d.%d", s.program.Kind, s.index+1, s.lives)
	c, err := r.client(ctx, s.program, owner, w, r.plan.Seed<<16+uint64(s.index<<8+s.lives))
	if err != nil {
		return fmt.Errorf("%s: %w", owner, err)
	}
	s.now = c
	s.works = c.Begin(r.work(s.hold, pause))
	return nil
}

// pause is between a release and the next acquire of a client.
const pause = 50 * time.Millisecond

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
	s.r.died(c.owner)
	s.leave(c)
}

// leave ends what stands before a client, and counts the weather that it had.
func (s *seat) leave(c *client) {
	c.front.Close()
	for fault, n := range c.front.Counts() {
		if fault != gate.None {
			s.r.weather.add(string(fault), n)
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

// heal ends all faults, and has every seat filled.
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
	var killed *seat
	var at int64
	err := wait.Until(ctx, "a holder to be killed", func() bool {
		owner, _ := r.holder()
		for _, s := range r.seats {
			if c := s.current(); c.owner == owner && c.Alive() {
				at, killed = proc.Monotonic(), s
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
		if since > at && owner != "" && owner != killed.current().owner {
			r.recovery = time.Duration(since - at)
			return true
		}
		return false
	})
	r.bound += 10 * lateness()
	return ctx.Err()
}

// finish tells all clients to end their work.
func (r *round) finish(ctx context.Context) error {
	r.ended = proc.Monotonic()
	return wait.AtOnce(ctx, len(r.seats), len(r.seats), func(ctx context.Context, i int) error {
		s := r.seats[i]
		c := s.current()
		if !c.Alive() {
			return nil
		}
		if _, err := c.Do(ctx, c.Asking(wire.End, lockName)); err != nil {
			return err
		}
		bound, cancel := context.WithTimeout(ctx, 5*r.Lease+wait.Bound)
		defer cancel()
		a, err := s.works.Wait(bound)
		if err != nil {
			return fmt.Errorf("%s does not end: %w", c.owner, err)
		}
		r.note(a.Counts)
		s.leave(c)
		return nil
	})
}

// note takes down what a client's work came to.
func (r *round) note(counts *wire.Counts) {
	if counts == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if counts.Errors > 0 {
		kind, _, _ := strings.Cut(counts.LastError, ":")
		r.errors[kind] += int(counts.Errors)
		// Without an answer for long an acquire ends so, and so may a release.
		if !strings.Contains(kind, "Unavailable") && !strings.Contains(kind, "Uncertain") {
			r.problems = append(r.problems, "a client's work came to an error: "+counts.LastError)
		}
	}
}

// trouble notes what should not happen, whatever the nemesis does.
func (r *round) trouble(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// gapBound is for how long nobody may hold the lock in a round: a dead holder's lease; one
// more that a heartbeat which comes late can add; one that a waiter begins anew when its
// replica is killed; two for grants of which nobody learns, a third of a lease each; and a
// store that stands still.
func gapBound(lease time.Duration) time.Duration { return 6*lease + 2*time.Second }

func (r *round) verdict(ctx context.Context) (*verdict, error) {
	p, bad, err := r.past(ctx)
	if err != nil {
		return nil, err
	}
	p.Began, p.Ended, p.Gap = r.began, r.ended, gapBound(r.Lease)
	v := judge(p)
	v.Wrong = append(v.Wrong, bad...)
	v.Wrong = append(v.Wrong, r.problems...)
	if r.recovery < 0 || r.recovery > r.bound {
		v.say("after the last kill nobody held the lock for %v; at most %v are allowed", r.recovery.Round(time.Millisecond), r.bound)
	}
	v.Recovery, v.Faults, v.Weather, v.Errors = r.recovery, r.faults.all(), r.weather.all(), r.errors
	return v, nil
}
