// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
)

// loneWeights are of the one that is to have all, and of the others.
const (
	heavyWeight = 1e6
	lightWeight = 1e-3
)

// alone kills a worker that has all partitions, while two others have none.
func (f *finding) alone(ctx context.Context, g *group, say func(string, ...any)) error {
	heavy, err := g.start(ctx, func(t *task) { t.Weight, t.Claims = heavyWeight, claimsAtOnce })
	if err != nil {
		return err
	}
	if err := g.untilSettled(ctx); err != nil {
		return err
	}
	for range 2 {
		if _, err := g.start(ctx, func(t *task) { t.Weight, t.Claims = lightWeight, claimsAtOnce }); err != nil {
			return err
		}
	}
	if err := g.untilSettled(ctx); err != nil {
		return err
	}
	l := &f.Lone
	if l.Rate, err = g.claimRate(ctx); err != nil {
		return fmt.Errorf("measure claims: %w", err)
	}
	if err := g.untilSettled(ctx); err != nil {
		return err
	}
	r, err := g.recover(ctx, "SIGKILL of a worker with all partitions", heavy)
	if err != nil {
		return err
	}
	l.Partitions, l.Lease, l.Closed, l.First, l.Took = r.Partitions, r.Lease, r.Closed, r.First, r.Took
	l.Look = g.size.Refresh.Seconds()
	l.Claims = float64(l.Partitions) / l.Rate
	l.Expected = l.Lease + l.Look + l.Claims
	l.Ratio = l.Took / l.Expected
	say("%d partitions of one worker owned by others after %.2f s, the first after %.2f s; expected %.2f s of the lease + %.2f s for a look + %.2f s for claims at %.0f a second",
		l.Partitions, l.Took, l.First, l.Lease, l.Look, l.Claims, l.Rate)
	return nil
}

// claimRate has one process leave as many locks as there are partitions under a
// closed session, and two others claim them.
func (g *group) claimRate(ctx context.Context) (float64, error) {
	var probes []*process
	for range 3 {
		p, err := g.start(ctx, func(t *task) { t.Probe = true })
		if err != nil {
			return 0, err
		}
		probes = append(probes, p)
		if err := g.until(ctx, "a probe is ready", func() bool { return p.ready }); err != nil {
			return 0, err
		}
	}
	n := g.size.partitions
	for _, part := range [][]order{{{takeAll, 0, n}}, {{claimAll, 0, n / 2}, {claimAll, n / 2, n}}} {
		first, last := int64(0), int64(0)
		for i, order := range part {
			if err := probes[i].Send(order); err != nil {
				return 0, err
			}
		}
		done := func() bool {
			for _, p := range probes[:len(part)] {
				if p.dead || len(p.done) == 0 {
					return p.dead
				}
			}
			return true
		}
		if err := g.until(ctx, "probes have claimed", done); err != nil {
			return 0, err
		}
		g.mu.Lock()
		for _, p := range probes[:len(part)] {
			if len(p.done) == 0 {
				g.mu.Unlock()
				return 0, fmt.Errorf("%s has ended", p.Name)
			}
			d := p.done[0]
			if first == 0 || d.Since < first {
				first = d.Since
			}
			last = max(last, d.At)
		}
		g.mu.Unlock()
		probes = probes[1:]
		if len(part) == 2 {
			return float64(n) / seconds(last-first), nil
		}
	}
	return 0, nil
}

// probe claims locks as a worker does, without a group around it. What it takes
// first it leaves as a worker does whose session was closed, so that others find
// the same as after a crash.
func probe(ctx context.Context, client *tenure.Client, p order, say func(note)) error {
	s, err := client.OpenSession(ctx, nil)
	if err != nil {
		return err
	}
	names := make([]string, p.Until-p.From)
	for i := range names {
		names[i] = fmt.Sprintf("probe:%d", p.From+i)
	}
	began := proc.Monotonic()
	if p.Do == claimAll {
		if _, errs := client.Statuses(ctx, names); errors.Join(errs...) != nil {
			return errors.Join(errs...)
		}
	}
	leases := make([]*tenure.Lease, len(names))
	err = wait.AtOnce(ctx, len(names), claimsAtOnce, func(ctx context.Context, i int) (err error) {
		leases[i], err = s.TryAcquire(ctx, names[i], nil)
		return err
	})
	if err != nil {
		return err
	}
	ended := proc.Monotonic()
	if p.Do == takeAll {
		for _, l := range leases {
			context.AfterFunc(l.Context(), func() { _ = l.Release(ctx) }) // with the session
		}
		if err := s.Close(ctx); err != nil {
			return err
		}
	}
	say(note{Kind: notedDone, Since: began, At: ended})
	return nil
}
