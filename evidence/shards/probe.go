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
