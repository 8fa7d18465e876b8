// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tasks_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/tasks"
)

// The lease is lost while the leader runs: all leading tasks are told at once,
// and awaited; then the following ones are started again, although the store is
// away, and with the store back the replica leads again.
func TestLossWhileLeading(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		ctx, stop := context.WithCancel(t.Context())
		// What work returns whose lease is lost does not count.
		r := s.replica("a").cast(map[string]act{"l1": {late: errTask}, "l2": {late: tasks.ErrStop, drain: 5 * time.Second}})
		ended := r.run(ctx)
		time.Sleep(lease)
		s.expect("a1, a2, l1, l2")
		r.client.Partition()
		time.Sleep(2 * lease)
		told, rest, _ := strings.Cut(s.story(), ", l1., l2., ")
		if told != "-l1, -l2" && told != "-l2, -l1" {
			t.Errorf("told %q, then %q: want both at once", told, rest)
		}
		if !strings.HasPrefix(rest, "f1, f2") && !strings.HasPrefix(rest, "release, f1, f2") {
			t.Errorf("with the store away: %q", rest)
		}
		r.client.Heal()
		time.Sleep(2 * lease)
		testutil.Pending(t, "run", ended)
		story := s.story()
		if !strings.HasSuffix(story, followingStops+", l1, l2") {
			t.Errorf("with the store back: %q", story)
		}
		stop()
		testutil.Want(t, <-ended, errTask) // now it does
		s.expect(leadingStops + ", " + alwaysStop)
	})
}

// The lease is lost while leading tasks are started: the others are not.
func TestLossWhileStartingToLead(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		ctx, stop := context.WithCancel(t.Context())
		r := s.replica("a").cast(nil)
		r.started = func(task string) {
			if task == "l1" {
				r.started = func(string) {}
				r.client.Partition()
				time.Sleep(2 * lease) // a slow start
				r.client.Heal()
			}
		}
		ended := r.run(ctx)
		time.Sleep(10 * lease)
		stop()
		testutil.Want(t, <-ended, nil)
		story := s.story()
		first, again, _ := strings.Cut(story, "l1.")
		if first != "a1, a2, l1, -l1, " {
			t.Errorf("first term: %q", first)
		}
		if !strings.HasSuffix(again, "l1, l2, "+leadingStops+", "+alwaysStop) {
			t.Errorf("after it: %q", again)
		}
	})
}

// The lease is lost while the following tasks stop: the leading ones are not
// started.
func TestLossBeforeLeading(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		rival := s.rival()
		ctx, stop := context.WithCancel(t.Context())
		r := s.replica("a", func(o *tasks.Options) { o.StopTimeout = time.Hour }).cast(map[string]act{"f1": {drain: 2 * lease}})
		ended := r.run(ctx)
		time.Sleep(lease)
		testutil.Want(t, rival.Release(t.Context()), nil)
		time.Sleep(5 * time.Second)
		r.client.Partition()
		time.Sleep(2*lease - 5*time.Second)
		s.expect("a1, a2, f1, f2, -f2, f2., -f1")
		time.Sleep(4 * time.Second)
		s.expect("f1., f1, f2") // although the release is under way yet
		stop()
		testutil.Want(t, <-ended, nil)
		if story := s.story(); !strings.HasSuffix(story, followingStops+", "+alwaysStop) || strings.Contains(story, "l1") {
			t.Errorf("at the stop: %q", story)
		}
	})
}

// The lease is lost while the leading tasks are stopped in order: the others
// are told at once then, there is no other campaign, and the loss is reported.
func TestLossWhileStopping(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		ctx, stop := context.WithCancel(t.Context())
		r := s.replica("a", func(o *tasks.Options) { o.StopTimeout = time.Hour }).cast(map[string]act{"l2": {drain: 2 * lease}})
		ended := r.run(ctx)
		time.Sleep(lease)
		r.client.Partition()
		stop()
		synctest.Wait()
		s.expect("a1, a2, l1, l2, -l2")
		time.Sleep(lease)
		s.expect("-l1, l1.")
		time.Sleep(lease)
		r.client.Heal()
		testutil.Want(t, <-ended, tenure.ErrLost)
		s.expect("l2., "+alwaysStop, "release, ", "")
	})
}

// Check fails before the context ends: an error that comes of it is one of the
// loss.
func TestErrorOfCheckIsALoss(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		r := s.replica("a")
		ctx, stop := context.WithCancel(t.Context())
		var terms atomic.Int32
		r.Leading("l", func(ctx context.Context, l *tenure.Lease) error {
			if terms.Add(1) > 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			r.client.Partition()
			defer r.client.Heal()
			for {
				// At the deadline timer and check are equally early.
				time.Sleep(l.Remaining())
				if err := l.Check(); err != nil {
					return errors.Join(errTask, err)
				}
			}
		})
		ended := r.run(ctx)
		time.Sleep(4 * lease)
		testutil.Pending(t, "run", ended)
		if n := terms.Load(); n != 2 {
			t.Errorf("%d terms", n)
		}
		stop()
		testutil.Want(t, <-ended, nil)
	})
}

