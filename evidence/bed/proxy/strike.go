// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"slices"
	"time"
)

// Strike is one fault that calls of a kind are to have, in the place of what is drawn.
type Strike struct {
	Fault Fault
	// Of says of a call whether it is to have the fault. Nil: all are. It is asked about one
	// call after the other.
	Of func(Call) bool
	// Times is how many calls have it. Zero: all, until [Proxy.Lift].
	Times int

	hits chan struct{} // has room for the first
	left int
}

// To is of calls to a path.
func To(path string) func(Call) bool { return func(c Call) bool { return c.Path == path } }

// Strike has calls have a fault, from now on.
func (p *Proxy) Strike(s Strike) *Strike {
	s.hits, s.left = make(chan struct{}, 1), s.Times
	p.mu.Lock()
	defer p.mu.Unlock()
	p.strikes = append(p.strikes, &s)
	return &s
}

// Lift ends a strike.
func (p *Proxy) Lift(s *Strike) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.strikes = slices.DeleteFunc(p.strikes, func(other *Strike) bool { return other == s })
}

// Hit waits until the strike has hit a call.
func (s *Strike) Hit(ctx context.Context) error {
	select {
	case <-s.hits:
		s.hits <- struct{}{}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// struck returns the fault that a call is to have. The caller holds mu.
func (p *Proxy) struck(c Call) (Fault, bool) {
	for _, s := range p.strikes {
		if s.Of != nil && !s.Of(c) || s.Times > 0 && s.left == 0 {
			continue
		}
		s.left--
		select {
		case s.hits <- struct{}{}:
		default:
		}
		return s.Fault, true
	}
	return None, false
}

// Captured returns the calls that were seen last and are of a kind, the oldest first.
func (p *Proxy) Captured(of func(Call) bool) []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.calls), func(c Call) bool { return !of(c) })
}

// Answer is what a server said to a call that was sent again.
type Answer struct {
	Status int
	Body   []byte
}

// Resend sends a call again, as an attacker does that has seen it, to a server that is
// drawn.
func (p *Proxy) Resend(ctx context.Context, c Call) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, resendBound)
	defer cancel()
	p.mu.Lock()
	target := p.random.IntN(len(p.targets))
	p.mu.Unlock()
	a, err := p.do(ctx, c, target)
	if err != nil {
		return Answer{}, err
	}
	return Answer{a.status, a.body}, nil
}

// Attack sends one of the captured calls of a kind again, each period, until ctx ends: of
// the last few of them one after the other.
func (p *Proxy) Attack(ctx context.Context, period time.Duration, few int, of func(Call) bool) {
	for n := 0; ; n++ {
		if calls := p.Captured(of); len(calls) > 0 {
			last := calls[max(0, len(calls)-few):]
			_, _ = p.Resend(ctx, last[n%len(last)]) // whatever it gets: others see what it does
		}
		select {
		case <-time.After(period):
		case <-ctx.Done():
			return
		}
	}
}
