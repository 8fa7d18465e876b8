// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuregocron_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"

	tenuregocron "github.com/tenurelock/tenure/adapters/gocron"
	"github.com/tenurelock/tenure/tenuretest"
)

// wallclock is a clock that is wrong.
type wallclock struct {
	clockwork.Clock
	ahead atomic.Int64
}

func (c *wallclock) Now() time.Time { return c.Clock.Now().Add(time.Duration(c.ahead.Load())) }

// set sets the clock, by how much it is ahead then.
func (c *wallclock) set(ahead time.Duration) { c.ahead.Store(int64(ahead)) }

// A host is a process with a scheduler of gocron, and what its lock sees of the world.
type host struct {
	name  string
	clock *wallclock
	*tenuretest.Client
	scheduler gocron.Scheduler
	ctx       context.Context
	stop      context.CancelFunc
}

// A world is some hosts that have the same jobs, in a bubble, and what they did.
type world struct {
	*tenuretest.World
	t     *testing.T
	hosts []*host

	mu      sync.Mutex
	begun   []run
	skipped []error
}

// A run is one of a job on a host.
type run struct {
	host       string
	occurrence time.Time // by the host's clock, to the minute
}

// newStage returns a world with one host for each clock.
func newWorld(t *testing.T, ahead ...time.Duration) *world {
	s := &world{World: tenuretest.New(t), t: t}
	for i, by := range ahead {
		name := string(rune('a' + i))
		h := &host{name: name, clock: &wallclock{Clock: clockwork.NewRealClock()}}
		h.clock.set(by)
		h.Client = s.Client(name)
		h.ctx, h.stop = context.WithCancel(t.Context())
		s.hosts = append(s.hosts, h)
	}
	return s
}

// schedule starts the scheduler of the host.
func (s *world) schedule(h *host, definition gocron.JobDefinition, task any, options ...gocron.SchedulerOption) {
	s.job(h, definition, task, nil, options...)
}

// job starts the scheduler of the host with a job that has the options.
func (s *world) job(h *host, definition gocron.JobDefinition, task any, jobOptions []gocron.JobOption, options ...gocron.SchedulerOption) {
	s.t.Helper()
	options = append(options, gocron.WithClock(h.clock), gocron.WithLocation(time.UTC), gocron.WithStopTimeout(time.Minute))
	var err error
	if h.scheduler, err = gocron.NewScheduler(options...); err != nil {
		s.t.Fatal(err)
	}
	skips := gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if h.ctx.Err() == nil {
			s.skipped = append(s.skipped, err)
		}
	}))
	if _, err := h.scheduler.NewJob(definition, gocron.NewTask(task), append(jobOptions, gocron.WithName("job"), skips)...); err != nil {
		s.t.Fatal(err)
	}
	h.scheduler.Start()
}

// locker returns a locker of the host.
func (s *world) locker(h *host, schedule tenuregocron.Schedule, edit ...func(*tenuregocron.LockerOptions)) *tenuregocron.Locker {
	s.t.Helper()
	o := &tenuregocron.LockerOptions{Now: h.clock.Now, Location: time.UTC}
	for _, e := range edit {
		e(o)
	}
	l, err := tenuregocron.NewLocker(h.Client.Client, schedule, o)
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

// work is what a job does: it works for a while, or until ctx ends, and then takes time to stop.
func (s *world) work(ctx context.Context, h *host, takes, stops time.Duration) {
	defer h.Work("job")()
	s.mu.Lock()
	s.begun = append(s.begun, run{h.name, h.clock.Now().Round(time.Minute)})
	s.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		<-time.After(stops)
	}
}

// shutdown ends all schedulers, and returns what was run in the order of its begin. It
// removes the jobs before, because Shutdown waits for running ones in a loop without a pause,
// in which no virtual time passes.
func (s *world) shutdown() []run {
	s.t.Helper()
	for _, h := range s.hosts {
		h.stop()
		for _, j := range h.scheduler.Jobs() {
			if err := h.scheduler.RemoveJob(j.ID()); err != nil {
				s.t.Errorf("host %s: %v", h.name, err)
			}
		}
	}
	<-time.After(time.Minute)
	for _, h := range s.hosts {
		if err := h.scheduler.Shutdown(); err != nil {
			s.t.Errorf("host %s: %v", h.name, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun
}

// twice returns the occurrences that were begun more than once.
func twice(done []run) (again []string) {
	seen := make(map[time.Time]run)
	for _, d := range done {
		if first, ok := seen[d.occurrence]; ok {
			again = append(again, fmt.Sprintf("%s on %s and on %s", d.occurrence.Format(time.TimeOnly), first.host, d.host))
		}
		seen[d.occurrence] = d
	}
	return again
}
