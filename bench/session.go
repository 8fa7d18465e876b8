// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"time"
)

// crowdSize is how many locks one process holds in the step of sessions, and for
// how long.
type crowdSize struct {
	tenure     []int // under one session
	dynamolock []int // each its own
	timing     timing
	delay      time.Duration // added to each request
	hold       time.Duration
	profiles   string // a folder for them; empty: none are written
}

// holding is what came of it.
type holding struct {
	Locks     int     `json:"locks"`
	Acquire   figures `json:"acquire"`
	Acquiring usage   `json:"acquiring"` // counted on the wire, as all usage
	Hold      figures `json:"hold"`
	Holding   usage   `json:"holding"` // in a heartbeat period
	Periods   float64 `json:"periods"`
	Close     figures `json:"close"`
	Closing   usage   `json:"closing"`
}

// perLock is a share of what all locks use.
func (h *holding) perLock(n int64) float64 { return float64(n) / float64(h.Locks) }

// cpuMinute is how many seconds of a processor the process uses in a minute.
func (h *holding) cpuMinute() float64 { return h.Hold.CPU / h.Hold.Took * 60 }

// sessions holds many locks in one process: with one heartbeat in all, and with
// one for each. One process at a time: none is to suffer from another's load.
func sessions(ctx context.Context, r *rig) error {
	size := r.size.crowd
	var all findings
	for _, c := range r.clients {
		counts := map[string][]int{tenureName: size.tenure, dynamolockName: size.dynamolock}[c.name]
		for _, n := range counts {
			err := r.staged(ctx, c, size.timing, func(ctx context.Context, s *stage) error {
				h, err := s.holdMany(ctx, n, size)
				if err != nil {
					return err
				}
				setting := fmt.Sprintf("%v, %v added to each request by the proxy that counts them; held for %v, looked at each second; "+
					"memory and goroutines are those of the client's process, which has no other work; Tenure has one session; dynamolock has its defaults, and says of a lock that it is lost by IsExpired",
					s.timing, size.delay, size.hold)
				all.put(row{Step: "session", What: fmt.Sprintf("%d locks", n), Setting: setting, Kind: crowded}, c.name, value{Held: h})
				r.say("session: %s with %d locks: %d lost, %.1f s to take them, %s requests a heartbeat period", c.name, n, h.Hold.Lost, h.Acquire.Took, amount(h.Holding.Requests))
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	r.add(all.rows...)
	return nil
}

// holdMany has a process take locks, hold them, and give them back. With an error
// it returns what was found before.
func (s *stage) holdMany(ctx context.Context, locks int, size crowdSize) (h *holding, err error) {
	c, err := s.crowd(ctx)
	if err != nil {
		return nil, err
	}
	defer c.end()
	h = &holding{Locks: locks}
	if size.profiles != "" {
		if _, err := c.do(order{Do: toProfile, To: size.profiles}); err != nil {
			return nil, err
		}
	}
	s.wire.delay = size.delay
	_, err = c.do(order{
		Do: toOpen, Client: s.name, Endpoint: s.wire.URL, Table: s.table,
		Lease: s.lease, Heartbeat: s.heartbeat, Refresh: s.refresh,
	})
	if err != nil {
		return nil, err
	}
	for _, part := range []struct {
		order
		found *figures
		used  *usage
	}{
		{order{Do: toAcquire, Locks: locks}, &h.Acquire, &h.Acquiring},
		{order{Do: toHold, For: size.hold}, &h.Hold, &h.Holding},
		{order{Do: toClose}, &h.Close, &h.Closing},
	} {
		if _, err := s.wire.take(); err != nil {
			return h, err
		}
		found, failed := c.do(part.order)
		used, err := s.wire.take()
		*part.found, *part.used = found, used
		if err := firstOf(failed, err); err != nil {
			return h, err
		}
		if part.Do == toHold {
			h.Periods = h.Hold.Took / s.heartbeat.Seconds()
			h.Holding = h.Holding.over(h.Periods)
		}
	}
	return h, nil
}
