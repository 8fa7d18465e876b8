// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A zone in the form of POSIX has the clock of the zone with that rule.
func TestZone(t *testing.T) {
	for rule, name := range map[string]string{
		"JST-9":                        "Asia/Tokyo",
		":JST-9":                       "Asia/Tokyo",
		"UTC0":                         "UTC",
		"<+0330>-3:30":                 "Asia/Tehran",
		"CET-1CEST,M3.5.0,M10.5.0/3":   "Europe/Berlin",
		"EST5EDT,M3.2.0,M11.1.0":       "America/New_York",
		"EST5EDT":                      "America/New_York",
		"AEST-10AEDT,M10.1.0,M4.1.0/3": "Australia/Sydney",
		"<-03>3":                       "America/Sao_Paulo",
		":Europe/Berlin":               "Europe/Berlin",
	} {
		got, err := Zone(rule)
		if err != nil {
			t.Errorf("%s: %v", rule, err)
			continue
		}
		want := zone(t, name)
		for at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() < 2028; at = at.Add(time.Hour) {
			if a, b := at.In(got).Format(time.DateTime), at.In(want).Format(time.DateTime); a != b {
				t.Errorf("%s at %v: %s, in %s it is %s", rule, at, a, name, b)
				break
			}
		}
		from, to := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2027, 6, 1, 0, 0, 0, 0, time.UTC)
		for _, expression := range []string{"30 2 * * *", "*/30 * * * *"} {
			a, _ := parse(t, expression, got).Between(from, to, 1<<20)
			b, _ := parse(t, expression, want).Between(from, to, 1<<20)
			if !slices.EqualFunc(a, b, time.Time.Equal) {
				t.Errorf("%s: the times of %q are not those in %s", rule, expression, name)
			}
		}
	}
	for _, wrong := range []string{
		"", "Mars/Base", "CET-1CEST,M3.5.0", "CET-1CEST,M13.5.0,M10.5.0/3", "ABC", "X-1",
		"CET-1CEST,M3.5.0,M10.5.0/3 ", "A\nB-1",
	} {
		if got, err := Zone(wrong); err == nil || !strings.Contains(err.Error(), "is not known here") {
			t.Errorf("%q: %v, %v", wrong, got, err)
		}
	}
}

// The last day of a leap year has its times in a zone for which only a rule is known: each
// zone with a rule, and others from 2038 on.
func TestLastDayOfALeapYear(t *testing.T) {
	for name, year := range map[string]string{
		"CET-1CEST,M3.5.0,M10.5.0/3": "2028", "JST-9": "2028",
		"Europe/Berlin": "2040",
	} {
		z, err := Zone(name)
		if err != nil {
			t.Skipf("this machine has no time zones: %v", err)
		}
		s := parse(t, "30 */12 * * *", z)
		next := map[string]string{"2028": "2029", "2040": "2041"}[year]
		var have []string
		for _, at := range during(t, s, year+"-12-30 12:00", next+"-01-02 00:00") {
			have = append(have, at[:len("02 15:04")])
		}
		if want := []string{"30 12:30", "31 00:30", "31 12:30", "01 00:30", "01 12:30"}; len(have) < 5 ||
			!slices.Equal(have[:5], want) {
			t.Errorf("%s: %q, want %q", name, have[:min(5, len(have))], want)
		}
	}
}

// After returns the next times, as Next does one by one.
func TestAfter(t *testing.T) {
	from := time.Date(2026, 3, 20, 12, 0, 0, 0, time.UTC)
	for _, expression := range []string{"* * * * *", "*/7 3-5 * * *", "30 2 * * *", "0 4 1 * *", "0 0 29 2 *"} {
		s := parse(t, expression, zone(t, "Europe/Berlin"))
		got := s.After(from, 400)
		at := from
		for i, next := range got {
			if at, _ = s.Next(at); !at.Equal(next) || !next.After(from) {
				t.Fatalf("%s: time %d after %v is %v, want %v", s, i, from, next, at)
			}
		}
		if sparse := expression == "0 0 29 2 *"; len(got) != 400 != sparse {
			t.Errorf("%s: %d times", s, len(got))
		}
	}
}
