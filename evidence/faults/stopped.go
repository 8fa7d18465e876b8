// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

const stopRuns = 6

// stopAndContinue stops the holder until another one has had the lock for a
// while.
func stopAndContinue(ctx context.Context, s *scene) (cell, error) {
	figures, err := s.pairs(ctx, stopRuns, ordinary, func(ctx context.Context, p *pair, _ int) (float64, error) {
		if err := p.stop(ctx); err != nil {
			return 0, err
		}
		return p.wake(ctx, func() int64 { return 0 })
	})
	if err != nil {
		return cell{}, err
	}
	return believed(figures), nil
}

const suspendRuns = 3

// suspend suspends the holder until another one has had its lock for a while.
func suspend(ctx context.Context, s *scene) (cell, error) {
	figures, err := s.pairs(ctx, suspendRuns, suspendable, func(ctx context.Context, p *pair, _ int) (float64, error) {
		if err := p.stop(ctx); err != nil {
			return 0, err
		}
		stopped := proc.Monotonic()
		return p.wake(ctx, func() int64 {
			slept := proc.Monotonic() - stopped
			p.holder.sleep(time.Duration(slept))
			if !s.preloads() {
				slept = 0 // its log is by the machine's own clock
			}
			return slept
		})
	})
	if err != nil {
		return cell{}, err
	}
	return believed(figures), nil
}

// stop stops the holder in the middle of its work.
func (p *pair) stop(ctx context.Context) error {
	if p.scene.name != javaName {
		if _, err := p.holder.Do(ctx, p.holder.Asking(wire.Hurry, p.name)); err != nil {
			return err
		}
	}
	return p.holder.Stop(ctx)
}

// wake continues a holder that was stopped when another one has had its lock for
// a while, and returns for how long it believes. before is called just before, and
// returns by how much the clock of its log is behind from then on.
func (p *pair) wake(ctx context.Context, before func() (behind int64)) (float64, error) {
	bound, cancel := context.WithTimeout(ctx, 8*p.lease)
	defer cancel()
	if _, err := p.granted.Wait(bound); err != nil {
		return 0, fmt.Errorf("the other one gets the lock: %w", err)
	}
	if err := wait.For(ctx, p.beat()); err != nil {
		return 0, err
	}
	behind := before()
	continued := proc.Monotonic()
	if err := p.holder.Continue(); err != nil {
		return 0, err
	}
	b, err := p.work.ended(ctx, 2*p.lease)
	// A check that was passed before the instant is none of these.
	return max(0, milliseconds(b.until()+behind-continued)), err
}

// believed is the cell of for how long holders believed that should not have for
// an instant.
func believed(figures []float64) cell {
	var more []float64
	for _, f := range figures {
		if f > 0 {
			more = append(more, f)
		}
	}
	if len(more) == 0 {
		return cell{Verdict: passed, Figures: figures, Seen: fmt.Sprintf("its first check said no (%s)", runs(len(figures)))}
	}
	return cell{Verdict: failed, Figures: figures, Seen: fmt.Sprintf("believed for %s beside the other one, in %d of %s", span(more), len(more), runs(len(figures)))}
}

// tryEach is how often a caller asks that does not wait.
const tryEach = 100 * time.Millisecond

// tryDead kills a holder, and has another process ask for the lock now and then
// without waiting.
func tryDead(ctx context.Context, s *scene) (cell, error) {
	holder, caller, name, err := s.held(ctx)
	if err != nil {
		return cell{}, err
	}
	ask := caller.Asking(wire.Acquire, name)
	ask.TryOnly = true
	killed := int64(0)
	began := time.Now()
	for asked := 0; ; asked++ {
		if killed == 0 && time.Since(began) > s.lease/2 {
			killed = proc.Monotonic()
			holder.Kill()
		}
		a, err := caller.Do(ctx, ask)
		refused := (*peers.Refused)(nil)
		switch {
		case err == nil && killed == 0:
			return cell{}, errors.New("it got a lock that is held")
		case err == nil:
			took := milliseconds(a.GotNs - killed)
			return cell{
				Verdict: judge(took < milliseconds(int64(2*s.lease))), Figures: []float64{took},
				Seen: fmt.Sprintf("got it %s after the holder's death", length(took)),
			}, nil
		case errors.As(err, &refused) && refused.Kind == wire.Unsupported:
			return cell{Verdict: none, Seen: "has no call that does not wait"}, nil
		case !errors.As(err, &refused) || refused.Kind != wire.Held:
			return cell{}, err
		case killed != 0 && proc.Monotonic()-killed > (5*s.lease).Nanoseconds():
			return cell{Verdict: failed, Seen: fmt.Sprintf("refused for %s, %d times", length(milliseconds(int64(5*s.lease))), asked)}, nil
		}
		if err := wait.For(ctx, tryEach); err != nil {
			return cell{}, err
		}
	}
}
