// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclientgo_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection"

	"github.com/tenurelock/tenure"
	tenureclientgo "github.com/tenurelock/tenure/adapters/clientgo"
	"github.com/tenurelock/tenure/tenuretest"
)

// A host is a process that campaigns by an elector, again and again.
type host struct {
	*tenuretest.Client
	ctx  context.Context
	stop context.CancelFunc
}

type world struct {
	*tenuretest.World
	t       *testing.T
	hosts   []*host
	stops   time.Duration // the work, to stop
	terms   atomic.Int64  // in which it was begun
	running sync.WaitGroup
}

func newWorld(t *testing.T, n int, stops time.Duration) *world {
	s := &world{World: tenuretest.New(t), t: t, stops: stops}
	for _, name := range []string{"a", "b", "c", "d"}[:n] {
		h := &host{Client: s.Client(name)}
		h.ctx, h.stop = context.WithCancel(t.Context())
		s.hosts = append(s.hosts, h)
	}
	return s
}

// work goes on until ctx ends, and then takes its time to stop.
func (s *world) work(ctx context.Context, h *host) {
	defer h.Work("operator")()
	s.terms.Add(1)
	<-ctx.Done()
	<-time.After(s.stops)
}

// campaign runs an elector after the other, until the host stops.
func (s *world) campaign(h *host, lock *tenureclientgo.Lock, release bool) {
	s.running.Go(func() {
		for h.ctx.Err() == nil {
			ctx, stop := lock.Bind(h.ctx)
			started := lock.Leading(func(ctx context.Context, _ *tenure.Lease) { s.work(ctx, h) })
			elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
				Lock: lock, ReleaseOnCancel: release,
				LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
				Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: started, OnStoppedLeading: func() {}},
			})
			if err != nil {
				s.t.Error(err)
			} else {
				elector.Run(ctx)
			}
			stop()
		}
	})
}

// leader waits until exactly one host works, and returns it.
func (s *world) leader() *host {
	s.t.Helper()
	var at []*tenuretest.Client
	s.Until("one host works", func() bool { at = s.Working("operator"); return len(at) == 1 })
	return s.hosts[slices.IndexFunc(s.hosts, func(h *host) bool { return h.Client == at[0] })]
}

// end stops all hosts.
func (s *world) end() {
	for _, h := range s.hosts {
		h.Heal()
		h.stop()
	}
	s.running.Wait()
	<-time.After(time.Minute)
}

func ours(h *host) *tenureclientgo.Lock {
	return tenureclientgo.NewLock(h.Client.Client, "operator", nil)
}
