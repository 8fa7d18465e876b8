// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Skipf("this machine has no time zones: %v", err)
	}
	return z
}

func parse(t *testing.T, expression string, z *time.Location) *Schedule {
	t.Helper()
	s, err := Parse(expression, z)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// during returns the instants of some time, with the offset that the clock has then.
func during(t *testing.T, s *Schedule, from, to string) []string {
	t.Helper()
	var begin, end time.Time
	for text, at := range map[string]*time.Time{from: &begin, to: &end} {
		var err error
		if *at, err = time.ParseInLocation("2006-01-02 15:04", text, s.zone); err != nil {
			t.Fatal(err)
		}
	}
	var forward, backward []string
	for at := begin.Add(-time.Nanosecond); ; {
		next, ok := s.Next(at)
		if !ok || !next.Before(end) {
			break
		}
		forward = append(forward, next.Format("02 15:04 -0700"))
		at = next
	}
	list, more := s.Between(begin.Add(-time.Nanosecond), end, 10000)
	for _, at := range list {
		backward = append(backward, at.Format("02 15:04 -0700"))
	}
	if d := cmp.Diff(forward, backward); d != "" || more != 0 {
		t.Errorf("%s forwards and backwards differ (%d more):\n%s", s, more, d)
	}
	return forward
}

// In each zone with each expression: what the hours are that come twice or never.
func TestSummerTime(t *testing.T) {
	for name, tc := range map[string]struct {
		zone, expression, from, to string
		want                       []string
	}{
		"a time that is skipped is moved to the change": {
			"Europe/Berlin", "30 2 * * *", "2026-03-28 12:00", "2026-03-30 12:00",
			[]string{"29 03:00 +0200", "30 02:30 +0200"},
		},
		"several times that are skipped are one": {
			"Europe/Berlin", "0,15,30 2 * * *", "2026-03-28 12:00", "2026-03-29 12:00",
			[]string{"29 03:00 +0200"},
		},
		"a time that is skipped and the one to which it moves are one": {
			"Europe/Berlin", "0 2,3 * * *", "2026-03-28 12:00", "2026-03-29 12:00",
			[]string{"29 03:00 +0200"},
		},
		"a time that comes twice counts once": {
			"Europe/Berlin", "30 2 * * *", "2026-10-24 12:00", "2026-10-26 12:00",
			[]string{"25 02:30 +0200", "26 02:30 +0100"},
		},
		"the end of an hour that comes twice": {
			"Europe/Berlin", "0 3 * * *", "2026-10-24 12:00", "2026-10-25 12:00",
			[]string{"25 03:00 +0100"},
		},
		"each hour, one of them skipped": {
			"Europe/Berlin", "0 * * * *", "2026-03-29 01:00", "2026-03-29 05:00",
			[]string{"29 01:00 +0100", "29 03:00 +0200", "29 04:00 +0200"},
		},
		"each hour, one of them twice": {
			"Europe/Berlin", "0 * * * *", "2026-10-25 01:00", "2026-10-25 04:00",
			[]string{"25 01:00 +0200", "25 02:00 +0200", "25 02:00 +0100", "25 03:00 +0100"},
		},
		"a rhythm within an hour that comes twice": {
			"Europe/Berlin", "*/30 2 * * *", "2026-10-25 00:00", "2026-10-25 12:00",
			[]string{"25 02:00 +0200", "25 02:30 +0200", "25 02:00 +0100", "25 02:30 +0100"},
		},
		"a rhythm within an hour that is skipped": {
			"Europe/Berlin", "*/30 2 * * *", "2026-03-28 12:00", "2026-03-30 02:10",
			[]string{"30 02:00 +0200"},
		},
		"a change by half an hour": {
			"Australia/Lord_Howe", "15 2 * * *", "2026-10-03 12:00", "2026-10-05 12:00",
			[]string{"04 02:30 +1100", "05 02:15 +1100"},
		},
		"half an hour twice": {
			"Australia/Lord_Howe", "45 1 * * *", "2026-04-04 12:00", "2026-04-06 12:00",
			[]string{"05 01:45 +1100", "06 01:45 +1030"},
		},
		"a midnight that is skipped": {
			"America/Santiago", "0 0 * * *", "2026-09-05 12:00", "2026-09-07 12:00",
			[]string{"06 01:00 -0300", "07 00:00 -0300"},
		},
		"an hour before midnight that comes twice": {
			"America/Santiago", "30 23 * * *", "2026-04-03 12:00", "2026-04-05 12:00",
			[]string{"03 23:30 -0300", "04 23:30 -0300"},
		},
		"each hour over a midnight that comes twice": {
			"America/St_Johns", "0,30 * * * *", "2010-11-06 23:00", "2010-11-07 01:00",
			[]string{"06 23:00 -0230", "06 23:30 -0230", "07 00:00 -0230", "06 23:30 -0330", "07 00:00 -0330", "07 00:30 -0330"},
		},
		"a day that is skipped was no occurrence": {
			"Pacific/Apia", "0 12 * * *", "2011-12-29 00:00", "2012-01-01 00:00",
			[]string{"29 12:00 -1000", "31 12:00 +1400"},
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			s := parse(t, tc.expression, zone(t, tc.zone))
			if d := cmp.Diff(tc.want, during(t, s, tc.from, tc.to)); d != "" {
				t.Errorf("%s in %s (- want, + is):\n%s", s, tc.zone, d)
			}
		})
	}
}

