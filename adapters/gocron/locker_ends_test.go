// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuregocron_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/tenurelock/tenure"
	tenuregocron "github.com/tenurelock/tenure/adapters/gocron"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/once"
)

// runs returns the ledger, the newest run first.
func (s *world) runs(t *testing.T, l *tenuregocron.Locker) []once.Run {
	t.Helper()
	return testutil.Must(once.Show(t.Context(), s.Client("operator").Client, l.Name("job")))(t).Runs
}

// TestCrash: a process that is killed in a run takes that one with it. The next occurrence is
// run by another one, late by the lease at most; with Redo the last one is run again.
func TestCrash(t *testing.T) {
	for _, redo := range []bool{false, true} {
		t.Run(fmt.Sprint("redo=", redo), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// The second host is 30 s behind, so that it comes by when the first is dead.
				s := newWorld(t, 0, -30*time.Second)
				var last *tenuregocron.Locker
				for _, h := range s.hosts {
					l := h.locker(t, tenuregocron.Cron(minutely), tenuregocron.LockerOptions{Redo: redo})
					last = l
					h.schedule(gocron.CronJob(minutely, false), l.Task("job", func(ctx context.Context, _ *once.Turn) error {
						s.work(ctx, h, 20*time.Second, 0)
						return context.Cause(ctx)
					}), gocron.WithDistributedLocker(l))
				}
				time.Sleep(10*time.Minute + 10*time.Second)
				s.hosts[0].Kill()
				time.Sleep(12*time.Minute - 10*time.Second)
				s.Stop()
				if want := map[bool]int{true: 1}[redo]; len(s.again) != want {
					t.Errorf("begun twice: %v", s.again)
				}
				// From the kill on, the second host has all but that of the kill.
				later := 0
				for _, d := range s.begun {
					if d.host == "b" {
						later++
					}
				}
				if later < 11 {
					t.Errorf("%d runs in the 12 minutes after the crash", later)
				}
				unknown := 0
				for _, r := range s.runs(t, last) {
					if r.State == once.StateUnknown {
						unknown++
					}
				}
				if unknown != 1 {
					t.Errorf("%d runs of unknown end in the ledger, want that of the crash", unknown)
				}
			})
		})
	}
}

// TestLedger: the ledger shows how a run ended, whether by the task, by a panic, or by a
// listener that keeps the task from running.
func TestLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWorld(t, 0)
		l := s.hosts[0].locker(t, tenuregocron.Cron(minutely), tenuregocron.LockerOptions{})
		n := 0
		task := l.Task("job", func(context.Context, *once.Turn) error {
			switch n++; n {
			case 1:
				return nil
			case 2:
				return errors.New("no paper")
			default:
				panic("on fire")
			}
		})
		skip := errors.New("not on this day")
		s.hosts[0].schedule(gocron.CronJob(minutely, false), task, gocron.WithLocation(time.UTC),
			gocron.WithDistributedJobLocker(l),
			gocron.WithEventListeners(
				gocron.AfterJobRunsWithPanic(func(uuid.UUID, string, any) {}),
				gocron.BeforeJobRunsSkipIfBeforeFuncErrors(func(uuid.UUID, string) error {
					if n < 3 {
						return nil
					}
					return skip
				})))
		time.Sleep(4*time.Minute + time.Second)
		s.Stop()
		var got []string
		for _, r := range s.runs(t, l) {
			got = append(got, fmt.Sprint(r.State, " ", r.Error))
		}
		want := "[failed gocron did not start the task failed the task panicked, or ended its goroutine failed no paper done ]"
		if fmt.Sprint(got) != want {
			t.Errorf("the ledger has %v, want %v", got, want)
		}
	})
}

