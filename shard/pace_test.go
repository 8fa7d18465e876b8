// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"testing"
	"time"
)

// Claims that are quick become more, those that are slow fewer; and what is slow goes
// by the heartbeat.
func TestPace(t *testing.T) {
	const most = 16
	for _, tt := range []struct {
		name      string
		heartbeat time.Duration
		took      []time.Duration
		least     int
		most      int
	}{
		{"quick ones", 3 * time.Second, []time.Duration{5 * time.Millisecond}, most, most},
		{"slow ones", 3 * time.Second, []time.Duration{5 * time.Millisecond, 800 * time.Millisecond}, 1, 2},
		{"quick ones, for another heartbeat", 200 * time.Millisecond, []time.Duration{25 * time.Millisecond}, most, most},
		{"slow ones, for another heartbeat", 200 * time.Millisecond, []time.Duration{26 * time.Millisecond}, 1, 1},
		{"one slow in ten", 3 * time.Second, []time.Duration{
			800 * time.Millisecond, 1, 1, 1, 1, 1, 1, 1, 1, 1,
		}, 1, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPace(most, tt.heartbeat)
			if p.atOnce != firstClaims {
				t.Errorf("%d at once at first", p.atOnce)
			}
			for range 100 {
				for _, d := range tt.took {
					p.took(d)
				}
			}
			if p.atOnce < tt.least || p.atOnce > tt.most {
				t.Errorf("%d at once, want %d to %d", p.atOnce, tt.least, tt.most)
			}
		})
	}
	if p := newPace(1, time.Second); p.atOnce != 1 {
		t.Errorf("%d at once, where one is the most", p.atOnce)
	}
}
