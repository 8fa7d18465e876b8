// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"cmp"
	"time"
)

// stage is what the reports have shown so far.
type stage struct {
	lease    time.Duration
	replicas []*replica // in the order of their start
	leader   *replica   // nil while nobody leads
	heir     *replica   // the last one that led, and had to stop: its lease may still stand
}

// replica is one of the processes, as its reports show it.
type replica struct {
	name    string
	pid     int
	state   string // one word, or two, for people
	token   uint64 // of its tenure; 0: it has not led
	since   time.Time
	beats   int       // heartbeats in its tenure
	beat    time.Time // when the last one was sent
	stopped time.Time // when its work had returned
	freed   bool      // its lock is released
	ending  bool      // it was killed, or asked to end
	gone    bool      // its process has been waited for
}

func (s *stage) find(name string) *replica {
	for _, r := range s.replicas {
		if r.name == name {
			return r
		}
	}
	r := &replica{name: name, state: "starts"}
	s.replicas = append(s.replicas, r)
	return r
}

// apply takes one report in.
func (s *stage) apply(e report) {
	r := s.find(e.Replica)
	r.pid = cmp.Or(r.pid, e.PID)
	switch e.Kind {
	case campaigning:
		r.state = "campaigns"
	case waiting:
		if e.Token > r.token { // else it comes late, from before it led itself
			r.state = "waits"
		}
	case leading:
		r.state, r.token, r.since, r.beat, r.beats = "leads", e.Token, e.Time, e.Time, 0
		s.leader = r
	case renewed:
		r.beat = e.Time.Add(-time.Duration(e.Took))
		r.beats++
	case stopping:
		r.state = "stops"
	case stopped:
		r.stopped = e.Time
	case released:
		r.state, r.freed = "released", true
	case killed:
		r.state, r.ending = "killed", true
	case asked:
		r.ending = true
		if r.state == "waits" {
			r.state = "ends"
		}
	case steppedDown:
	case exited:
		r.gone = true
		if r.state != "killed" {
			r.state = "ended"
		}
	}
	if s.leader == r && (r.state != "leads") {
		s.leader, s.heir = nil, r
	}
}

// left is how long the lease of the replica stands yet for the others, without
// another heartbeat: 0 if it has none.
func (s *stage) left(r *replica, now time.Time) time.Duration {
	if r.token == 0 || r.freed || s.leader != nil && s.leader != r {
		return 0
	}
	return max(0, r.beat.Add(s.lease).Sub(now))
}
