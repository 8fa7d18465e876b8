// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuregocron

import (
	"strings"
	"testing"
	"time"
)

func TestDue(t *testing.T) {
	const layout = "2006-01-02 15:04:05"
	at := func(s string) time.Time {
		when, err := time.ParseInLocation(layout, s, time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		return when
	}
	for _, test := range []struct {
		schedule  Schedule
		now, want string
		next      string
	}{
		{Period(5 * time.Minute), "2026-11-26 12:02:29", "2026-11-26 12:00:00", "2026-11-26 12:05:00"},
		{Period(5 * time.Minute), "2026-11-26 12:03:44", "2026-11-26 12:00:00", "2026-11-26 12:05:00"},
		{Period(5 * time.Minute), "2026-11-26 12:03:45", "2026-11-26 12:05:00", "2026-11-26 12:05:00"},
		{Period(24 * time.Hour), "2026-11-26 23:57:59", "2026-11-26 00:00:00", "2026-11-27 00:00:00"},
		{Period(5 * time.Minute), "2026-11-26 12:04:59", "2026-11-26 12:05:00", "2026-11-26 12:05:00"},
		{Period(7 * time.Second), "1969-12-31 23:59:59", "1970-01-01 00:00:00", "1970-01-01 00:00:00"},
		{Cron("* * * * *"), "2026-11-26 12:00:00", "2026-11-26 12:00:00", "2026-11-26 12:01:00"},
		{Cron("* * * * *"), "2026-11-26 12:00:44", "2026-11-26 12:00:00", "2026-11-26 12:01:00"},
		{Cron("* * * * *"), "2026-11-26 12:00:45", "2026-11-26 12:01:00", "2026-11-26 12:01:00"},
		// A clock that was set back while the timer ran has it fire early.
		{Cron("0 3 * * *"), "2026-11-26 02:59:50", "2026-11-26 03:00:00", "2026-11-26 03:00:00"},
		{Cron("0 3 * * *"), "2026-11-26 14:00:00", "2026-11-26 03:00:00", "2026-11-27 03:00:00"},
		// A job that is run by hand.
		{Cron("0 3 * * *"), "2026-11-26 16:00:00", "2026-11-26 03:00:00", "2026-11-27 03:00:00"},
		{Cron("0 3 * * *"), "2026-11-26 02:57:59", "2026-11-25 03:00:00", "2026-11-26 03:00:00"},
		{Cron("0 0 29 2 *"), "2026-11-26 00:00:00", "2024-02-29 00:00:00", "2028-02-29 00:00:00"},
		{Cron("0 0 29 2 *"), "2024-11-26 00:00:00", "2024-02-29 00:00:00", "2028-02-29 00:00:00"},
		{Cron("*/10 * * * * *"), "2026-11-26 12:00:11", "2026-11-26 12:00:10", "2026-11-26 12:00:20"},
		{Cron("@hourly"), "2026-11-26 12:10:00", "2026-11-26 12:00:00", "2026-11-26 13:00:00"},
		{Cron("CRON_TZ=Asia/Tokyo 0 3 * * *"), "2026-11-26 17:59:00", "2026-11-26 18:00:00", "2026-11-26 18:00:00"},
	} {
		got, err := test.schedule.due(at(test.now))
		if err != nil || !got.Equal(at(test.want)) {
			t.Errorf("due at %s: %v, %v, want %s", test.now, got.UTC(), err, test.want)
		}
		if next := test.schedule.Next(at(test.now)); !next.Equal(at(test.next)) {
			t.Errorf("after %s: %v, want %s", test.now, next.UTC(), test.next)
		}
	}
	never := Cron("0 0 31 2 *")
	if got, err := never.due(at("2026-11-26 12:00:00")); err == nil || !strings.Contains(err.Error(), "no time within nine years") {
		t.Errorf("a day that never comes: %v, %v", got, err)
	}
	now := at("2026-11-26 12:00:00")
	custom := Nearest(func(now time.Time) time.Time { return now.Truncate(time.Hour) })
	if got, err := custom.due(now); err != nil || !got.Equal(now) || !custom.Next(now).IsZero() {
		t.Errorf("of one's own: %v, %v, then %v", got, err, custom.Next(now))
	}
}

func TestBadSchedules(t *testing.T) {
	for want, schedule := range map[string]Schedule{
		"period 1.5s: it must be a whole number of seconds": Period(1500 * time.Millisecond),
		"period 0s: it must be":                             Period(0),
		`crontab "every day":`:                              Cron("every day"),
		`crontab "@every 1h": its times are not the same`:   Cron("@every 1h"),
		`crontab "TZ=UTC @every 1h": its times are not`:     Cron("TZ=UTC @every 1h"),
		"is empty": {},
	} {
		if _, err := NewLocker(nil, schedule, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
