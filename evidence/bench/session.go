// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"

	"github.com/tenurelock/tenure/evidence/bed/page"
	"github.com/tenurelock/tenure/evidence/peers/keepers"
)

// sessions holds many locks in one process: with one heartbeat in all, and with
// one for each. One process at a time: none is to suffer from another's load.
func sessions(ctx context.Context, r *rig) error {
	size := r.size.crowd
	line := row{Step: "session", Kind: crowded}
	for _, c := range r.clients {
		counts := map[string][]int{tenureName: size.tenure, dynamolockName: size.dynamolock}[string(c.Kind)]
		for _, n := range counts {
			err := r.staged(ctx, c, size.Timing, func(ctx context.Context, s *stage) error {
				h, err := keepers.Hold(ctx, s.client.Kind, n, s.wire, s.table.Name, size.Size)
				if err != nil {
					return err
				}
				line.Setting = fmt.Sprintf("%v, %v added to each request by the proxy that counts them; held for %v, looked at each second; "+
					"memory and goroutines are those of the client's process, which has no other work; Tenure has one session; dynamolock has its defaults, and says of a lock that it is lost by IsExpired",
					s.Timing, size.Delay, size.Hold)
				r.put(line, fmt.Sprintf("%d locks", n), s.name, value{Held: h})
				r.say("session: %s with %d locks: %d lost, %.1f s to take them, %s requests a heartbeat period", s.name, n, h.Hold.Lost, h.Acquire.Took, page.Amount(h.Holding.Requests))
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
