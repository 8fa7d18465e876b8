// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"testing"

	"github.com/tenurelock/tenure/shard/internal/plan"
)

func BenchmarkMake(b *testing.B) {
	for _, c := range []struct{ members, partitions, vacant int }{
		{20, 2_000, 0},
		{20, 100_000, 0},
		{1_000, 100_000, 0},
		{1_000, 100_000, 50},
		{1_000, 100_000, 500},
		{4_000, 100_000, 0},
	} {
		b.Run(fmt.Sprintf("members=%d/partitions=%d/vacant=%d", c.members, c.partitions, c.vacant), func(b *testing.B) {
			in := plan.Input{Partitions: names(c.partitions), Members: members(c.members)}
			for i := range c.vacant {
				in.Members[i*c.members/c.vacant].Leaving = true
			}
			b.ReportAllocs()
			for b.Loop() {
				plan.Make(in)
			}
		})
	}
}

func BenchmarkRemake(b *testing.B) {
	in := plan.Input{Partitions: names(100_000), Members: members(1_000)}
	p := plan.Make(in)
	in.Members[500].Leaving = true
	b.ReportAllocs()
	for b.Loop() {
		p.Remake(in)
	}
}

func BenchmarkHeir(b *testing.B) {
	in := plan.Input{Partitions: names(100_000), Members: members(1_000)}
	p := plan.Make(in)
	places := 0
	for b.Loop() {
		// A place not asked about before, so that its heirs are worked out.
		p.Heir(p.Of(places % 999)[0])
		places++
	}
}