// The client is closed in each phase: the group stops with ErrClosed.
func TestClientClosed(t *testing.T) {
	for phase, want := range map[string]string{
		"leading":   "a1, a2, l1, l2, -l1, -l2, l1., l2., release, " + alwaysStop,
		"following": "a1, a2, f1, f2, " + followingStops + ", " + alwaysStop,
		"before":    "a1, a2, " + alwaysStop,
		"alone":     "f1, -f1, f1.",
	} {
		t.Run(phase, func(t *testing.T) {
			onWorld(t, func(t *testing.T, s *world) {
				if phase == "following" {
					s.rival()
				}
				r := s.replica("a")
				if phase == "alone" { // without leading tasks, and so without a campaign
					r.add("f1", act{})
				} else {
					r.cast(map[string]act{"l2": {drain: 2 * drain}})
				}
				shut := func() { testutil.Want(t, r.client.Close(t.Context()), nil) }
				if phase == "before" {
					shut()
				}
				ended := r.run(t.Context())
				if phase != "before" {
					time.Sleep(lease)
					shut()
				}
				testutil.Want(t, <-ended, tenure.ErrClosed)
				s.expect(want, "-l2, -l1", "-l1, -l2") // both are told at once
			})
		})
	}
}

// A store that is away from the start: the replica follows, for as long as it
// takes, and a stop works.
func TestStoreAwayFromTheStart(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		ctx, stop := context.WithCancel(t.Context())
		r := s.replica("a").cast(nil)
		r.client.Partition()
		ended := r.run(ctx)
		time.Sleep(time.Hour)
		s.expect("a1, a2, f1, f2")
		testutil.Pending(t, "run", ended)
		stop()
		testutil.Want(t, <-ended, nil)
		s.expect(followingStops + ", " + alwaysStop)
	})
}

// A record that cannot be used is an error of the group.
func TestElectionThatCannotBeUsed(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		r := s.replica("a").cast(nil)
		r.client.Faults().Inject(faultstore.Rule{Fault: faultstore.Fault{Effect: faultstore.RequestLost, Err: driver.ErrUnreadable}})
		testutil.Want(t, <-r.run(t.Context()), tenure.ErrUnreadable)
		if story := s.story(); !strings.HasPrefix(story, "a1, a2, ") || !strings.HasSuffix(story, alwaysStop) || strings.Contains(story, "l1") {
			t.Errorf("journal %q", story)
		}
	})
}

// The release is awaited before anything else is stopped, for a lease at most.
func TestReleaseThatIsNotAnswered(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		r := s.replica("a").cast(nil)
		ctx, stop := context.WithCancel(t.Context())
		ended := r.run(ctx)
		time.Sleep(lease)
		r.client.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpRelease}, Count: 1, Fault: faultstore.BlackHole()})
		r.client.Partition()
		stop()
		err := testutil.Within(t, lease/2, lease+lease/5+4*drain, func() error { return <-ended })
		testutil.Want(t, err, nil)
		if story := s.story(); !strings.HasSuffix(story, "-l2, l2., -l1, l1., "+alwaysStop) {
			t.Errorf("journal %q", story)
		}
		r.client.Heal()
	})
}

// A leader that is asked to step down ends its tasks as after a loss, and
// follows; with the lock still good, so that a last checkpoint can be written.
func TestStepDown(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		ctx, stop := context.WithCancel(t.Context())
		a := s.replica("a").cast(map[string]act{"l2": {drain: 2 * drain, late: errTask}})
		endedA := a.run(ctx)
		time.Sleep(lease)
		s.expect("a1, a2, l1, l2")
		b := s.replica("b")
		b.quiet = true
		b.add("l1", act{})
		endedB := b.run(ctx)
		time.Sleep(lease)
		why := &tenure.StepDownOptions{Reason: "a test"}
		testutil.Want(t, b.client.Election(election, nil).StepDown(t.Context(), why), nil)
		time.Sleep(lease)
		s.expect("-l1, -l2, l1., l2., release, f1, f2", "-l2, -l1", "-l1, -l2")
		stop()
		testutil.Want(t, <-endedA, nil)
		testutil.Want(t, <-endedB, nil)
	})
}

// TestUnhealthyLeaderGivesWay: its tasks are told, the term ends as failed, and the
// replica leads again when its cool-down is over.
func TestUnhealthyLeaderGivesWay(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		client := s.Client("a", func(o *tenure.Options) { o.Label = "v2" })
		e := client.Election(election, &tenure.ElectionOptions{
			CoolDown: 10 * time.Second, HealthPeriod: time.Second, HealthFailures: 2,
			Health: func(_ context.Context, l *tenure.Lease) error {
				if l.Token() == 1 {
					return errTask
				}
				return nil
			},
		})
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		group := tasks.New(e, nil)
		begun := time.Now()
		var led []time.Duration
		group.Leading("work", func(ctx context.Context, l *tenure.Lease) error {
			led = append(led, time.Since(begun).Round(time.Second))
			<-ctx.Done()
			if l.Token() == 1 && !errors.Is(context.Cause(ctx), tenure.ErrUnhealthy) {
				t.Errorf("stopped because of %v", context.Cause(ctx))
			}
			return ctx.Err()
		})
		testutil.Want(t, group.Run(ctx), nil)
		if len(led) != 2 || led[1] != 12*time.Second {
			t.Errorf("it led after %v, want after 0s and 12s", led)
		}
		history, err := client.History(t.Context(), election)
		if err != nil || len(history) != 2 || history[1].End != tenure.EndFailed || history[0].End != tenure.EndReleased {
			t.Errorf("history %+v, %v", history, err)
		}
	})
}
