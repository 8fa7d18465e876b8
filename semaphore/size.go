// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore

import (
	"context"
	"fmt"
	"time"
)

// MaxSlots is the most slots that a semaphore can have: each of them is a
// record that a waiter looks at.
const MaxSlots = 1000

// size is what the store keeps of a semaphore, as the data of a lock that
// is held only to change it.
type size struct {
	Slots int `json:"slots"`
	// Highest is how many slots may have holders, because there were so many
	// and no process has seen since that the others are free.
	Highest int `json:"highest"`
}

func (z size) bytes() []byte {
	return fmt.Appendf(nil, `{"slots":%d,"highest":%d}`, z.Slots, z.Highest)
}

func (z size) good() bool {
	return checkSlots(z.Slots) == nil && z.Highest >= z.Slots && z.Highest <= MaxSlots
}

// current returns the size that is stored, which is the waiter's own if there was none
// before.
func (w *waiter) current(ctx context.Context) (size, error) {
	return w.s.size.Current(ctx, size{w.first, w.first})
}

// recent returns a size that is no older than that.
func (w *waiter) recent(ctx context.Context, age time.Duration) (size, error) {
	if z, at := w.s.size.Known(); !at.IsZero() && time.Since(at) < age {
		return z, nil
	}
	return w.current(ctx)
}

// glanced is recent by a read that may be behind, for waiters: a process that takes a
// slot reads the size again.
func (w *waiter) glanced(ctx context.Context, age time.Duration) (size, error) {
	z, at := w.s.size.Known()
	if at.IsZero() {
		return w.current(ctx) // the first one lays it down
	}
	if time.Since(at) < age {
		return z, nil
	}
	z, ok, err := w.s.size.Glance(ctx)
	if !ok && err == nil {
		return w.current(ctx)
	}
	return z, err
}
