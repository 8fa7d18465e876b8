// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/interop/peer/wire"
)

// claimsAtOnce is how many claims a worker of a group has under way, by default.
const claimsAtOnce = 64

// probing is what a probe is told: some of the locks.
type probing struct {
	Do    string `json:"do"`
	From  int    `json:"from"`
	Until int    `json:"until"`
}

// probe claims locks as a worker does, without a group around it. What it takes
// first it leaves as a worker does whose session was closed, so that others find
// the same as after a crash.
func (w *shardWorker) probe(ctx context.Context, line []byte) error {
	var p probing
	if err := json.Unmarshal(line, &p); err != nil {
		return err
	}
	s, err := w.client.OpenSession(ctx, nil)
	if err != nil {
		return err
	}
	names := make([]string, p.Until-p.From)
	for i := range names {
		names[i] = fmt.Sprintf("probe:%d", p.From+i)
	}
	began := wire.Monotonic()
	if p.Do == claimAll {
		if _, errs := w.client.Statuses(ctx, names); errors.Join(errs...) != nil {
			return errors.Join(errs...)
		}
	}
	leases := make([]*tenure.Lease, len(names))
	err = atOnce(ctx, len(names), claimsAtOnce, func(ctx context.Context, i int) (err error) {
		leases[i], err = s.TryAcquire(ctx, names[i], nil)
		return err
	})
	if err != nil {
		return err
	}
	ended := wire.Monotonic()
	if p.Do == takeAll {
		for _, l := range leases {
			context.AfterFunc(l.Context(), func() { _ = l.Release(ctx) }) // with the session
		}
		if err := s.Close(ctx); err != nil {
			return err
		}
	}
	w.say(note{Kind: notedDone, Since: began, At: ended})
	return nil
}
