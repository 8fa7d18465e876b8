// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuregocron_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/tenurelock/tenure"
	tenuregocron "github.com/tenurelock/tenure/adapters/gocron"
	"github.com/tenurelock/tenure/internal/testutil"
)

// elector returns an elector, which runs.
func (h *host) elector() *tenuregocron.Elector {
	e := tenuregocron.NewElector(h.Election("scheduler", nil))
	h.Go(e.Run)
	return e
}

// elects gives each host an elector, and runs a job that outlasts its period now and then.
func elects(s *world, takes, stops time.Duration) (electors []*tenuregocron.Elector) {
	for _, h := range s.hosts {
		e := h.elector()
		electors = append(electors, e)
		task := e.Task(func(ctx context.Context, _ *tenure.Lease) error {
			s.work(ctx, h, takes, stops)
			return nil
		})
		h.schedule(gocron.CronJob("*/10 * * * * *", true), task,
			gocron.WithDistributedElector(e), gocron.WithSingletonMode(gocron.LimitModeReschedule))
	}
	return electors
}

// TestPartitionedLeader: a leader that is cut off ends its work before the next one begins.
func TestPartitionedLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWorld(t, 0, 0, 0)
		elects(s, 8*time.Second, time.Second)
		time.Sleep(5*time.Minute + 3*time.Second) // in the middle of a job
		s.Leader("scheduler").Partition()
		time.Sleep(5 * time.Minute)
		s.Heal()
		time.Sleep(5 * time.Minute)
		s.Stop()
		// 90 in 15 minutes, less those of one failover.
		if n := len(s.begun); n < 85 {
			t.Errorf("%d runs", n)
		}
	})
}

// TestStepDown: a leader that is asked to make way begins nothing more, and keeps the lock
// until its tasks have returned.
func TestStepDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWorld(t, 0, 0)
		electors := elects(s, 8*time.Second, 4*time.Second)
		time.Sleep(time.Minute + 3*time.Second)
		first := s.Leader("scheduler")
		asked := time.Now()
		if err := first.StepDown(t.Context(), "scheduler", &tenure.StepDownOptions{Reason: "a test"}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(asked); took < 4*time.Second {
			t.Errorf("the lock was free after %v, while the task stops for 4 s", took)
		}
		s.LeaderAfter(first)
		leaders := 0
		for _, e := range electors {
			if err := e.IsLeader(t.Context()); err == nil {
				leaders++
			} else if !errors.Is(err, tenuregocron.ErrNotLeader) {
				t.Error(err)
			}
		}
		if leaders != 1 {
			t.Errorf("%d leaders", leaders)
		}
		time.Sleep(time.Minute)
		s.Stop()
	})
}

// TestDraining: a leader that has been told to stop, and may act yet, begins nothing.
func TestDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWorld(t, 0)
		e := s.hosts[0].elector()
		s.Leader("scheduler")
		begun, end := make(chan struct{}), make(chan struct{})
		var lease *tenure.Lease
		task := e.Task(func(_ context.Context, l *tenure.Lease) error {
			lease = l
			close(begun)
			<-end
			return nil
		})
		result := testutil.Go(func() error { return task(t.Context()) })
		<-begun
		s.hosts[0].Stop()
		synctest.Wait()
		if err := lease.Check(); err != nil {
			t.Errorf("the leader drains: %v", err)
		}
		if err := e.IsLeader(t.Context()); !errors.Is(err, tenuregocron.ErrNotLeader) {
			t.Errorf("IsLeader while draining: %v", err)
		}
		if err := e.Task(nil)(t.Context()); !errors.Is(err, tenuregocron.ErrNotLeader) {
			t.Errorf("a task that comes late: %v", err)
		}
		if !s.Held("scheduler") {
			t.Error("the lock was released under a task")
		}
		close(end)
		testutil.Want(t, <-result, nil)
		s.Stop()
		if s.Held("scheduler") {
			t.Error("the lock is held after Run")
		}
	})
}

// TestPausedLeader: a leader that was stopped for longer than its lease begins nothing from its
// first instruction on, before any timer has told it.
func TestPausedLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWorld(t, 0)
		h := s.hosts[0]
		e := h.elector()
		s.Leader("scheduler")
		h.Suspend(time.Minute)
		if err := e.IsLeader(t.Context()); !errors.Is(err, tenuregocron.ErrNotLeader) || !errors.Is(err, tenure.ErrLost) {
			t.Errorf("IsLeader after the pause: %v", err)
		}
		time.Sleep(time.Minute)
		s.Stop()
	})
}

// TestLostUnderTask: a task that did not see that the lease was lost says so by its error.
func TestLostUnderTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWorld(t, 0)
		e := s.hosts[0].elector()
		s.Leader("scheduler")
		s.hosts[0].Partition()
		var seen error
		err := e.Task(func(ctx context.Context, lease *tenure.Lease) error {
			if own, ok := tenure.FromContext(ctx); !ok || own != lease {
				t.Error("the context does not carry the lease")
			}
			<-ctx.Done()
			seen = context.Cause(ctx)
			return nil
		})(t.Context())
		if !errors.Is(err, tenure.ErrExpired) || !errors.Is(seen, tenure.ErrExpired) {
			t.Errorf("the task returned %v, its context ended by %v", err, seen)
		}
		s.hosts[0].Heal()
		time.Sleep(time.Minute) // it leads again
		if err := e.IsLeader(t.Context()); err != nil {
			t.Error(err)
		}
		s.Stop()
	})
}
