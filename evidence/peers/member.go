// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package peers

import (
	"context"
	"time"

	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// Member is a process with an open client, one of those who hold locks and wait for
// them.
type Member struct {
	*Process
	RefreshMs *int64 // between two looks at a held lock; nil: as the client does by itself
}

// Asking is a request about a lock. To acquire it means to wait for as long as it
// takes: some clients give up by default.
func (m *Member) Asking(command, name string) wire.Request {
	return wire.Request{Command: command, Name: name, RefreshMs: m.RefreshMs, WaitMs: Milliseconds(time.Hour)}
}

// Acquire waits for the lock, for as long as ctx lasts.
func (m *Member) Acquire(ctx context.Context, name string) (wire.Answer, error) {
	return m.Do(ctx, m.Asking(wire.Acquire, name))
}

// Release gives the lock back.
func (m *Member) Release(ctx context.Context, name string) (wire.Answer, error) {
	return m.Do(ctx, m.Asking(wire.Release, name))
}

// Holds says whether the member's own handle says that it still has the lock.
func (m *Member) Holds(ctx context.Context, name string) (bool, error) {
	a, err := m.Do(ctx, m.Asking(wire.Holds, name))
	return err == nil && a.Holds != nil && *a.Holds, err
}
