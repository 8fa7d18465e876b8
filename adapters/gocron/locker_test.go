// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuregocron_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
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

// play runs a job on three hosts, whose clocks are apart. From minute 10 to minute 17
// one of them is cut off: the host at work, or the middle one. play returns the errors
// for which an occurrence was skipped.
func play(t *testing.T, s *world, minutes int, takes time.Duration, crontab string) []error {
	var mu sync.Mutex
	var skipped []error
	for _, h := range s.hosts {
		l := h.locker(t, tenuregocron.Cron(crontab), tenuregocron.LockerOptions{})
		task := l.Task("job", func(ctx context.Context, _ *once.Turn) error {
			s.work(ctx, h, takes, 0)
			return nil
		})
		note := gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
			mu.Lock()
			defer mu.Unlock()
			skipped = append(skipped, err)
		})
		h.schedule(gocron.CronJob(crontab, strings.Count(crontab, " ") == 5), task,
			gocron.WithDistributedLocker(l), gocron.WithEventListeners(note))
	}
	time.Sleep(10*time.Minute + time.Second)
	cut := s.hosts[1].Client
	if at := s.Working("job"); len(at) > 0 {
		cut = at[0]
	}
	cut.Partition()
	time.Sleep(7 * time.Minute)
	cut.Heal()
	time.Sleep(time.Duration(minutes-17)*time.Minute - time.Second)
	mu.Lock()
	errs := slices.Clone(skipped)
	mu.Unlock()
	s.Stop() // which ends what waits for a lock
	return errs
}

var apart = []time.Duration{-20 * time.Second, 0, 30 * time.Second}

const minutely = "* * * * *"

// TestClocksApart: each occurrence begins once, on whichever host, and some host runs
// each of them, also where a host whose clock is behind comes by when the job has
// ended.
func TestClocksApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWorld(t, apart...)
		skipped := play(t, s, 60, 5*time.Second, minutely)
		if len(s.again) > 0 {
			t.Errorf("begun twice: %v", s.again)
		}
		// The first and the last minute are those of one host alone.
		if len(s.begun) < 59 {
			t.Errorf("%d of 60 occurrences were run: %v", len(s.begun), s.begun)
		}
		expected := []error{
			once.ErrDone, once.ErrPassed, once.ErrRunning,
			context.DeadlineExceeded, tenure.ErrLost, once.ErrNotRun, // of the host that was cut off
		}
		for _, err := range skipped {
			if !slices.ContainsFunc(expected, func(target error) bool { return errors.Is(err, target) }) {
				t.Errorf("skipped: %v", err)
			}
		}
	})
}

// TestJobOutlastsItsPeriod: no process runs the job while it runs on.
func TestJobOutlastsItsPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWorld(t, 0, 0, 0)
		play(t, s, 20, 70*time.Second, "*/20 * * * * *")
		if n := len(s.begun); n < 10 {
			t.Errorf("%d runs in 20 minutes", n)
		}
	})
}

// TestBoundary: two hosts that come by 0.4 s apart have the same name for an occurrence: the
// time of the schedule.
func TestBoundary(t *testing.T) {
	schedule := tenuregocron.Period(time.Minute)
	synctest.Test(t, func(t *testing.T) {
		s := newWorld(t, 0, 0)
		start := gocron.WithStartAt(gocron.WithStartDateTime(schedule.Next(time.Now())))
		for _, h := range s.hosts {
			l := h.locker(t, schedule, tenuregocron.LockerOptions{})
			h.schedule(gocron.DurationJob(time.Minute), l.Task("job", func(ctx context.Context, _ *once.Turn) error {
				s.work(ctx, h, 0, 0)
				return nil
			}), gocron.WithDistributedLocker(l), start)
		}
		synctest.Wait()
		// The clocks are set while the timers run, as NTP does it.
		s.hosts[0].ahead.Store(int64(-200 * time.Millisecond))
		s.hosts[1].ahead.Store(int64(200 * time.Millisecond))
		time.Sleep(10*time.Minute + 10*time.Second)
		s.Stop()
		if len(s.again) > 0 {
			t.Errorf("begun twice: %v", s.again)
		}
	})
}

// TestFastClock: a host whose clock is ahead takes the occurrences that it runs, and shuts the
// others out of no more.
func TestFastClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWorld(t, 0, 3*time.Hour)
		right := s.hosts[0].locker(t, tenuregocron.Cron(minutely), tenuregocron.LockerOptions{})
		fast := s.hosts[1].locker(t, tenuregocron.Cron(minutely), tenuregocron.LockerOptions{})
		run := func(l gocron.Locker) error {
			lock, err := l.Lock(t.Context(), "job")
			if err == nil {
				err = lock.Unlock(t.Context())
			}
			return err
		}
		for i := range 40 { // more than the ledger keeps
			if i%7 == 3 || i > 20 { // at last more often than the ledger keeps gaps
				if err := run(fast); err != nil {
					t.Errorf("minute %d, the fast host: %v", i, err)
				}
			}
			if err := run(right); err != nil {
				t.Errorf("minute %d: %v", i, err)
			}
			if err := run(right); !errors.Is(err, once.ErrDone) {
				t.Errorf("minute %d again: %v", i, err)
			}
			time.Sleep(time.Minute)
		}
	})
}

// TestUnlockTwice: unlocking again is no error.
func TestUnlockTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWorld(t, 0)
		l := s.hosts[0].locker(t, tenuregocron.Period(time.Minute), tenuregocron.LockerOptions{})
		lock := testutil.Must(l.Lock(t.Context(), "job"))(t)
		ended, end := context.WithCancel(t.Context())
		end() // gocron's context has ended at a shutdown
		if err := errors.Join(lock.Unlock(ended), lock.Unlock(ended)); err != nil {
			t.Error(err)
		}
	})
}
