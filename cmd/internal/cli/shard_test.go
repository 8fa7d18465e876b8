// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/tenurelock/tenure/shard"
)

// aGroup is one in which everything happens at once.
func aGroup() groupView {
	since := time.Date(2024, 2, 29, 12, 0, 0, 0, time.Local)
	worker := func(place int, owner, state string, planned, owned int) shard.MemberStatus {
		m := shard.MemberStatus{
			Place: place, Owner: owner, Weight: 1, Planned: planned, Owned: owned, Share: 3,
			Leaving: state == shard.MemberLeaving, State: state, Host: "vm",
		}
		if m.Leaving {
			m.Share = 0
		}
		return m
	}
	v := groupView{
		Status: shard.Status{
			Group: "orders", Epoch: 7, Coordinator: "web-1", Workers: 3,
			Owned: 4, Moving: 3, Unowned: 5, Unassigned: 1, Imbalance: 4.0 / 3,
			Partitions: []shard.PartitionStatus{
				{ID: "0", Owner: "web-1", Place: 0, Planned: 0, Token: 3, Since: since, CheckpointBytes: 7},
				{ID: "1", Owner: "web-1", Place: 0, Planned: 2, Token: 1, Since: since},
				{ID: "2", Owner: "web-3", Place: 3, Planned: 0, Token: 1, Since: since},
				{ID: "3", Owner: "web-9", Place: -1, Planned: 0, Token: 4, Since: since},
				{ID: "4", Place: -1, Planned: 2, Token: 9},
				{ID: "5", Place: -1, Planned: 1},
				{ID: "6", Place: -1, Planned: 0, Token: 1, ReservedFor: "web-1"},
				{ID: "7", Place: -1, Planned: -1, Token: 1},
				{ID: "8", Place: -1, Planned: 0, Error: "unreadable"},
			},
			Members: []shard.MemberStatus{
				worker(0, "web-1", shard.MemberAlive, 5, 2), worker(1, "web-2", shard.MemberDead, 1, 0),
				worker(2, "web-4", shard.MemberAlive, 2, 0), worker(3, "web-3", shard.MemberLeaving, 0, 1),
			},
		},
	}
	v.count()
	return v
}

func TestGroupIsShown(t *testing.T) {
	v := aGroup()
	want := `
orders: 9 partitions, 3 workers and 1 dead, epoch 7, coordinator web-1
4 owned, 3 moving, 5 without owner, 1 unassigned; balance 1.33

PLACE  WORKER  STATE    HELD  PLANNED  SHARE  WEIGHT  MAX  ZONE  HOST  LABEL
0      web-1   alive    2     5        3.0    1       -    -     vm    -
1      web-2   dead     0     1        3.0    1       -    -     vm    -
2      web-4   alive    0     2        3.0    1       -    -     vm    -
3      web-3   leaving  1     0        -      1       -    -     vm    -

MOVING  FROM   TO
1       web-1  web-4
1       web-3  web-1
1       web-9  web-1

NO OWNER  WHY
1         all workers are full
1         cannot be read: unreadable
1         reserved for web-1
1         web-2 should have it, but is dead
1         web-4 will claim it

PARTITION  OWNER       PLANNED  TOKEN  SINCE                CHECKPOINT
0          web-1       web-1    3      2024-02-29 12:00:00  7 B
1          web-1       web-4    1      2024-02-29 12:00:00  -
2          web-3       web-1    1      2024-02-29 12:00:00  -
3          web-9       web-1    4      2024-02-29 12:00:00  -
4          -           web-4    9      -                    -
5          -           web-2    -      -                    -
6          -           web-1    1      -                    -
7          -           -        1      -                    -
8          unreadable  web-1    -      -                    -
`
	if d := cmp.Diff(want, "\n"+v.text(style{}, true)); d != "" {
		t.Errorf("the group (- want, + got):\n%s", d)
	}
	if text := v.text(style{}, false); strings.Contains(text, "PARTITION") || !strings.Contains(want, text) {
		t.Errorf("without partitions:\n%s", text)
	}
	for line := range strings.Lines(v.text(style{width: 40}, true)) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n >= 40 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	nobody := groupView{Status: shard.Status{
		Group: "orders", Partitions: []shard.PartitionStatus{{ID: "0", Place: -1, Planned: -1}},
	}}
	nobody.count()
	if d := cmp.Diff([]unowned{{"there is no worker", 1}}, nobody.unowned); d != "" {
		t.Errorf("without workers (- want, + got):\n%s", d)
	}
}
