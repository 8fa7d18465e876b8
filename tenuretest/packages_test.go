// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuretest_test

import (
	"context"
	"testing"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/shard"
	"github.com/tenurelock/tenure/tasks"
	"github.com/tenurelock/tenure/tenuretest"
)

// A group of tasks runs as it is, and fails over.
func TestTasks(t *testing.T) {
	inBubble(t, func(t *testing.T, w *tenuretest.World, a, b *tenuretest.Client) {
		for _, c := range []*tenuretest.Client{a, b} {
			group := tasks.New(c.Election("x", nil), nil)
			group.Leading("work", func(ctx context.Context, _ *tenure.Lease) error { <-ctx.Done(); return nil })
			group.Following("watch", func(ctx context.Context, _ *tasks.Followed) error { <-ctx.Done(); return nil })
			go func() {
				if err := group.Run(t.Context()); err != nil && t.Context().Err() != nil {
					t.Error(err)
				}
			}()
		}
		first := w.Leader("x")
		first.Kill()
		if next := w.LeaderAfter(first); next.Client == first.Client {
			t.Error("the killed one leads")
		}
	})
}

// The partitions of a killed worker, and of a paused one, move to the other.
func TestShards(t *testing.T) {
	for name, fail := range map[string]func(*tenuretest.Client){
		"killed": (*tenuretest.Client).Kill,
		"paused": (*tenuretest.Client).Pause,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *tenuretest.World, a, b *tenuretest.Client) {
				const partitions = 4
				for _, c := range []*tenuretest.Client{a, b} {
					group, err := shard.New(c.Client, "orders", &shard.Options{Partitions: partitions})
					if err != nil {
						t.Fatal(err)
					}
					go func() {
						_ = group.Run(t.Context(), func(ctx context.Context, _ *shard.Partition) error { <-ctx.Done(); return nil })
					}()
				}
				has := func(c *tenuretest.Client, n int) func() bool {
					return func() bool {
						had := 0
						for _, id := range []string{"0", "1", "2", "3"} {
							if lock := shard.LockName("orders", id); w.Held(lock) && w.Leader(lock).Client == c {
								had++
							}
						}
						return had == n
					}
				}
				w.Until("each has half", has(a, partitions/2))
				fail(a)
				w.Until("the other has all", has(b, partitions))
			})
		})
	}
}
