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
	"github.com/tenurelock/tenure/once"
)

// A way is how the hosts of a stage share a job: with our locker, or with another one.
type way func(h *host) gocron.Locker

// play runs a job on three hosts, whose clocks are apart. From minute 10 to minute 17 one
// of them is cut off.
func play(t *testing.T, minutes int, takes time.Duration, definition func() gocron.JobDefinition, ahead []time.Duration, how func(*stage) way) (*stage, []stretch) {
	s := newStage(t, ahead...)
	locker := how(s)
	for _, h := range s.hosts {
		l := locker(h)
		work := func(ctx context.Context) { s.work(ctx, h, takes, 0) }
		task := any(work)
		if ours, ok := l.(*tenuregocron.Locker); ok {
			task = ours.Task("job", func(ctx context.Context, _ *once.Turn) error { work(ctx); return nil })
		}
		s.schedule(h, definition(), task, gocron.WithDistributedLocker(l))
	}
	s.minutes(minutes)
	return s, s.shutdown()
}

// minutes passes, with a partition of the host that is at work then, or of the one in the
// middle.
func (s *stage) minutes(n int) {
	time.Sleep(10*time.Minute + time.Second)
	cut := s.hosts[1]
	s.mu.Lock()
	if len(s.working) > 0 {
		cut = s.working[0]
	}
	s.mu.Unlock()
	s.partition(cut, true)
	time.Sleep(7 * time.Minute)
	s.partition(cut, false)
	time.Sleep(time.Duration(n-17)*time.Minute - time.Second)
}

func tenures(schedule tenuregocron.Schedule) func(*stage) way {
	return func(s *stage) way {
		return func(h *host) gocron.Locker {
			l, err := tenuregocron.NewLocker(h.Client.Client, schedule, &tenuregocron.LockerOptions{Now: h.clock.Now, Location: time.UTC})
			if err != nil {
				s.t.Fatal(err)
			}
			return l
		}
	}
}

func redis(tries int, extend time.Duration) func(*stage) way {
	return func(*stage) way {
		server := &keys{held: make(map[string]key)}
		return func(h *host) gocron.Locker {
			return &redisLocker{keys: server, h: h, tries: tries, expiry: 8 * time.Second, extend: extend}
		}
	}
}

func gorm(*stage) way {
	table := &rows{rows: make(map[string]bool)}
	return func(h *host) gocron.Locker { return &gormLocker{table, h, time.Second} }
}

var (
	apart    = []time.Duration{-20 * time.Second, 0, 30 * time.Second}
	together = []time.Duration{0, 0, 0}
)

// minutely makes a definition for one scheduler: gocron keeps its state in there.
func minutely() gocron.JobDefinition { return gocron.CronJob("* * * * *", false) }

// TestClocksApart: with each lock for a job, which is free again when the job has ended, a host
// whose clock is behind runs the occurrence once more. With ours each begins once, on
// whichever host, and somebody runs all of them.
func TestClocksApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, done := play(t, 60, 5*time.Second, minutely, apart, tenures(tenuregocron.Cron("* * * * *")))
		for _, what := range append(twice(done), overlaps(done)...) {
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
	synctest.Test(t, func(t *testing.T) {
		if _, done := play(t, 60, 5*time.Second, minutely, apart, redis(1, time.Second)); len(twice(done)) < 100 {
			t.Errorf("the lock of a key ran %d occurrences twice: does the model hold?", len(twice(done)))
		}
	})
}

// ofPartition reports whether the error is that of a host that was cut off.
func (s *stage) ofPartition(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, tenure.ErrLost) || errors.Is(err, once.ErrNotRun)
}

