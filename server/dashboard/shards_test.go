// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"testing"

	"github.com/tenurelock/tenure/shard"
)

// A worker's strip has what it has, what it is to give away and what it is to get; neighbours are one piece.
func TestStrips(t *testing.T) {
	got := ""
	for _, s := range stripsOf(shard.Status{
		Unowned: 1,
		Members: []shard.MemberStatus{
			{Place: 0, Owner: "a", Owned: 3, Planned: 2},
			{Place: 1, Owner: "b", State: shard.MemberDead, Planned: 3},
		},
		Partitions: []shard.PartitionStatus{
			{ID: "0", Owner: "a", Place: 0, Planned: 0},
			{ID: "1", Owner: "a", Place: 0, Planned: 0},
			{ID: "2", Owner: "a", Place: 0, Planned: 1},
			{ID: "3", Owner: "c", Place: -1, Planned: 1},
			{ID: "4", Place: -1, Planned: 1},
		},
	}) {
		got += fmt.Sprintf("%s %s %s:", s.Owner, s.Class, s.Counts)
		for _, run := range s.Runs {
			got += fmt.Sprintf(" {%s+%s %s %s}", run.X, run.W, run.Class, run.Title)
		}
		got += "\n"
	}
	if want := `a held 3 of 2: {0%+40% has 0 to 1: has} {40%+20% leaves 2: has, another should have it}
b expired 0 of 3: {40%+60% comes 2 to 4: should have}
not in the membership asked : {60%+20% leaves 3: has, another should have it}
nobody expired 1: {80%+20% nobody 4: has no owner}
`; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
