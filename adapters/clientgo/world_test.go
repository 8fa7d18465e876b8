// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclientgo_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection"

	"github.com/tenurelock/tenure"
	tenureclientgo "github.com/tenurelock/tenure/adapters/clientgo"
	"github.com/tenurelock/tenure/tenuretest"
)

// A host is a process that campaigns by an elector, again and again.
type host struct {
	name string
	*tenuretest.Client
	ctx  context.Context
	stop context.CancelFunc
}

// set cuts the host off, or not, and makes its replies slow.
func (h *host) set(cut bool, slow time.Duration) {
	h.Heal()
	h.Slow(2 * slow) // one half of it is that of the reply
	if cut {
		h.Partition()
	}
}

// A stretch is the work of a host in one term.
type stretch struct {
	host     string
	from, to time.Time
}

type world struct {
	*tenuretest.World
	t     *testing.T
	hosts []*host
	stops time.Duration // the work, to stop

	mu      sync.Mutex
	working map[string]*stretch
	done    []*stretch
	running sync.WaitGroup
}

func newWorld(t *testing.T, n int, stops time.Duration) *world {
	s := &world{World: tenuretest.New(t), t: t, stops: stops, working: make(map[string]*stretch)}
	for i := range n {
		h := &host{name: string(rune('a' + i))}
		h.Client = s.Client(h.name)
		h.ctx, h.stop = context.WithCancel(t.Context())
		s.hosts = append(s.hosts, h)
	}
	return s
}

// work goes on until ctx ends, and then takes its time to stop.
func (s *world) work(ctx context.Context, h *host) {
	w := &stretch{host: h.name, from: time.Now()}
	s.mu.Lock()
	s.working[h.name] = w
	s.done = append(s.done, w)
	s.mu.Unlock()
	<-ctx.Done()
	<-time.After(s.stops)
	s.mu.Lock()
	defer s.mu.Unlock()
	w.to = time.Now()
	delete(s.working, h.name)
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
	for range 120 {
		<-time.After(time.Second)
		s.mu.Lock()
		names := slices.Collect(maps.Keys(s.working))
		s.mu.Unlock()
		if len(names) == 1 {
			for _, h := range s.hosts {
				if h.name == names[0] {
					return h
				}
			}
		}
	}
	s.t.Fatal("no leader within two minutes")
	return nil
}

// end stops all hosts, and returns how long two of them worked beside each other.
func (s *world) end() (beside time.Duration, what string) {
	for _, h := range s.hosts {
		h.set(false, 0)
		h.stop()
	}
	s.running.Wait()
	<-time.After(time.Minute)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, d := range s.done {
		for _, before := range s.done[:i] {
			if by := before.to.Sub(d.from); by > beside {
				beside = by
				what = fmt.Sprintf("%s works beside %s for %v", d.host, before.host, by)
			}
		}
	}
	return beside, what
}

func ours(h *host) *tenureclientgo.Lock {
	return tenureclientgo.NewLock(h.Client.Client, "operator", nil)
}