// TestShutdown: a scheduler that is shut down ends the task's context, and the lock is
// released although gocron's context has ended by then. In real time: see host.schedule.
func TestShutdown(t *testing.T) {
	s := newWorld(t, 0)
	l := testutil.Must(tenuregocron.NewLocker(s.hosts[0].Client.Client, tenuregocron.Period(time.Second), nil))(t)
	begun := make(chan struct{}, 10)
	task := l.Task("job", func(ctx context.Context, turn *once.Turn) error {
		begun <- struct{}{}
		<-ctx.Done()
		time.Sleep(100 * time.Millisecond)
		return turn.Check()
	})
	locked, patient := gocron.WithDistributedLocker(l), gocron.WithStopTimeout(time.Minute)
	scheduler := testutil.Must(gocron.NewScheduler(locked, patient))(t)
	testutil.Must(scheduler.NewJob(gocron.DurationJob(time.Second), gocron.NewTask(task), gocron.WithName("job")))(t)
	scheduler.Start()
	<-begun
	testutil.Want(t, scheduler.Shutdown(), nil)
	if s.Held(once.LockName(l.Name("job"))) {
		t.Error("the lock is held after the shutdown")
	}
	if r := s.runs(t, l)[0]; r.State != once.StateDone {
		t.Errorf("the last run: %+v", r)
	}
}

// TestLost: the task's context ends with the lease, before another process can begin.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWorld(t, 0)
		l := s.hosts[0].locker(t, tenuregocron.Cron(minutely), tenuregocron.LockerOptions{})
		lock := testutil.Must(l.Lock(t.Context(), "other"))(t)
		s.hosts[0].Partition()
		begun := time.Now()
		var cause error
		err := l.Task("other", func(ctx context.Context, _ *once.Turn) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return nil
		})(t.Context())
		if took := time.Since(begun); !errors.Is(err, tenure.ErrExpired) || !errors.Is(cause, tenure.ErrExpired) || took > 15*time.Second {
			t.Errorf("after %v the context ended with %v, and the task with %v", took, cause, err)
		}
		if err := lock.Unlock(t.Context()); !errors.Is(err, tenure.ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
	})
}

// TestLockerWithElector: with both, one host has all occurrences for as long as it leads, and
// each begins once over a change of the leader, although the clocks are apart.
func TestLockerWithElector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWorld(t, apart...)
		for _, h := range s.hosts {
			l := h.locker(t, tenuregocron.Cron(minutely), tenuregocron.LockerOptions{Elector: h.elector()})
			h.schedule(gocron.CronJob(minutely, false), l.Task("job", func(ctx context.Context, _ *once.Turn) error {
				s.work(ctx, h, 5*time.Second, 0)
				return nil
			}), gocron.WithDistributedLocker(l))
		}
		by := 0
		for range 8 {
			time.Sleep(9 * time.Minute)
			leader := s.Leader("scheduler")
			if err := leader.StepDown(t.Context(), "scheduler", &tenure.StepDownOptions{Reason: "a test"}); err != nil {
				t.Fatal(err)
			}
		}
		s.Stop()
		done := s.begun
		if len(s.again) > 0 {
			t.Errorf("begun twice: %v", s.again)
		}
		for i := 1; i < len(done); i++ {
			if done[i].host != done[i-1].host {
				by++
			}
		}
		if by > 8 || len(done) < 60 {
			t.Errorf("%d runs in 72 minutes, by another host %d times", len(done), by)
		}
	})
}

// TestLockerWithoutSlack: a clock that is far ahead is refused, where a bound was set.
func TestLockerWithoutSlack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWorld(t, 0, 3*time.Hour)
		soon := tenuregocron.LockerOptions{MaxAhead: time.Hour}
		for i, want := range []error{nil, once.ErrSlotAhead} {
			lock, err := s.hosts[i].locker(t, tenuregocron.Cron(minutely), soon).Lock(t.Context(), "job")
			if !errors.Is(err, want) {
				t.Errorf("host %d: %v, want %v", i, err, want)
			}
			if err == nil {
				if err := lock.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

func TestTaskWithoutLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWorld(t, 0)
		l := s.hosts[0].locker(t, tenuregocron.Cron(minutely), tenuregocron.LockerOptions{})
		err := l.Task("report", nil)(t.Context())
		if err == nil || !strings.Contains(err.Error(), `give the job gocron.WithName("report")`) {
			t.Error(err)
		}
	})
}
