// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/chaos/replica"
	"github.com/tenurelock/tenure/evidence/chaos/trial"
)

// play plays a round. The error is one of this program, or of the machine; what
// the round has shown is in the round.
func (p plan) play(ctx context.Context) (_ *round, err error) {
	r := &round{plan: p, granted: make(chan struct{})}
	if r.watch, err = replica.NewWatch(); err != nil {
		return nil, err
	}
	r.bootAhead = replica.Slept()
	if r.dir, err = os.MkdirTemp("", "tenure-chaos-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	if r.engine, err = p.open(ctx, r.dir); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.engine.close()) }()
	r.resource = trial.OpenResource(r.watch.Now, p.Open)
	defer r.resource.Close()
	defer r.killAll()
	return r, r.run(ctx)
}

// open makes a fresh engine, with its data below dir.
func (p plan) open(ctx context.Context, dir string) (engine, error) {
	if err := checkEngine(p.Engine); err != nil {
		return nil, err
	}
	if p.Engine == fileEngine {
		return openSQLite(dir)
	}
	kind, err := servers[p.Engine](dir)
	if err != nil {
		return nil, err
	}
	s, err := openServed(ctx, kind, p.Replicas)
	if err != nil {
		return nil, err // not the nil *served in an interface
	}
	return s, nil
}

func (r *round) run(ctx context.Context) error {
	random := rand.New(rand.NewPCG(r.Seed, 0))
	r.began = r.watch.Now()
	for i := range r.Replicas {
		s := &seat{r: r, index: i, name: fmt.Sprintf("r%d", i+1)}
		r.seats = append(r.seats, s)
		var where *timespace
		if r.namespaces && i%2 == 1 {
			where = drawNamespace(random)
		}
		if err := s.fill(where); err != nil {
			return err
		}
	}
	lateness := wait.Lateness()
	defer lateness()
	if !r.awaitGrant(ctx, 0, time.Minute) {
		return fmt.Errorf("nobody leads at the start: %q", r.problems)
	}

	striking, stop := context.WithTimeout(ctx, r.Length)
	r.nemesis(striking, random)
	stop()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := r.heal(); err != nil {
		return err
	}

	r.lastBlow(ctx, lateness)
	wait.Rest(ctx, r.Lease/2)
	var ending sync.WaitGroup
	for _, s := range r.seats {
		ending.Go(func() {
			if p := s.now(); p != nil && p.Alive() && !p.finish(10*time.Second+5*r.Lease) {
				r.trouble("%s does not end when it is told to", p.name)
			}
		})
	}
	ending.Wait()
	for _, s := range r.seats {
		for _, p := range s.lives {
			if text := p.outcome(); text != "" {
				r.problems = append(r.problems, text)
			}
		}
	}
	r.ended = r.watch.Now()
	r.lost = r.engine.lost()
	var bad []string
	r.effects, bad = r.resource.Seen()
	r.problems = append(r.problems, bad...)
	store, err := replica.OpenStore(r.engine.store(-1))
	if err != nil {
		return err
	}
	r.record, err = store.Get(ctx, replica.LockName, driver.Strong)
	return errors.Join(err, store.Close())
}

// lastBlow waits for a leader, kills it, and measures how long it takes until
// another one leads: the one that was killed is not replaced.
func (r *round) lastBlow(ctx context.Context, lateness func() time.Duration) {
	r.healed = r.watch.Now()
	r.late = lateness()
	r.bound = r.Lease + 2*time.Second + 10*r.late
	r.recovery = -1
	last := r.awaitLeader(ctx, r.bound+r.Lease) // who has just been told to stop may hold it for so long
	if last == nil {
		return
	}
	last.kill()
	killed := r.watch.Now()
	r.mu.Lock()
	token := r.highest
	r.mu.Unlock()
	r.note(event{
		Kind: kill, On: last.name, Seat: r.seatIndex(last), From: killed, To: killed,
		Text: last.name + ", which leads, is killed, and not replaced",
	})
	r.awaitGrant(ctx, token, r.bound+5*time.Second)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.highest > token {
		r.recovery = time.Duration(r.grantedAt - killed)
	}
}

// heal ends all faults, and has every seat filled.
func (r *round) heal() error {
	if err := r.engine.heal(); err != nil {
		return err
	}
	for _, s := range r.seats {
		if p := s.now(); p == nil || !p.Alive() {
			if err := s.fill(nil); err != nil {
				return err
			}
		}
	}
	return nil
}
