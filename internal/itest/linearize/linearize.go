// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package linearize checks that a store is linearizable: that what several
// clients saw of it at once, through lost replies, late writes and duplicates,
// can be explained by a register with a token that did one thing at a time.
//
// Each store's test calls [Check]; the search is porcupine's.
package linearize

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tenurelock/tenure/driver"
)

// Options sizes a check. Zero fields have defaults.
type Options struct {
	// Rounds is how many histories are recorded and checked, each on keys of
	// its own: 10 if zero.
	Rounds int
	// Clients is how many clients a history has, each with a store of its own,
	// and Keys how many keys they share: 4 and 2 if zero.
	Clients, Keys int
	// Ops is how many calls each client makes: 80 if zero.
	Ops int
	// Seed chooses what the clients do and which faults they meet, and so,
	// though not how their calls interleave, what a round is: 1 if zero.
	Seed uint64
	// ConflictsReadLater says that the record in a conflict is read after the
	// condition had failed, not in the same step.
	ConflictsReadLater bool
	// ClaimsGiveUp says that a claim which others come before again and again ends in a
	// conflict with what it has found last, and that may be free.
	ClaimsGiveUp bool
}

func (o *Options) withDefaults() Options {
	out := Options{}
	if o != nil {
		out = *o
	}
	for _, f := range []struct {
		field *int
		value int
	}{{&out.Rounds, 10}, {&out.Clients, 4}, {&out.Keys, 2}, {&out.Ops, 80}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	if out.Seed == 0 {
		out.Seed = 1
	}
	return out
}

// checkTimeout bounds the search through one history, which takes
// milliseconds as a rule.
const checkTimeout = time.Minute

// Check records histories on the stores that open returns, each call a further
// client onto the same database, and fails the test if one of them is not
// linearizable. opts may be nil. It closes the stores.
func Check(t *testing.T, open func(t *testing.T) driver.Store, opts *Options) {
	t.Helper()
	o := opts.withDefaults()
	for round := range o.Rounds {
		h := record(t, open, o, round)
		result, info := h.check(checkTimeout)
		t.Logf("round %d: %d calls, %d outcomes unknown: %s", round, len(h.calls), h.unknown(), result)
		if result == porcupine.Ok {
			continue
		}
		path := filepath.Join(os.TempDir(), fmt.Sprintf("linearize-%d-%d.html", os.Getpid(), round)) //nolint:usetesting // it is to outlive the test
		if err := porcupine.VisualizePath(h.model(), info, path); err != nil {
			t.Errorf("cannot draw the history: %v", err)
		}
		t.Fatalf("round %d of seed %d is not linearizable (%s): see %s", round, o.Seed, result, path)
	}
}

// keys are what a round works on: locks; the keys of history, each of which is
// written once; and sessions, which are deleted when they are closed.
type keys struct{ locks, past, sessions []string }

func (k keys) all() []string { return slices.Concat(k.locks, k.past, k.sessions) }

// record runs one round and returns its history.
func record(t *testing.T, open func(t *testing.T) driver.Store, o Options, round int) *history {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h := &history{conflictsReadLater: o.ConflictsReadLater, claimsGiveUp: o.ClaimsGiveUp}
	names := keys{locks: make([]string, o.Keys), past: make([]string, o.Ops/8), sessions: make([]string, o.Keys)}
	for i := range names.locks {
		names.locks[i] = fmt.Sprintf("linearize-%d-%d-%d", o.Seed, round, i)
	}
	for i := range names.past {
		names.past[i] = fmt.Sprintf("%slinearize-%d-%d-%d", driver.OwnPrefix, o.Seed, round, i)
	}
	for i := range names.sessions {
		names.sessions[i] = fmt.Sprintf("%slinearize-%d-%d-%d", driver.SessionPrefix, o.Seed, round, i)
	}
	run(ctx, t, open, o, round, names, h)
	return h
}
