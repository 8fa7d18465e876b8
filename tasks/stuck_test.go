// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tasks_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/tasks"
)

// A task that ignores its context: the others are stopped all the same, and Run names it,
// while it still runs.
func TestTaskThatDoesNotStop(t *testing.T) {
	for _, test := range []struct{ name, want string }{
		{"a1", "a1, a2, l1, l2, " + leadingStops + ", -a2, a2., -a1"},
		{"a2", "a1, a2, l1, l2, " + leadingStops + ", -a2, -a1, a1."},
		{"l1", "a1, a2, l1, l2, -l2, l2., -l1, " + alwaysStop},
		{"l2", "a1, a2, l1, l2, -l2, -l1, l1., " + alwaysStop},
		{"f1", "a1, a2, f1, f2, -f2, f2., -f1, " + alwaysStop},
		{"f2", "a1, a2, f1, f2, -f2, -f1, f1., " + alwaysStop},
	} {
		t.Run(test.name, func(t *testing.T) {
			onWorld(t, func(t *testing.T, s *world) {
				if test.name[0] == 'f' {
					s.rival()
				}
				ctx, stop := context.WithCancel(t.Context())
				ended := s.replica("a").cast(map[string]act{test.name: {drain: time.Hour}}).run(ctx)
				time.Sleep(lease)
				stop()
				err := testutil.Within(t, stopTimeout, stopTimeout+5*drain, func() error { return <-ended })
				testutil.Want(t, err, tasks.ErrStopTimeout)
				if got := err.Error(); got != `task "`+test.name+`": did not stop in time: the stop timeout is 10s` {
					t.Errorf("error %q", got)
				}
				s.expect(test.want)
				time.Sleep(time.Hour) // so that it ends
			})
		})
	}
}

// The lock is never released while a leading task runs. Heartbeats cover one
// that hangs until it was given up and the client's stop timeout has passed;
// then the record runs out by itself.
func TestRecordOfALeaderThatDoesNotStop(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		ctx, stop := context.WithCancel(t.Context())
		r := s.replica("a")
		var held *tenure.Lease
		r.Leading("l", func(ctx context.Context, l *tenure.Lease) error {
			held = l
			<-ctx.Done()
			time.Sleep(time.Hour)
			return nil
		})
		ended := r.run(ctx)
		time.Sleep(lease)
		b := s.replica("b")
		b.add("l1", act{})
		bStop := make(chan struct{})
		b.Always("stop", func(context.Context) error { <-bStop; return tasks.ErrStop })
		after := b.run(t.Context())
		time.Sleep(lease)
		stop()
		told := time.Now()
		testutil.Want(t, <-ended, tasks.ErrStopTimeout)
		if took := time.Since(told); took != stopTimeout {
			t.Errorf("the stop took %v", took)
		}
		// Until the client's stop timeout, which is a lease, it is covered.
		for time.Since(told) < stopTimeout+lease-time.Second {
			time.Sleep(time.Second / 10)
			if rec := s.Record(election); rec.State != driver.Held || rec.Token != held.Token() || held.Check() != nil {
				t.Fatalf("after %v the record is %+v; check: %v", time.Since(told), rec, held.Check())
			}
		}
		time.Sleep(2 * lease)
		s.expect("l, stop, l1")
		close(bStop)
		testutil.Want(t, <-after, nil)
		time.Sleep(time.Hour)
	})
}

// When an abandoned task returns after all, the lock is released.
func TestLeaderThatStopsLate(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		ctx, stop := context.WithCancel(t.Context())
		r := s.replica("a")
		r.add("l1", act{drain: stopTimeout + 5*time.Second})
		ended := r.run(ctx)
		time.Sleep(lease)
		stop()
		testutil.Want(t, <-ended, tasks.ErrStopTimeout)
		s.expect("l1, -l1")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		s.expect("l1., release")
	})
}

// A leading task that runs on after its lease was lost ends the group, and so
// the process: there is nothing else that could end the task.
func TestLeaderThatDoesNotStopAfterALoss(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		r := s.replica("a").cast(map[string]act{"l1": {drain: time.Hour}})
		ended := r.run(t.Context())
		time.Sleep(lease)
		r.client.Partition()
		testutil.Want(t, <-ended, tasks.ErrStopTimeout)
		if story := s.story(); !strings.HasSuffix(story, "l2., "+alwaysStop) || strings.Contains(story, "f1") {
			t.Errorf("journal %q", story)
		}
		time.Sleep(time.Hour)
	})
}

// A following task that hangs keeps the leading ones from starting, and the
// lock is handed back.
func TestFollowerThatDoesNotStopWhenElected(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		rival := s.rival()
		ended := s.replica("a").cast(map[string]act{"f2": {drain: time.Hour}}).run(t.Context())
		time.Sleep(lease)
		testutil.Want(t, rival.Release(t.Context()), nil)
		testutil.Want(t, <-ended, tasks.ErrStopTimeout)
		s.expect("a1, a2, f1, f2, -f2, -f1, f1., release, " + alwaysStop)
		time.Sleep(time.Hour)
	})
}
