// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureprom_test

import (
	"context"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/shard"
	"github.com/tenurelock/tenure/tenureprom"
	"github.com/tenurelock/tenure/tenuretest"
)

// TestShards has two workers share partitions.
func TestShards(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		all := map[string]*tenureprom.Metrics{}
		for _, name := range []string{"a", "b"} {
			m := tenureprom.New(nil)
			c := w.Client(name, m.Attach)
			g := testutil.Must(shard.New(c.Client, "orders", &shard.Options{Partitions: 10, OnEvent: m.OnShardEvent}))(t)
			m.WatchGroup(g)
			all[name] = m
			want(t, m, "before", map[string]float64{"tenure_shard_joined{group=orders}": 0, "tenure_shard_held{group=orders}": 0})
			go func() {
				ended <- g.Run(ctx, func(ctx context.Context, _ *shard.Partition) error { <-ctx.Done(); return nil })
			}()
			time.Sleep(time.Minute)
		}
		leaders := 0.0
		for name, m := range all {
			shown := scrape(t, m)
			leaders += shown["tenure_shard_coordinator{group=orders}"]
			want(t, m, name, map[string]float64{
				"tenure_shard_joined{group=orders}": 1, "tenure_shard_planned{group=orders}": 5, "tenure_shard_held{group=orders}": 5,
				"tenure_shard_surplus{group=orders}": 0, "tenure_shard_unassigned{group=orders}": 0, "tenure_shard_members{group=orders}": 2,
				"tenure_sessions_open{}": 1,
			})
		}
		if leaders != 1 {
			t.Errorf("%v coordinators", leaders)
		}
		want(t, all["a"], "a", map[string]float64{"tenure_shard_events_total{group=orders,kind=moved_out}": 5})
		want(t, all["b"], "b", map[string]float64{"tenure_shard_events_total{group=orders,kind=moved_in}": 5, "tenure_shard_move_seconds{group=orders} count": 5})
		stop()
		for range 2 {
			testutil.Want(t, <-ended, nil)
		}
	})
}
