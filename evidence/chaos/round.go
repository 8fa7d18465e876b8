// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/chaos/replica"
	"github.com/tenurelock/tenure/evidence/chaos/trial"
)

// plan is what a round is to be.
type plan struct {
	Engine   string
	Seed     uint64
	Replicas int
	Lease    time.Duration
	Length   time.Duration // of the nemesis
	Drift    float64       // by what part of it the rate of a replica's clocks may differ
	// Wrong and Open are mistakes made on purpose, of the replicas and of the
	// fence.
	Wrong replica.Wrong
	Open  bool
	// Only has the nemesis deal no other faults, if it is not empty.
	Only []kind

	namespaces bool // processes may be started in time namespaces
}

// round is one run of a few replicas on a fresh engine, under one nemesis.
type round struct {
	plan
	dir      string
	watch    replica.Watch
	resource *trial.Resource
	engine   engine
	seats    []*seat

	engineBusy sync.Mutex

	mu       sync.Mutex // guards the fields below
	events   []event
	problems []string
	leading  struct {
		process *process
		token   uint64
	}
	highest   uint64
	grantedAt int64
	granted   chan struct{} // closed with each grant

	began, healed, ended int64
	bootAhead            int64         // by how much the boot clock is ahead of the monotonic clock
	recovery             time.Duration // from the last kill to the next grant
	bound                time.Duration // of that
	late                 time.Duration // by how much this machine is late at most
	record               driver.Record // of the lock, at the end
	lost                 int           // pieces of bytes that vanished in gates
	effects              []trial.Effect
}

// seat is where one replica after another lives.
type seat struct {
	r     *round
	index int
	name  string
	busy  sync.Mutex // held by the fault that it is under

	mu    sync.Mutex // guards the fields below
	lives []*process
}

// fill starts a replica in a seat that is empty.
func (s *seat) fill(where *timespace) error {
	r := s.r
	s.mu.Lock()
	life := len(s.lives) + 1
	s.mu.Unlock()
	p, err := launch(r.dir, replica.Config{
		Name: fmt.Sprintf("%s.%d", s.name, life), Store: r.engine.store(s.index), Resource: r.resource.URL(),
		Lease: r.Lease, Lock: s.index%2 == 1, Wrong: r.Wrong,
		Seed: r.Seed ^ uint64(s.index<<16+life), Rate: r.drawRate(s.index, life),
	}, where, r.watch, r.heard)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lives = append(s.lives, p)
	return nil
}

// drawRate returns by what part of it the rate of a process's clocks differs:
// nearly as much as it may, as a rule.
func (p *plan) drawRate(seat, life int) float64 {
	random := rand.New(rand.NewPCG(p.Seed, uint64(seat<<16+life)))
	rate := p.Drift * (0.6 + 0.4*random.Float64())
	if random.IntN(2) == 0 {
		return -rate
	}
	return rate
}

// now returns the process in the seat, nil if there never was one.
func (s *seat) now() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lives) == 0 {
		return nil
	}
	return s.lives[len(s.lives)-1]
}

// draw returns where the next process of a seat is started.
func (s *seat) draw(random *rand.Rand) *timespace {
	if !s.r.namespaces || random.IntN(2) == 0 {
		return nil
	}
	return drawNamespace(random)
}

func drawNamespace(random *rand.Rand) *timespace {
	return &timespace{Monotonic: 1 + random.Int64N(1e8), Boot: 1 + random.Int64N(1e8)}
}

// seatOf returns the seat that a fault is for.
func (r *round) seatOf(on role, random *rand.Rand) *seat {
	r.mu.Lock()
	p := r.leading.process
	r.mu.Unlock()
	if i := r.seatIndex(p); on == leader && i >= 0 {
		return r.seats[i]
	}
	return r.seats[random.IntN(len(r.seats))]
}

func (r *round) seatIndex(p *process) int {
	for _, s := range r.seats {
		if p != nil && s.now() == p {
			return s.index
		}
	}
	return -1
}

// heard follows who leads, as far as lines tell.
func (r *round) heard(p *process, l replica.Line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch l.Kind {
	case replica.Granted:
		if l.Token > r.highest {
			r.leading.process, r.leading.token = p, l.Token
			r.highest, r.grantedAt = l.Token, l.To
			close(r.granted)
			r.granted = make(chan struct{})
		}
	case replica.Ended:
		if r.leading.token == l.Token {
			r.leading.process = nil
		}
	}
}

// awaitGrant waits until a token above the given one was granted.
func (r *round) awaitGrant(ctx context.Context, above uint64, patience time.Duration) bool {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		r.mu.Lock()
		granted, highest := r.granted, r.highest
		r.mu.Unlock()
		if highest > above {
			return true
		}
		select {
		case <-granted:
		case <-late.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// awaitLeader waits until somebody leads, and returns who, nil if nobody does.
func (r *round) awaitLeader(ctx context.Context, patience time.Duration) *process {
	var p *process
	leads := wait.Within(ctx, patience, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		p = r.leading.process
		return p != nil && p.Alive()
	})
	if !leads {
		return nil
	}
	return p
}

func (r *round) note(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// trouble notes what should not happen, whatever the nemesis does.
func (r *round) trouble(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func (r *round) killAll() {
	for _, s := range r.seats {
		if p := s.now(); p != nil && p.Alive() {
			p.kill()
		}
	}
}
