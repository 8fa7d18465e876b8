// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"cirello.io/dynamolock/v2"

	"github.com/tenurelock/tenure/interop/peer/wire"
)

const (
	checkPeriod = time.Millisecond
	errorPause  = 50 * time.Millisecond

	// acquireBound is how long an acquire of work may outlast the work's
	// duration. The client's own limit is not in force while it loses races.
	acquireBound = 30 * time.Second
)

// work is the work command: acquire, hold and release until the time is up,
// with a log of the holds.
type work struct {
	client *dynamolock.Client
	req    *wire.Request
	counts wire.Counts
}

func (w *work) run() (*wire.Answer, error) {
	opts, err := acquireOptions(w.req)
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(w.req.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // every line is written at once
	deadline := time.Now().Add(milliseconds(w.req.DurationMs))
	ctx, cancel := context.WithDeadline(context.Background(), deadline.Add(acquireBound))
	defer cancel()
	for time.Now().Before(deadline) {
		if err := w.round(ctx, log, opts); err != nil {
			return nil, err
		}
		pause(ctx, milliseconds(w.req.PauseMs))
	}
	return &wire.Answer{Counts: &w.counts}, nil
}

// round returns an error only when the log cannot be written.
func (w *work) round(ctx context.Context, log *os.File, opts []dynamolock.AcquireLockOption) error {
	lock, err := w.client.AcquireLockWithContext(ctx, w.req.Name, opts...)
	switch {
	case err == nil:
	case kindOf(wire.Acquire, err) == wire.Other:
		w.failed(ctx, err)
		return nil
	default:
		w.counts.Refused++
		return nil
	}
	w.counts.Acquired++
	begin := wire.Monotonic()
	if lock.IsExpired() {
		// It came too late to be claimed for a single instant.
		w.counts.Expired++
		return nil
	}
	if err := write(log, wire.LogBegin, lock, begin); err != nil {
		return err
	}
	held, last := true, begin
	for until := begin + w.req.HoldMs*int64(time.Millisecond); last < until; {
		// The instant first, then the check: what is logged was not expired.
		now := wire.Monotonic()
		if held = !lock.IsExpired(); !held {
			break
		}
		last = now
		pause(ctx, checkPeriod)
	}
	if err := write(log, wire.LogEnd, lock, last); err != nil {
		return err
	}
	if !held {
		w.counts.Expired++
	}
	switch ok, err := w.client.ReleaseLock(lock); {
	case err != nil && kindOf(wire.Release, err) == wire.Other:
		w.failed(ctx, err)
	case ok:
		w.counts.Released++
	}
	return nil
}

func (w *work) failed(ctx context.Context, err error) {
	w.counts.Errors++
	w.counts.LastError = fmt.Sprintf("%T: %v", err, err)
	pause(ctx, errorPause)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func write(log *os.File, what string, lock *dynamolock.Lock, ns int64) error {
	_, err := fmt.Fprintf(log, "%s %s %d\n", what, lock.OwnerName(), ns)
	return err
}
