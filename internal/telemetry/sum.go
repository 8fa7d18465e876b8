// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import "time"

// Sum summarizes the leases held under one label.
type Sum struct {
	Leases    int
	Token     uint64        // the highest
	Remaining time.Duration // the least
	Slack     time.Duration // the least
	Share     float64       // the highest
	Busy      bool          // Share is known
}

// Summary returns a Sum for each label, including known labels without a lease.
func Summary(held []Held, label func(lock string) string, known map[string]bool) map[string]Sum {
	all := map[string]Sum{}
	for name := range known {
		all[name] = Sum{}
	}
	for _, h := range held {
		name := label(h.Lock)
		s := all[name]
		if s.Leases++; s.Leases == 1 || h.Remaining < s.Remaining {
			s.Remaining = h.Remaining
		}
		if s.Leases == 1 || h.Slack < s.Slack {
			s.Slack = h.Slack
		}
		s.Token, s.Share, s.Busy = max(s.Token, h.Token), max(s.Share, h.Share), s.Busy || h.Busy
		all[name] = s
	}
	return all
}
