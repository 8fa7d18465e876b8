// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/serve"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// pairs makes acquires and releases in n goroutines or threads, each of a lock of
// its own, for a while, and returns how many it made a second.
type pairs func(ctx context.Context, n int, d time.Duration) (float64, error)

// throughput measures pairs of an acquire and a release, in runs of one client
// after the other. The requests do not go through a counter, which would be a
// part of the load; but where each of them is to take longer, a proxy sees to it.
func throughput(ctx context.Context, r *rig) error {
	for _, load := range r.size.loads {
		if err := r.pace(ctx, load); err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) pace(ctx context.Context, load workload) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the clients in this process
	makers := make([]pairs, len(r.clients))
	for i, c := range r.clients {
		s, err := r.stage(ctx, c, r.size.handover)
		if err != nil {
			return err
		}
		defer func() { _ = s.close(ctx) }() // the sizes of its items are those of other steps
		if makers[i], err = s.pairs(ctx, load.delay); err != nil {
			return fmt.Errorf("%s: %w", c.Kind, err)
		}
		// The virtual machine compiles, connections are made.
		if _, err := makers[i](ctx, load.goroutines, r.size.throughput); err != nil {
			return fmt.Errorf("%s: %w", c.Kind, err)
		}
	}
	rates := map[string][]float64{}
	for run := range r.size.runs {
		for k := range makers {
			i := (k + run) % len(makers)
			rate, err := makers[i](ctx, load.goroutines, r.size.throughput)
			if err != nil {
				return fmt.Errorf("%s: %w", string(r.clients[i].Kind), err)
			}
			rates[string(r.clients[i].Kind)] = append(rates[string(r.clients[i].Kind)], rate)
		}
	}
	line := row{Step: "throughput", Kind: paced}
	line.Setting = fmt.Sprintf("%v; runs of %v, the clients in turn, the next run beginning with another one; goroutines, or threads in Java, each with a lock of its own; "+
		"straight to the engine, not counted; where a delay is added, through a proxy that adds it; "+
		"both clients in Go in the process of the benchmark, with 256 idle connections each; the engine on the same cores", r.size.handover, r.size.throughput)
	var ratios []float64
	for i, theirs := range rates[dynamolockName] {
		if ours := rates[tenureName]; i < len(ours) {
			ratios = append(ratios, ours[i]/theirs)
		}
	}
	if len(ratios) > 0 {
		line.Ratio = newSpread(ratios)
	}
	for name, rate := range rates {
		r.put(line, load.String(), name, value{Spread: newSpread(rate)})
	}
	return nil
}

func (w workload) String() string {
	s := fmt.Sprintf("%d goroutines", w.goroutines)
	if w.goroutines == 1 {
		s = "1 goroutine"
	}
	if w.delay > 0 {
		s += fmt.Sprintf(", %v added to each request", w.delay)
	}
	return s
}

func (s *stage) pairs(ctx context.Context, delay time.Duration) (pairs, error) {
	endpoint := s.engine
	if delay > 0 {
		endpoint = s.wire.Address()
		s.wire.Slow(delay)
	}
	switch s.name {
	case tenureName:
		return s.libraryPairs(ctx, serve.OpenTenure, endpoint)
	case dynamolockName:
		return s.libraryPairs(ctx, serve.OpenDynamolock, endpoint)
	default:
		return s.processPairs(ctx, delay > 0)
	}
}

// inGoroutines calls pair in n goroutines until the time is up.
func inGoroutines(ctx context.Context, n int, d time.Duration, pair func(ctx context.Context, name string) error) (float64, error) {
	var made atomic.Int64
	start := time.Now()
	err := wait.AtOnce(ctx, n, n, func(ctx context.Context, i int) error {
		name := fmt.Sprintf("lock-%d", i)
		for time.Since(start) < d {
			if err := pair(ctx, name); err != nil {
				return err
			}
			made.Add(1)
		}
		return nil
	})
	return float64(made.Load()) / time.Since(start).Seconds(), err
}

// libraryPairs has a library in Go work in this process.
func (s *stage) libraryPairs(ctx context.Context, open func(*dynamodb.Client, *wire.Request) (serve.Client, error), endpoint string) (pairs, error) {
	db, _ := dynamo.ConnectWide(endpoint)
	request := s.Open(endpoint, s.table.Name)
	client, err := open(db, &request)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = client.Close() }) // it has nothing left to release
	return func(ctx context.Context, n int, d time.Duration) (float64, error) {
		return inGoroutines(ctx, n, d, func(ctx context.Context, name string) error {
			lock, err := client.Acquire(ctx, &wire.Request{Name: name, RefreshMs: request.RefreshMs})
			if err != nil {
				return err
			}
			return lock.Release(&wire.Request{})
		})
	}, nil
}

// processPairs has a process of the client work in a loop of its own.
func (s *stage) processPairs(ctx context.Context, proxied bool) (pairs, error) {
	m, err := s.member(ctx, proxied)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, n int, d time.Duration) (float64, error) {
		var made, began, ended atomic.Int64
		err := wait.AtOnce(ctx, n, n, func(ctx context.Context, i int) error {
			a, err := m.Do(ctx, wire.Request{
				Command: wire.Work, Name: fmt.Sprintf("lock-%d", i), Log: "/dev/null",
				DurationMs: d.Milliseconds(), RefreshMs: peers.Milliseconds(s.Refresh),
			})
			if err != nil {
				return err
			}
			if a.Counts == nil || a.Counts.Errors > 0 {
				return fmt.Errorf("not all went well: %+v", a.Counts)
			}
			made.Add(a.Counts.Released)
			began.CompareAndSwap(0, a.SentNs)
			for last := ended.Load(); a.GotNs > last && !ended.CompareAndSwap(last, a.GotNs); last = ended.Load() {
			}
			return nil
		})
		took := time.Duration(ended.Load() - began.Load())
		return float64(made.Load()) / took.Seconds(), err
	}, nil
}
