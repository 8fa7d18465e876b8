// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// engine is what the locks of a round are kept in.
type engine interface {
	// store returns the URL of the store for a replica, past its proxy if there
	// are proxies.
	store(replica int) string
	// faults are those that this engine can have.
	faults() []fault
	// strike brings one about: for one replica, or for all if that is negative.
	strike(ctx context.Context, f fault, length time.Duration, replica int) error
	// heal ends all faults of the engine.
	heal() error
	// lost is how many pieces of bytes have vanished on the way.
	lost() int
	// last reads the record of the lock.
	last(ctx context.Context) (driver.Record, error)
	close() error
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
