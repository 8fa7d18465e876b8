// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import (
	"context"

	"github.com/tenurelock/tenure"
)

// Work is what is run. Its context carries the values of the caller's, and ends
// with the caller's, with the lease, and when [Options.Timeout] has passed;
// context.Cause says why. Work must return then: heartbeats go on meanwhile, for
// [tenure.Options.StopTimeout] at most.
//
// [tenure.FromContext] has the lease of the lock. Its data are the ledger: work
// must not call SetData, Release or ReleaseWith on it.
type Work func(ctx context.Context, turn *Turn) error

// Turn gives the work its slot, and its right to act. All methods may be called
// concurrently.
//
// It is a [github.com/tenurelock/tenure/fence.Grant].
type Turn struct {
	lease   *tenure.Lease
	slot    int64
	attempt int
	end     func(ctx context.Context, attempt int, err error, left string) error
}

// Slot returns the slot that the work runs for: with [Options.CatchUp] perhaps an earlier
// slot than the call's. For [Every] it is the number of the period.
func (t *Turn) Slot() int64 { return t.slot }

// Attempt returns the number of this attempt, from 1: see [Options.Retries].
func (t *Turn) Attempt() int { return t.attempt }

// Name returns the name of the lock: see [LockName] and [EveryLockName].
func (t *Turn) Name() string { return t.lease.Name() }

// Token returns the fencing token: see [tenure.Lease.Token]. Slots that are caught
// up have the token of the slot after them.
func (t *Turn) Token() uint64 { return t.lease.Token() }

// Owner returns the name under which the lock is held.
func (t *Turn) Owner() string { return t.lease.Owner() }

// Ended writes into the ledger, before the work returns, that it has ended with err, and
// what it has left behind and waits for: a daemon that a command has started, say. The
// text left is cut to 200 bytes. The lock stays held; other processes see the text in
// [RunningError] and [Run].Left. When the work returns, its outcome replaces what Ended
// wrote. After that Ended does nothing.
func (t *Turn) Ended(ctx context.Context, err error, left string) error {
	return t.end(ctx, t.attempt, err, left)
}

// Check returns nil while the work may act: see [tenure.Lease.Check]. Call it
// before every side effect.
func (t *Turn) Check() error { return t.lease.Check() }
