// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const lostRuns = 3

// lostOnAcquire loses the reply to the write that takes a free lock.
func lostOnAcquire(ctx context.Context, s *scene) (cell, error) {
	figures, err := s.repeat(ctx, lostRuns, func(ctx context.Context, _ int) (float64, error) {
		m, err := s.member(ctx, ordinary)
		if err != nil {
			return 0, err
		}
		defer m.Kill()
		// The first acquire of a process makes connections.
		if _, err := m.Acquire(ctx, s.lock()); err != nil {
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
	c := cell{Figures: figures, Verdict: passed, Seen: "got it after " + span(figures)}
	for _, f := range figures {
		c.Verdict = judge(c.Verdict == passed && f < milliseconds(int64(s.lease)))
	}
	if c.Verdict == failed {
		c.Seen += ": it waited for its own record to run out"
	}
	return c, nil
}

// lostOnHeartbeat loses the reply to one heartbeat.
func lostOnHeartbeat(ctx context.Context, s *scene) (cell, error) {
	p, err := s.pair(ctx, ordinary)
	if err != nil {
		return cell{}, err
	}
	p.holder.gate.LoseReply()
	if err := p.strikes(ctx); err != nil {
		return cell{}, err
	}
	return p.keeps(ctx)
}

// keeps is the cell of whether the holder still has the lock after a while in which another
// one waits for it.
func (p *pair) keeps(ctx context.Context) (cell, error) {
	looked := 5 * p.lease / 2
	select {
	case <-p.granted.Done():
		a, err := p.granted.Wait(ctx)
		if err != nil {
			return cell{}, err
		}
		b, err := p.work.ended(ctx, 2*p.lease)
		if err != nil {
			return cell{}, err
		}
		o := over{b, a.GotNs}
		gap := o.margin()
		return cell{Verdict: failed, Figures: []float64{gap}, Seen: fmt.Sprintf("lost a living holder's lock; %s", between(gap))}, nil
	case <-time.After(looked):
	case <-ctx.Done():
		return cell{}, context.Cause(ctx)
	}
	b, err := p.work.read()
	if err != nil {
		return cell{}, err
	}
	if b.over() || b.notice > 0 {
		return cell{Verdict: failed, Seen: "given up, though nobody else has it"}, nil
	}
	return cell{Verdict: passed, Seen: fmt.Sprintf("kept for the %s that were looked at", length(milliseconds(int64(looked))))}, nil
}

// between says what was between one holder's belief and the next one's grant.
func between(gap float64) string {
	if gap < 0 {
		return fmt.Sprintf("two holders for %s", length(-gap))
	}
	return fmt.Sprintf("nobody held it for %s", length(gap))
}