// The fields mean what they mean in a crontab.
func TestFields(t *testing.T) {
	for _, tc := range []struct {
		expression, from, to string
		want                 []string
	}{
		{"0 0 1 * 1", "2026-06-01 00:00", "2026-06-16 00:00", []string{"01", "08", "15"}}, // either
		{"0 0 13 * 5", "2026-02-12 00:00", "2026-02-21 00:00", []string{"13", "20"}},
		{"0 0 */2 * 1", "2026-06-01 00:00", "2026-06-23 00:00", []string{"01", "15"}}, // both: it begins with a star
		{"0 0 * * 7", "2026-06-01 00:00", "2026-06-15 00:00", []string{"07", "14"}},
		{"0 0 * * 5-7", "2026-06-01 00:00", "2026-06-09 00:00", []string{"05", "06", "07"}},
		{"0 0 * jun sun", "2026-06-01 00:00", "2026-08-01 00:00", []string{"07", "14", "21", "28"}},
		{"0 0 29 2 *", "2025-01-01 00:00", "2029-01-01 00:00", []string{"29"}},
		{"@weekly", "2026-06-01 00:00", "2026-06-15 00:00", []string{"07", "14"}},
	} {
		s := parse(t, tc.expression, time.UTC)
		have := during(t, s, tc.from, tc.to)
		for i := range have {
			have[i] = have[i][:2]
		}
		if !slices.Equal(have, tc.want) {
			t.Errorf("%q: days %q, want %q", tc.expression, have, tc.want)
		}
	}
}

func TestRefused(t *testing.T) {
	for expression, want := range map[string]string{
		"":                           "has 0 fields",
		"0 3 * *":                    "has 4 fields",
		"0 0 L * *":                  "day of the month \"L\": want",
		"H H * * *":                  "minute \"H\": want",
		"0 0 15W * *":                "day of the month \"15W\": want",
		"0 0 * * 1#2":                "weekday \"1#2\": want",
		"0 0 * * 1L":                 "weekday \"1L\": want",
		"1,,2 * * * *":               "minute \"1,,2\": want",
		"1, * * * *":                 "minute \"1,\": want",
		"*-5 * * * *":                "minute \"*-5\": want",
		"+5 3 * * *":                 "minute \"+5\": want",
		"0 0 3 * * *":                "has 6 fields",
		"60 * * * *":                 "60",
		"0 24 * * *":                 "24",
		"*/0 * * * *":                "step",
		"a * * * *":                  "a",
		"@reboot":                    "is not known",
		"@every 5m":                  "is not known",
		"TZ=0":                       "a time zone does not belong",
		"CRON_TZ=Asia/Tokyo * * * *": "a time zone does not belong",
		"0 0 30 2 *":                 "no date matches it",
		"0 0 31 4,6,9,11 *":          "no date matches it",
	} {
		s, err := Parse(expression, time.UTC)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want an error with %q", expression, s, err, want)
		}
	}
	if _, err := Parse("0 0 30 2 *", time.UTC); !errors.Is(err, ErrNever) {
		t.Errorf("%v is not ErrNever", err)
	}
}

