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
		if sorted(told) != "-l1, -l2" {
			t.Errorf("told %q, then %q: want both at once", told, rest)
		}
		if !strings.HasPrefix(rest, "f1, f2") && !strings.HasPrefix(rest, "release, f1, f2") {
			t.Errorf("with the store away: %q", rest)
		}
		r.client.Heal()
		time.Sleep(2 * lease)
		pending(t, ended)
		story := s.story()
		if !strings.HasSuffix(story, followingStops+", l1, l2") {
			t.Errorf("with the store back: %q", story)
		}
		stop()
		(<-ended).check(t, errTask) // now it does
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
				r.started = nil
				r.client.Partition()
				time.Sleep(2 * lease) // a slow start
				r.client.Heal()
			}
		}
		ended := r.run(ctx)
		time.Sleep(10 * lease)
		stop()
		(<-ended).check(t, nil)
		story := s.story()
		first, again, _ := strings.Cut(story, "l1.")
		if first != "a1, a2, l1, -l1, " {
			t.Errorf("first tenure: %q", first)
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
		rival := s.lead("rival")
		ctx, stop := context.WithCancel(t.Context())
		r := s.replica("a", func(o *tasks.Options) { o.StopTimeout = time.Hour }).cast(map[string]act{"f1": {drain: 2 * lease}})
		ended := r.run(ctx)
		time.Sleep(lease)
		if err := rival.Release(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
		r.client.Partition()
		time.Sleep(2*lease - 5*time.Second)
		s.expect("a1, a2, f1, f2, -f2, f2., -f1")
		time.Sleep(4 * time.Second)
		s.expect("f1., f1, f2") // although the release is under way yet
		stop()
		(<-ended).check(t, nil)
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
		(<-ended).check(t, tenure.ErrLost)
		if story := strings.ReplaceAll(s.story(), "release, ", ""); story != "l2., "+alwaysStop {
			t.Errorf("after the loss: %q", story)
		}
	})
}

// Check fails before the context ends: an error that comes of it is one of the
// loss.
func TestErrorOfCheckIsALoss(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		r := s.replica("a")
		ctx, stop := context.WithCancel(t.Context())
		var tenures atomic.Int32
		r.Leading("l", func(ctx context.Context, l *tenure.Lease) error {
			if tenures.Add(1) > 1 {
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
		pending(t, ended)
		if n := tenures.Load(); n != 2 {
			t.Errorf("%d tenures", n)
		}
		stop()
		(<-ended).check(t, nil)
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
					s.lead("rival")
				}
				r := s.replica("a")
				if phase == "alone" { // without leading tasks, and so without a campaign
					r.add("f1", act{})
				} else {
					r.cast(map[string]act{"l2": {drain: 2 * drain}})
				}
				shut := func() {
					if err := r.client.Close(t.Context()); err != nil {
						t.Error(err)
					}
				}
				if phase == "before" {
					shut()
				}
				ended := r.run(t.Context())
				if phase != "before" {
					time.Sleep(lease)
					shut()
				}
				(<-ended).check(t, tenure.ErrClosed)
				s.expect2(want)
			})
		})
	}
}

// expect2 takes the order in which two tasks are told at once for the same.
func (s *world) expect2(want string) {
	s.t.Helper()
	if got := strings.Replace(s.story(), "-l2, -l1", "-l1, -l2", 1); got != want {
		s.t.Errorf("journal:\n got %s\nwant %s", got, want)
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
		pending(t, ended)
		stop()
		(<-ended).check(t, nil)
		s.expect(followingStops + ", " + alwaysStop)
	})
}

// A record that cannot be used is an error of the group.
func TestElectionThatCannotBeUsed(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		r := s.replica("a").cast(nil)
		r.client.Faults().Inject(faultstore.Rule{Fault: faultstore.Fault{Effect: faultstore.RequestLost, Err: driver.ErrUnreadable}})
		(<-r.run(t.Context())).check(t, tenure.ErrUnreadable)
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
		start := time.Now()
		(<-ended).check(t, nil)
		if took := time.Since(start); took < lease/2 || took > lease+lease/5+4*drain {
			t.Errorf("the stop took %v", took)
		}
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
		b.plain = true
		b.add("l1", act{quiet: true})
		endedB := b.run(ctx)
		time.Sleep(lease)
		why := &tenure.StepDownOptions{Reason: "a test"}
		if err := b.client.Election(election, nil).StepDown(t.Context(), why); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lease)
		s.expect2("-l1, -l2, l1., l2., release, f1, f2")
		stop()
		(<-endedA).check(t, nil)
		(<-endedB).check(t, nil)
	})
}

// TestUnhealthyLeaderGivesWay: its tasks are told, the tenure ends as failed, and the
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
				t.Errorf("told to stop because of %v", context.Cause(ctx))
			}
			return ctx.Err()
		})
		if err := group.Run(ctx); err != nil {
			t.Error(err)
		}
		if len(led) != 2 || led[1] != 12*time.Second {
			t.Errorf("it led after %v, want after 0s and 12s", led)
		}
		history, err := client.History(t.Context(), election)
		if err != nil || len(history) != 2 || history[1].End != tenure.EndFailed || history[0].End != tenure.EndReleased {
			t.Errorf("history %+v, %v", history, err)
		}
	})
}