// TestSecondReplicaWaits: a lock that is tried again and again lets the second host in when
// the first one is done.
func TestSecondReplicaWaits(t *testing.T) {
	for name, theirs := range map[string]struct {
		how   func(*stage) way
		twice bool
	}{
		"ours":  {tenures(tenuregocron.Cron("* * * * *")), false},
		"redis": {redis(32, 0), true},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, done := play(t, 20, time.Second, minutely, together, theirs.how)
			if again := twice(done); (len(again) > 0) != theirs.twice {
				t.Errorf("%s: begun twice: %v", name, again)
			}
		})
	}
}

// TestJobOutlastsExpiry: a lock that expires while the job runs lets a second host in beside
// it, if nothing renews it, and when what renews it has met an error.
func TestJobOutlastsExpiry(t *testing.T) {
	often := func() gocron.JobDefinition { return gocron.CronJob("*/20 * * * * *", true) }
	for name, theirs := range map[string]struct {
		how    func(*stage) way
		beside bool
	}{
		"ours":             {tenures(tenuregocron.Cron("*/20 * * * * *")), false},
		"redis":            {redis(1, 0), true},
		"redis, extending": {redis(1, 2*time.Second), true},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, done := play(t, 20, 70*time.Second, often, together, theirs.how)
			if beside := overlaps(done); (len(beside) > 0) != theirs.beside {
				t.Errorf("%s: beside each other: %v", name, beside)
			}
			if len(done) < 10 {
				t.Errorf("%s: %d runs in 20 minutes", name, len(done))
			}
		})
	}
}

// TestBoundary: two hosts that come by 0.4 s apart get two names for one occurrence, if the
// name is the present time, cut; and the same one, if it is the time of the schedule.
func TestBoundary(t *testing.T) {
	schedule := tenuregocron.Period(time.Minute)
	for name, theirs := range map[string]struct {
		how   func(*stage) way
		twice bool
	}{
		"ours": {tenures(schedule), false},
		"gorm": {gorm, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, 0, 0)
			locker := theirs.how(s)
			start := gocron.WithStartAt(gocron.WithStartDateTime(schedule.Next(time.Now())))
			for _, h := range s.hosts {
				l := locker(h)
				work := func(ctx context.Context) { s.work(ctx, h, 0, 0) }
				task := any(work)
				if ours, ok := l.(*tenuregocron.Locker); ok {
					task = ours.Task("job", func(ctx context.Context, _ *once.Turn) error { work(ctx); return nil })
				}
				s.job(h, gocron.DurationJob(time.Minute), task, []gocron.JobOption{start}, gocron.WithDistributedLocker(l))
			}
			// The clocks are set while the timers run, as NTP does it.
			s.hosts[0].clock.set(-200 * time.Millisecond)
			s.hosts[1].clock.set(200 * time.Millisecond)
			time.Sleep(10*time.Minute + 10*time.Second)
			if again := twice(s.shutdown()); (len(again) > 0) != theirs.twice {
				t.Errorf("%s: begun twice: %v", name, again)
			}
		})
	}
}

// TestFastClock: a host whose clock is ahead takes the occurrences that it runs, and shuts the
// others out of no more.
func TestFastClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0, 3*time.Hour)
		lockers := tenures(tenuregocron.Cron("* * * * *"))(s)
		right, fast := lockers(s.hosts[0]), lockers(s.hosts[1])
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

// TestUnlockTwice: unlocking again is no error, and panics nowhere.
func TestUnlockTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		for name, how := range map[string]func(*stage) way{"ours": tenures(tenuregocron.Period(time.Minute)), "redis": redis(1, time.Second)} {
			lock, err := how(s)(s.hosts[0]).Lock(t.Context(), "job")
			if err != nil {
				t.Fatal(err)
			}
			ended, end := context.WithCancel(t.Context())
			end() // gocron's context has ended at a shutdown
			if err := lock.Unlock(ended); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			func() {
				defer func() {
					if panicked := recover() != nil; panicked != (name == "redis") {
						t.Errorf("%s: panicked: %v", name, panicked)
					}
				}()
				if err := lock.Unlock(ended); err != nil {
					t.Errorf("%s, again: %v", name, err)
				}
			}()
		}
	})
}
