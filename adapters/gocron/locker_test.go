// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuregocron_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/tenurelock/tenure"
	tenuregocron "github.com/tenurelock/tenure/adapters/gocron"
	"github.com/tenurelock/tenure/once"
)

// play runs a job on three hosts, whose clocks are apart. From minute 10 to minute 17 one
// of them is cut off.
func play(t *testing.T, minutes int, takes time.Duration, crontab string, ahead []time.Duration) (*world, []run) {
	s := newWorld(t, ahead...)
	for _, h := range s.hosts {
		l := s.locker(h, tenuregocron.Cron(crontab))
		s.schedule(h, gocron.CronJob(crontab, strings.Count(crontab, " ") == 5), l.Task("job", func(ctx context.Context, _ *once.Turn) error {
			s.work(ctx, h, takes, 0)
			return nil
		}), gocron.WithDistributedLocker(l))
	}
	s.minutes(minutes)
	return s, s.shutdown()
}

// minutes passes, with a partition of the host that is at work then, or of the one in the
// middle.
func (s *world) minutes(n int) {
	time.Sleep(10*time.Minute + time.Second)
	cut := s.hosts[1]
	if at := s.Working("job"); len(at) > 0 {
		cut = s.hosts[slices.IndexFunc(s.hosts, func(h *host) bool { return h.Client == at[0] })]
	}
	cut.Partition()
	time.Sleep(7 * time.Minute)
	cut.Heal()
	time.Sleep(time.Duration(n-17)*time.Minute - time.Second)
}

var (
	apart    = []time.Duration{-20 * time.Second, 0, 30 * time.Second}
	together = []time.Duration{0, 0, 0}
)

const minutely = "* * * * *"

// TestClocksApart: each occurrence begins once, on whichever host, and somebody runs all of them,
// also where a host whose clock is behind comes by when the job has ended.
func TestClocksApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, done := play(t, 60, 5*time.Second, minutely, apart)
		for _, what := range twice(done) {
			t.Error(what)
		}
		// The first and the last minute are those of one host alone.
		if len(done) < 59 {
			t.Errorf("%d of 60 occurrences were run: %v", len(done), done)
		}
		for _, err := range s.skipped {
			if !errors.Is(err, once.ErrDone) && !errors.Is(err, once.ErrPassed) && !errors.Is(err, once.ErrRunning) && !s.ofPartition(err) {
				t.Errorf("skipped: %v", err)
			}
		}
	})
}

// ofPartition reports whether the error is that of a host that was cut off.
func (s *world) ofPartition(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, tenure.ErrLost) || errors.Is(err, once.ErrNotRun)
}

// TestJobOutlastsItsPeriod: nobody comes in beside a job that runs on.
func TestJobOutlastsItsPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, done := play(t, 20, 70*time.Second, "*/20 * * * * *", together)
		if len(done) < 10 {
			t.Errorf("%d runs in 20 minutes", len(done))
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
			l := s.locker(h, schedule)
			s.job(h, gocron.DurationJob(time.Minute), l.Task("job", func(ctx context.Context, _ *once.Turn) error {
				s.work(ctx, h, 0, 0)
				return nil
			}), []gocron.JobOption{start}, gocron.WithDistributedLocker(l))
		}
		// The clocks are set while the timers run, as NTP does it.
		s.hosts[0].clock.set(-200 * time.Millisecond)
		s.hosts[1].clock.set(200 * time.Millisecond)
		time.Sleep(10*time.Minute + 10*time.Second)
		if again := twice(s.shutdown()); len(again) > 0 {
			t.Errorf("begun twice: %v", again)
		}
	})
}

// TestFastClock: a host whose clock is ahead takes the occurrences that it runs, and shuts the
// others out of no more.
func TestFastClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWorld(t, 0, 3*time.Hour)
		right, fast := s.locker(s.hosts[0], tenuregocron.Cron(minutely)), s.locker(s.hosts[1], tenuregocron.Cron(minutely))
		run := func(l gocron.Locker) error {
			lock, err := l.Lock(t.Context(), "job")
			if err == nil {
				err = lock.Unlock(t.Context())
			}
			return err
		}
		for i := range 40 { // more than the ledger keeps
			if i%7 == 3 {
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
		lock, err := s.locker(s.hosts[0], tenuregocron.Period(time.Minute)).Lock(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		ended, end := context.WithCancel(t.Context())
		end() // gocron's context has ended at a shutdown
		if err := errors.Join(lock.Unlock(ended), lock.Unlock(ended)); err != nil {
			t.Error(err)
		}
	})
}
