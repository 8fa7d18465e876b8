// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package biller

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/fence"
)

// Ledger is what the replicas write to. It refuses a former leader's late writes.
type Ledger struct {
	gate *fence.Gate

	mu      sync.Mutex
	tokens  []uint64 // of the invoices, in their order
	refused int
}

// Write writes an invoice under the token of the leader.
func (l *Ledger) Write(ctx context.Context, token uint64) error {
	err := l.gate.Do(ctx, "ledger", token, func(context.Context) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.tokens = append(l.tokens, token)
		return nil
	})
	if errors.Is(err, fence.ErrStale) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.refused++
	}
	return err
}

// Serve is a replica of the service. The leader writes an invoice each second.
func Serve(ctx context.Context, client *tenure.Client, ledger *Ledger) error {
	return client.Election("biller", nil).Run(ctx, func(ctx context.Context, lease *tenure.Lease) error {
		ticks := time.NewTicker(time.Second)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
			case <-ctx.Done():
				return nil
			}
			if err := lease.Check(); err != nil {
				return err
			}
			err := ledger.Write(ctx, lease.Token())
			if errors.Is(err, fence.ErrStale) {
				<-ctx.Done() // another replica leads; the lease will say so soon
			} else if err != nil {
				return err
			}
		}
	})
}
