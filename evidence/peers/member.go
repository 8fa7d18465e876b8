// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package peers

import (
	"context"
	"fmt"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// Member is a process with an open client, one of those who hold locks and wait for
// them.
type Member struct {
	*Process
	RefreshMs *int64 // between two looks at a held lock; nil: as the client does by itself
}

// Open starts a process and opens its client.
func (p *Program) Open(ctx context.Context, r wire.Request) (*Member, error) {
	ctx, cancel := context.WithTimeout(ctx, wait.Bound)
	defer cancel()
	ps, err := p.Start(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := ps.Do(ctx, r); err != nil {
		ps.Kill()
		return nil, fmt.Errorf("%s: %w", p.Kind, err)
	}
	return &Member{ps, r.RefreshMs}, nil
}

// Version is that of the client, and of what it runs on.
func (m *Member) Version() string { return m.Ready.Version + ", " + m.Ready.Runtime }

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

// Usage is what the member's process uses.
func (m *Member) Usage(ctx context.Context, collect bool) (wire.Usage, error) {
	a, err := m.Do(ctx, wire.Request{Command: wire.Measure, Collect: collect})
	if err == nil {
		return *a.Usage, nil
	}
	return wire.Usage{}, err
}
