// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuregocron

import (
	"errors"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"
)

// A Schedule says for which time an occurrence of a job is scheduled, so that all processes
// give it the same name. Make it by [Period], [Cron] or [Nearest], as the job's own.
type Schedule struct {
	due  func(now time.Time) (time.Time, error)
	next func(now time.Time) time.Time
	err  error
}

// Period is the schedule of a gocron.DurationJob: the multiples of the period since the Unix
// epoch. It is a whole number of seconds. An occurrence counts for the last multiple, and for
// the next one in the last quarter of the period before it, the last 2 minutes at most. Let
// the jobs of all processes start at a multiple, so that all count for the same one:
//
//	gocron.WithStartAt(gocron.WithStartDateTime(schedule.Next(time.Now())))
func Period(period time.Duration) Schedule {
	if period <= 0 || period%time.Second != 0 {
		return Schedule{err: fmt.Errorf("period %v: it must be a whole number of seconds, and at least one", period)}
	}
	seconds := int64(period / time.Second)
	floor := func(t time.Time) time.Time {
		n := t.Unix()
		return time.Unix(n-((n%seconds)+seconds)%seconds, 0)
	}
	return Schedule{
		due:  func(now time.Time) (time.Time, error) { return floor(now.Add(min(period/4, maxEarly))), nil },
		next: func(now time.Time) time.Time { return floor(now).Add(period) },
	}
}

// Cron is the schedule of a gocron.CronJob with that crontab: five fields, or six with the
// seconds before them, and perhaps CRON_TZ=ZONE in front. Without a zone it is that of
// [LockerOptions].Location, which must be the scheduler's. An occurrence counts for the last
// time of the crontab, and for the next one in the last quarter of the time between the two,
// the last 2 minutes at most: a job that is run by hand does not take the time to come.
// "@every 1h" is refused: it has no times that all processes share, as [Period] has.
// So is, by Lock, a run that gocron.DaylightSavingsTimeRunAfterTransition moves to a time that
// the crontab does not have.
func Cron(crontab string) Schedule {
	parser := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)
	times, err := parser.Parse(crontab)
	if err != nil {
		return Schedule{err: fmt.Errorf("crontab %q: %w", crontab, err)}
	}
	if _, ok := times.(cron.ConstantDelaySchedule); ok {
		return Schedule{err: fmt.Errorf("crontab %q: its times are not the same in all processes: use Period", crontab)}
	}
	return Schedule{
		due:  func(now time.Time) (time.Time, error) { return due(times, now) },
		next: times.Next,
	}
}

// Nearest is a schedule of any other kind. The function returns the scheduled time of a
// job run that starts now: the last scheduled time, or a very near one. It must be the
// same in all processes, and not the present time. It is cut to whole seconds. A process whose
// clock is ahead shuts out all before what it runs once that is 17 occurrences.
func Nearest(scheduled func(now time.Time) time.Time) Schedule {
	return Schedule{due: func(now time.Time) (time.Time, error) { return scheduled(now), nil }}
}

// Next returns the first scheduled time after now. It is zero if the schedule has no
// more, or is made by [Nearest].
func (s Schedule) Next(now time.Time) time.Time {
	if s.next == nil {
		return time.Time{}
	}
	return s.next(now)
}

// lookBack is how far back the occurrence before now is looked for at first, and how far at
// most: a February 29 is up to eight years away.
const (
	lookBack    = 2 * time.Minute
	lookBackMax = 9 * 366 * 24 * time.Hour
)

// between returns the newest times of the schedule between two of them, as package once asks
// for them, so that neighbours are one span of its ledger: a host whose clock is ahead would
// else fill it with spans, and shut out all occurrences before them. It is nil if the times
// are not known.
func (s Schedule) between(where *time.Location) func(last, slot int64) ([]int64, int) {
	if s.next == nil {
		return nil
	}
	return func(last, slot int64) (list []int64, more int) {
		for back := lookBack; len(list) == 0 && back <= lookBackMax; back *= 2 {
			from := max(last, slot-int64(back/time.Second))
			for t := s.next(time.Unix(from, 0).In(where)); !t.IsZero() && t.Unix() < slot; t = s.next(t) {
				list = append(list, t.Unix())
			}
			if from == last {
				break
			}
		}
		return list, 0
	}
}

// maxEarly is how far ahead of its time an occurrence is due at most: more than two clocks of
// one network differ by.
const maxEarly = 2 * time.Minute

// due returns the last time of a crontab that is not after now, or the next one if that is
// near: by a quarter of the time between the two, and maxEarly.
func due(times cron.Schedule, now time.Time) (time.Time, error) {
	next := times.Next(now)
	last := time.Time{}
	for back := lookBack; last.IsZero() && back <= lookBackMax; back *= 2 {
		// What Next returns is later than what it is given.
		for t := times.Next(now.Add(-back)); !t.IsZero() && !t.After(now); t = times.Next(t) {
			last = t
		}
	}
	switch {
	case last.IsZero() && next.IsZero():
		return time.Time{}, errors.New("the crontab has no time within nine years")
	case last.IsZero(), !next.IsZero() && next.Sub(now) <= min(next.Sub(last)/4, maxEarly):
		return next, nil
	}
	return last, nil
}
