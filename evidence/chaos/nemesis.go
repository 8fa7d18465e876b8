// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/chaos/replica"
	"github.com/tenurelock/tenure/evidence/chaos/trial"
)

// nemesis deals faults until ctx ends, and returns when they are over.
func (r *round) nemesis(ctx context.Context, random *rand.Rand) {
	deck := append(processFaults(r.namespaces), r.engine.faults()...)
	if len(r.Only) > 0 {
		deck = slices.DeleteFunc(deck, func(f fault) bool { return !slices.Contains(r.Only, f.kind) })
	}
	if len(deck) == 0 {
		r.trouble("%s has no faults like %v", r.Engine, r.Only)
		return
	}
	in := func(leases float64) time.Duration { return time.Duration(leases * float64(r.Lease)) }
	var cards []trial.Fault
	for _, f := range deck {
		cards = append(cards, trial.Fault{
			Least: in(f.least), Most: in(f.most),
			Strike: func(ctx context.Context, length time.Duration, random *rand.Rand) {
				r.strike(ctx, f, length, random)
			},
		})
	}
	trial.Deal(ctx, cards, in(0.3), in(1.2), random)
}

// strike brings about one fault.
func (r *round) strike(ctx context.Context, f fault, length time.Duration, random *rand.Rand) {
	e := event{Kind: f.kind, Seat: -1, From: r.watch.Now()}
	var err error
	switch f.on {
	case nobody, everybody:
		if !r.engineBusy.TryLock() {
			return
		}
		defer r.engineBusy.Unlock()
		e.On = "engine"
		if f.on == everybody {
			e.On = "everybody"
		}
		err = r.engine.strike(ctx, f, length, -1)
	case leader, anyone:
		s := r.seatOf(f.on, random)
		if !s.busy.TryLock() {
			return
		}
		defer s.busy.Unlock()
		p := s.now()
		if p == nil || !p.Alive() {
			err = s.fill(s.draw(random))
			e.Kind, e.On, e.Seat = start, s.name, s.index
			break
		}
		e.On, e.Seat = p.name, s.index
		err = r.strikeSeat(ctx, s, p, f, length, random, &e)
	}
	if e.To == 0 || e.Blind[0] > 0 {
		e.To = r.watch.Now()
	}
	if err != nil {
		r.trouble("%s of %s: %v", f.kind, e.On, err)
		return
	}
	if e.Text == "" {
		e.Text = fmt.Sprintf("%s of %s for %v", e.Kind, e.On, time.Duration(e.To-e.From).Round(time.Millisecond))
	}
	r.note(e)
}

func (r *round) strikeSeat(ctx context.Context, s *seat, p *process, f fault, length time.Duration,
	random *rand.Rand, e *event,
) error {
	switch f.kind {
	case kill:
		p.kill()
		wait.Rest(ctx, length)
		return s.fill(s.draw(random))
	case namespace:
		p.kill()
		wait.Rest(ctx, length)
		return s.fill(drawNamespace(random))
	case stepDown:
		_ = p.SendLine(replica.OrderStepDown) // it may have ended
		e.Text = p.name + " asks the leader to step down"
		return nil
	case stop:
		if err := p.stop(); err != nil {
			return err
		}
		wait.Rest(ctx, length)
		return p.Continue()
	case wallOn, wallBack:
		if f.kind == wallBack {
			length = -length
		}
		e.Text = fmt.Sprintf("%s sees its wall clock set by %+v", p.name, length.Round(time.Millisecond))
		return r.move(ctx, p, e, 0, func(time.Duration) replica.Shift { return replica.Shift{WallOn: length} })
	case suspend:
		return r.move(ctx, p, e, length,
			func(took time.Duration) replica.Shift { return replica.Shift{MonoBack: took} })
	case pauseVM:
		return r.move(ctx, p, e, length,
			func(took time.Duration) replica.Shift { return replica.Shift{MonoBack: took, BootBack: took} })
	case lateVM:
		err := r.move(ctx, p, e, length, func(took time.Duration) replica.Shift {
			return replica.Shift{MonoBack: took, BootBack: took, WallOn: -took}
		})
		if err != nil {
			return err
		}
		late := *e
		e.Blind[0] = e.To
		wait.Rest(ctx, time.Duration((0.05+0.2*random.Float64())*float64(r.Lease)))
		err = r.move(ctx, p, &late, 0,
			func(time.Duration) replica.Shift { return replica.Shift{WallOn: -e.Shift.WallOn} })
		e.Blind[1] = late.To
		return err
	default:
		return r.engine.strike(ctx, f, length, s.index)
	}
}

// move stops a replica for a while, moves its clocks meanwhile, and gives it the
// time to say what it sees then. E.To is right before it runs again.
func (r *round) move(ctx context.Context, p *process, e *event, length time.Duration,
	by func(took time.Duration) replica.Shift,
) error {
	if err := p.stop(); err != nil {
		return err
	}
	stands := r.watch.Now()
	wait.Rest(ctx, length)
	// What the process cannot have seen pass is what passed while it stood.
	e.Shift = by(time.Duration(r.watch.Now() - stands))
	p.page.Add(e.Shift)
	_, e.Change = p.page.Load()
	e.To = r.watch.Now()
	if err := p.Continue(); err != nil {
		return err
	}
	if p.sees(ctx, e.Change, 10*time.Second) || !p.Alive() {
		return nil
	}
	return fmt.Errorf("%s has not looked at its clocks since they were moved", p.name)
}
