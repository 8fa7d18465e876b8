// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore

import (
	"context"

	"github.com/tenurelock/tenure"
)

// Lease is the lease of the slot's lock. Its methods are those of [tenure.Lease], but
// Name and Token are the slot's: see [LockName]. Tokens of two slots cannot be
// compared. The resource to fence is one for each slot, by that name: a semaphore
// itself has no token, because several holders at once have no order.
//
// It is a [github.com/tenurelock/tenure/fence.Grant].
type Lease struct {
	*tenure.Lease
	s           *Semaphore
	slot, slots int
}

// Semaphore returns the name of the semaphore.
func (l *Lease) Semaphore() string { return l.s.name }

// Slot returns the number of the slot, from 0. No other holder has it.
func (l *Lease) Slot() int { return l.slot }

// Slots returns how many slots there were when this one was granted.
func (l *Lease) Slots() int { return l.slots }

// Release is as [tenure.Lease.Release]. It wakes waiters of this process.
func (l *Lease) Release(ctx context.Context) error { return l.ReleaseWith(ctx, nil) }

// ReleaseWith is as [tenure.Lease.ReleaseWith]. It wakes waiters of this process.
func (l *Lease) ReleaseWith(ctx context.Context, options *tenure.ReleaseOptions) error {
	err := l.Lease.ReleaseWith(ctx, options)
	l.s.view.left(l.slot, l)
	return err
}
