// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"testing"
	"time"
)

// A replica's work and its client report from two goroutines: that it waited
// may come after that it leads.
func TestLateReportOfWaiting(t *testing.T) {
	s := &stage{lease: 3 * time.Second}
	s.apply(report{Kind: leading, Replica: "replica-2", Token: 2, Time: at(1)})
	s.apply(report{Kind: waiting, Replica: "replica-2", Token: 1, Owner: "replica-1", Time: at(0.9)})
	if s.leader == nil || s.leader.name != "replica-2" {
		t.Errorf("the leader is %+v, want replica-2", s.leader)
	}
}

// The lease of a killed leader stands until it has run out, or another leads;
// a released one is gone at once.
func TestLeaseLeft(t *testing.T) {
	s := &stage{lease: 3 * time.Second}
	a, b := s.find("replica-1"), s.find("replica-2")
	left := func(r *replica, second float64, want time.Duration) {
		t.Helper()
		if got := s.left(r, at(second)); got != want {
			t.Errorf("%s has %v left, want %v", r.name, got, want)
		}
	}
	left(a, 0, 0)
	s.apply(report{Kind: leading, Replica: a.name, Token: 1, Time: at(0)})
	left(a, 1, 2*time.Second)
	s.apply(report{Kind: renewed, Replica: a.name, Token: 1, Time: at(1.5), Took: seconds(500 * time.Millisecond)})
	left(a, 2, 2*time.Second)
	s.apply(report{Kind: killed, Replica: a.name, Token: 1, Time: at(2)})
	left(a, 3, time.Second)
	left(a, 5, 0)
	s.apply(report{Kind: leading, Replica: b.name, Token: 2, Time: at(4)})
	left(a, 4, 0)
	left(b, 4, 3*time.Second)
	s.apply(report{Kind: released, Replica: b.name, Token: 2, Time: at(5)})
	left(b, 5, 0)
}