// Something that starts a little early is for the next instant, and anything else for the one
// that was, however late it starts.
func TestDue(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	for _, tc := range []struct{ expression, now, want string }{
		{"5 3 * * *", "2026-11-28 16:00:00", "28 03:05"}, // a trial by hand
		{"5 3 * * *", "2026-11-29 03:02:59", "28 03:05"},
		{"5 3 * * *", "2026-11-29 03:03:00", "29 03:05"}, // 2 minutes, at most
		{"5 3 * * *", "2026-11-29 03:04:59", "29 03:05"},
		{"5 3 * * *", "2026-11-29 03:05:00", "29 03:05"},
		{"0 4 1 * *", "2026-11-20 09:00:00", "01 04:00"}, // a timer that makes up for an outage
		{"*/5 * * * *", "2026-11-28 10:08:00", "28 10:05"},
		{"*/5 * * * *", "2026-11-28 10:08:44", "28 10:05"},
		{"*/5 * * * *", "2026-11-28 10:08:45", "28 10:10"}, // a quarter of the time to the next one
		{"* * * * *", "2026-11-28 10:08:44", "28 10:08"},
		{"* * * * *", "2026-11-28 10:08:45", "28 10:09"},
		{"0,1 3 * * *", "2026-11-28 02:59:30", "28 03:00"}, // and never the one after it
		{"0,1 3 * * *", "2026-11-28 03:00:44", "28 03:00"},
		{"30 2 * * *", "2026-03-29 03:00:00", "29 03:00"}, // moved to the change of the clock
		{"30 2 * * *", "2026-03-29 01:59:30", "29 03:00"},
	} {
		s := parse(t, tc.expression, berlin)
		now, err := time.ParseInLocation(time.DateTime, tc.now, berlin)
		if err != nil {
			t.Fatal(err)
		}
		if at, ok := s.Due(now, s.Early(now)); !ok || at.Format("02 15:04") != tc.want {
			t.Errorf("%s at %s: %v, want %s", s, tc.now, at, tc.want)
		}
	}
	s := parse(t, "5 3 * * *", berlin)
	now := time.Date(2026, 11, 28, 16, 0, 0, 0, berlin)
	for early, want := range map[time.Duration]int{0: 28, 11 * time.Hour: 28, 12 * time.Hour: 29} {
		if at, ok := s.Due(now, early); !ok || at.Day() != want {
			t.Errorf("%v early: %v, want that of the %dth", early, at, want)
		}
	}
}

// Between lists the newest, and counts all.
func TestBetweenIsBounded(t *testing.T) {
	s := parse(t, "* * * * *", time.UTC)
	end := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	want := []time.Time{end.Add(-3 * time.Minute), end.Add(-2 * time.Minute), end.Add(-time.Minute)}
	for from, all := range map[time.Time]int{
		end.Add(-4 * time.Minute): 3, end.AddDate(0, 0, -1): 1439,
		end.AddDate(-1, 0, 0): 525599, end.AddDate(0, 0, -28): 28*1440 - 1,
	} {
		if list, more := s.Between(from, end, 3); !slices.EqualFunc(list, want, time.Time.Equal) || more != all-3 {
			t.Errorf("from %v: %v and %d more, want %v and %d", from, list, more, want, all-3)
		}
	}
	if list, more := s.Between(end.Add(-time.Minute), end, 3); len(list) > 0 || more != 0 {
		t.Errorf("between two neighbours there are %v", list)
	}
	if _, more := parse(t, "0 * * * *", time.UTC).Between(time.Time{}, end, 0); more < 20*365*24 ||
		more > 21*366*24 { // not for ever
		t.Errorf("%d since the year 1", more)
	}
}
