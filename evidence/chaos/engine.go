// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"time"
)

// engine is what the locks of a round are kept in.
type engine interface {
	// store returns the URL of the store for a replica, through its gate if there
	// are gates; past all of them if that is negative.
	store(replica int) string
	// faults are those that this engine can have.
	faults() []fault
	// strike brings one about: for one replica, or for all if that is negative.
	strike(ctx context.Context, f fault, length time.Duration, replica int) error
	// heal ends all faults of the engine.
	heal() error
	// lost is how many pieces of bytes have vanished on the way.
	lost() int
	close() error
}
