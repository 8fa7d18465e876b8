// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuregocron_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure/tenuretest"
)

// world is hosts that have the same job. It knows when that was begun, and where.
type world struct {
	*tenuretest.World
	hosts []*host

	mu    sync.Mutex
	begun []run
	again []run // of these, the ones whose minute was begun before
}

// run is a run of the job on a host, and the minute by the host's clock.
type run struct{ host, minute string }

// newWorld returns a world with one host for each clock.
func newWorld(t *testing.T, ahead ...time.Duration) *world {
	s := &world{World: tenuretest.New(t)}
	for i, by := range ahead {
		s.hosts = append(s.hosts, newHost(s.Client(string(rune('a'+i))), by))
	}
	return s
}

// work is what the job does: it works for a while, or until ctx ends, and then takes time to stop.
func (s *world) work(ctx context.Context, h *host, takes, stops time.Duration) {
	defer h.Work("job")()
	r := run{h.Options().Owner, h.Now().Round(time.Minute).Format(time.DateTime)}
	s.mu.Lock()
	if slices.ContainsFunc(s.begun, func(other run) bool { return other.minute == r.minute }) {
		s.again = append(s.again, r)
	}
	s.begun = append(s.begun, r)
	s.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		<-time.After(stops)
	}
}
