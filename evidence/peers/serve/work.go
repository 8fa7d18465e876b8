// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package serve

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

const (
	checkPeriod = time.Millisecond
	errorPause  = 50 * time.Millisecond

	// acquireBound is how long an acquire of work may outlast the work's
	// duration. A client's own limit is not in force while it loses races.
	acquireBound = 30 * time.Second
)

// work is the work command: acquire, hold and release until the time is up,
// with a log of the holds.
type work struct {
	client  Client
	owner   string
	request *wire.Request
	counts  wire.Counts
}

func (w *work) run(ctx context.Context) (wire.Answer, error) {
	log, err := os.OpenFile(w.request.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return wire.Answer{}, err
	}
	defer func() { _ = log.Close() }() // every line is written at once
	deadline := time.Now().Add(Milliseconds(&w.request.DurationMs))
	ctx, cancel := context.WithDeadline(ctx, deadline.Add(acquireBound))
	defer cancel()
	for time.Now().Before(deadline) {
		if err := w.round(ctx, log); err != nil {
			return wire.Answer{}, err
		}
		wait.Rest(ctx, Milliseconds(&w.request.PauseMs)) // the next acquire ends with ctx, too
	}
	return wire.Answer{Counts: &w.counts}, nil
}

// round returns an error only when the log cannot be written.
func (w *work) round(ctx context.Context, log *os.File) error {
	lock, err := w.client.Acquire(ctx, w.request)
	switch {
	case err == nil:
	case kindOf(err) == wire.Other:
		w.failed(ctx, err)
		return nil
	default:
		w.counts.Refused++
		return nil
	}
	w.counts.Acquired++
	begin := proc.Monotonic()
	if !lock.Check() {
		// It came too late to be claimed for a single instant.
		w.counts.Expired++
		return nil
	}
	if err := w.write(log, wire.LogBegin, begin, lock); err != nil {
		return err
	}
	held, last := true, begin
	for until := begin + w.request.HoldMs*int64(time.Millisecond); last < until; {
		// The instant first, then the check: what is logged was not expired.
		now := proc.Monotonic()
		if held = lock.Check(); !held {
			break
		}
		last = now
		wait.Rest(ctx, checkPeriod) // an end of ctx is seen by the next acquire
	}
	if err := w.write(log, wire.LogEnd, last, nil); err != nil {
		return err
	}
	if !held {
		w.counts.Expired++
	}
	switch err := lock.Release(&wire.Request{}); {
	case err == nil:
		w.counts.Released++
	case kindOf(err) == wire.Other:
		w.failed(ctx, err)
	}
	return nil
}

func (w *work) failed(ctx context.Context, err error) {
	w.counts.Errors++
	w.counts.LastError = fmt.Sprintf("%T: %v", err, err)
	wait.Rest(ctx, errorPause) // the next acquire ends with ctx, too
}

// write writes a line; with the lock's token, if there is one.
func (w *work) write(log *os.File, what string, ns int64, lock Lock) error {
	line := wire.LogLine{What: what, Owner: w.owner, At: ns}
	if lock != nil {
		line.Token, _ = lock.Token()
	}
	_, err := fmt.Fprintln(log, line)
	return err
}
