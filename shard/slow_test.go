// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/shard"
)

// narrow is a store that writes one record at a time, for all who have it, and takes
// its time for that, as a database file on a slow disk does.
type narrow struct {
	driver.Store
	turn chan struct{}
	each time.Duration
}

func (n *narrow) pass(ctx context.Context) error {
	select {
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
		time.Sleep(n.each)
		return nil
	case <-ctx.Done():
		return driver.NotApplied(ctx.Err())
	}
}

func (n *narrow) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	if err := n.pass(ctx); err != nil {
		return now, prev, err
	}
	return n.Store.Claim(ctx, next)
}

func (n *narrow) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	if err := n.pass(ctx); err != nil {
		return driver.Record{}, err
	}
	return n.Store.Swap(ctx, prev, next)
}

// Many workers that fill a group on a store which is too slow for all of their
// claims at once keep their sessions: their heartbeats must get through.
func TestFillOnASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, partitions = 20, 2000
		s := newStage(t, shard.Options{Partitions: partitions})
		s.narrow = &narrow{turn: make(chan struct{}, 1), each: 20 * time.Millisecond}
		for i := range n {
			s.worker(fmt.Sprintf("w%d", i))
		}
		took := s.settle(n, partitions)
		lost := 0
		for _, w := range s.workers {
			lost += w.count(shard.EventLost)
		}
		if most := 3 * partitions * s.narrow.each; lost > 0 || took > most {
			t.Errorf("all were owned after %v, and %d sessions were lost; the writes alone take %v", took, lost, partitions*s.narrow.each)
		}
		t.Logf("%d partitions were owned after %v", partitions, took)
	})
}
