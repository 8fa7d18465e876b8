// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import (
	"context"
	"slices"

	"github.com/tenurelock/tenure"
)

// Status is what the store has of the slots of one name.
type Status struct {
	Name string `json:"name"`
	// Last is the highest slot that was begun; nil before the first one.
	Last *int64 `json:"last_slot"`
	// Held says that the lock shows a holder that may be alive, Owner and Token who
	// has it or had it last.
	Held  bool   `json:"held"`
	Owner string `json:"owner,omitempty"`
	Token uint64 `json:"token,omitempty"`
	// Runs are the last 20 runs, the newest first.
	Runs []Run `json:"runs"`
}

// Show reads the ledger of [Once] under this name, with one strong read. A name
// that was never used has no runs, and is no error. The error matches
// [tenure.ErrUnreadable] if the lock's data are not a ledger.
//
// A run that was begun and not ended is StateRunning as long as its holder may be
// alive, as far as this client can know; else it is StateUnknown.
func Show(ctx context.Context, client *tenure.Client, name string) (Status, error) {
	const op = "show runs of"
	if err := checkCall(client, name, true); err != nil {
		return Status{}, wrap(op, name, err)
	}
	st, l, err := look(ctx, client, name)
	if err != nil {
		return Status{}, wrap(op, name, err)
	}
	var last *int64
	if highest, ok := l.Begun.highest(); ok {
		last = &highest
	}
	return Status{Name: name, Last: last, Held: st.Held, Owner: st.Owner, Token: st.Token, Runs: runsOf(l.Runs, alive(st))}, nil
}

// look reads the ledger, past every cache.
func look(ctx context.Context, client *tenure.Client, name string) (tenure.Status, ledger, error) {
	st, err := client.Status(ctx, LockName(name))
	if err != nil {
		return st, ledger{}, err
	}
	l, err := parseOnce(st.Data, st.Token)
	return st, l, err
}

// alive returns the token of a holder that may be at work, 0 without one.
func alive(st tenure.Status) uint64 {
	if st.Held {
		return st.Token
	}
	return 0
}

// runsOf returns runs as others see them, the newest first.
func runsOf(entries []entry, alive uint64) []Run {
	runs := make([]Run, 0, len(entries))
	for _, e := range slices.Backward(entries) {
		runs = append(runs, e.run(alive))
	}
	return runs
}
