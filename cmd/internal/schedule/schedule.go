// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package schedule computes the instants that a crontab line means.
//
// The fields of an expression are parsed by github.com/netresearch/go-cron. The
// instants are computed here, because a slot is named by its instant, so that each
// occurrence must have exactly one, also on the two days a year on which an hour is
// skipped or comes twice. Libraries in Go (robfig/cron 3.0.1, netresearch/go-cron
// 0.9.1, hashicorp/cronexpr 1.1.3, adhocore/gronx 1.20.4) leave out the night in which
// the hour is skipped, or return two instants for one night when it comes twice, or
// both; and most of them do not compute the instant before.
//
// # Summer time
//
// The rules are cron's on Debian, so that an expression means the same as in the crontab that
// it was copied from:
//
//   - If neither the minute nor the hour begins with "*", the expression names times of
//     day, and each day has each of them once. A time that the clock skips is moved to
//     the instant of the change. If a time occurs twice, the first one counts.
//   - Otherwise the expression names a rhythm. It follows the clock: nothing is moved,
//     and an hour that occurs twice has its occurrences twice.
//   - A clock that skips more than three hours was corrected, and nothing is moved.
package schedule

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	cron "github.com/netresearch/go-cron"

	"github.com/tenurelock/tenure/cmd/internal/pattern"
)

// Schedule is a crontab's expression in a time zone. It is never changed, and may be
// used by any number of goroutines.
type Schedule struct {
	text string
	zone *time.Location

	months, days, weekdays uint64 // sets of numbers, as bits
	minutes                []int  // of the day
	rhythm                 bool   // the minute or the hour begins with "*"
	either                 bool   // one of day and weekday is enough
}

// ErrNever is returned for an expression that no date fits.
var ErrNever = errors.New("no date matches it")

// names are the expressions that have one.
var names = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

// fieldForm is what crontab(5) lets a field be. The parser takes more, and what it refuses
// it explains by options of its own.
var fieldForm = pattern.Lazy(`^(?:` + item + `)(?:,(?:` + item + `))*$`)

const item = `(?:[*?]|(?:[0-9]+|[A-Za-z]{3,})(?:-(?:[0-9]+|[A-Za-z]{3,}))?)(?:/[0-9]+)?`

var fieldNames = [5]string{"minute", "hour", "day of the month", "month", "weekday"}

// maxShift is how far a change of the clock may move a time of day.
const maxShift = 3 * time.Hour

// Parse reads an expression of five fields, or a name such as @daily, as crontab(5)
// describes them. As there, a date fits if its day of the month or its weekday does
// when both are restricted, and a field is not if it begins with "*".
func Parse(expression string, zone *time.Location) (*Schedule, error) {
	text := strings.Join(strings.Fields(expression), " ")
	if full, ok := names[strings.ToLower(text)]; ok {
		text = full
	}
	fields := strings.Fields(text)
	switch {
	case strings.HasPrefix(text, "@"):
		return nil, fmt.Errorf("%.20q is not known: want five fields, or @hourly, @daily, @weekly, @monthly or @yearly", text)
	case strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ="):
		return nil, errors.New("a time zone does not belong in the expression")
	case len(fields) != 5:
		return nil, fmt.Errorf("%.40q has %d fields: want five: minute, hour, day of the month, month, weekday",
			text, len(fields))
	}
	for i, field := range fields {
		if !fieldForm().MatchString(field) {
			return nil, fmt.Errorf("%s %.20q: want numbers, names such as JAN or MON, ranges A-B and steps /N, "+
				"with commas between them, or *; L, W, # and H, which some schedulers know, are not supported here",
				fieldNames[i], field)
		}
	}
	parser, err := cron.TryNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	if err != nil {
		return nil, err
	}
	parsed, err := parser.Parse(text)
	if err != nil {
		return nil, err
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("%.40q names no times", text)
	}
	open := func(field string) bool { return field[0] == '*' || field[0] == '?' }
	s := &Schedule{
		text: text, zone: zone, months: spec.Month, days: spec.Dom, weekdays: spec.Dow,
		rhythm: open(fields[0]) || open(fields[1]),
		either: !open(fields[2]) && !open(fields[4]),
	}
	for hour := range 24 {
		for minute := range 60 {
			if has(spec.Hour, hour) && has(spec.Minute, minute) {
				s.minutes = append(s.minutes, 60*hour+minute)
			}
		}
	}
	for d := (date{2000, time.January, 1}); ; d = d.add(1) {
		if d.year == 2028 { // 28 years have each date on each weekday
			return nil, fmt.Errorf("%q: %w", text, ErrNever)
		}
		if s.fits(d) {
			return s, nil
		}
	}
}

func has(set uint64, number int) bool { return set&(1<<number) != 0 }

// String returns the expression's five fields.
func (s *Schedule) String() string { return s.text }

// date is a day of the calendar.
type date struct {
	year  int
	month time.Month
	day   int
}

func dateOf(t time.Time) date {
	var d date
	d.year, d.month, d.day = t.Date()
	return d
}

// midnight is the day's beginning, as if all clocks showed UTC.
func (d date) midnight() time.Time { return time.Date(d.year, d.month, d.day, 0, 0, 0, 0, time.UTC) }

func (d date) add(days int) date { return dateOf(d.midnight().AddDate(0, 0, days)) }

// fits says whether the day of the month, the month and the weekday are right.
func (s *Schedule) fits(d date) bool {
	if !has(s.months, int(d.month)) {
		return false
	}
	day, weekday := has(s.days, d.day), has(s.weekdays, int(d.midnight().Weekday()))
	if s.either {
		return day || weekday
	}
	return day && weekday
}

// stretch is a time during which a zone has one offset.
type stretch struct {
	begin, end time.Time // end is no part of it
	offset     time.Duration
}

// stretches returns the stretches that a day in the zone may touch, in order.
func (s *Schedule) stretches(d date) []stretch {
	const most = 30 * time.Hour // more than any offset, on both sides
	var all []stretch
	last := d.midnight().AddDate(0, 0, 1).Add(most)
	for t := d.midnight().Add(-most).In(s.zone); t.Before(last); {
		_, offset := t.Zone()
		_, end := t.ZoneBounds()
		switch {
		case end.IsZero() || end.After(last):
			end = last
		case !end.After(t):
			// Where package time knows only a rule of a zone, its years have 365 days, and on
			// the last day of a leap year the end that it returns has passed.
			end = t.Add(time.Hour)
		}
		all = append(all, stretch{t, end, time.Duration(offset) * time.Second})
		t = end.In(s.zone)
	}
	return all
}

// instants returns the instants of one day, unordered.
func (s *Schedule) instants(d date) []time.Time {
	if !s.fits(d) {
		return nil
	}
	var all []time.Time
	stretches := s.stretches(d)
	for _, minute := range s.minutes {
		shown := d.midnight().Add(time.Duration(minute) * time.Minute)
		found := false
		for i, part := range stretches {
			t := shown.Add(-part.offset)
			switch {
			case found && !s.rhythm:
			case !t.Before(part.begin) && t.Before(part.end):
				found = true
				all = append(all, t)
			case s.rhythm || i == 0 || !t.Before(part.begin):
			case !shown.Add(-stretches[i-1].offset).Before(part.begin) && part.offset-stretches[i-1].offset <= maxShift:
				// The clock jumped over it, from the stretch before to this one.
				found = true
				all = append(all, part.begin)
			}
		}
	}
	return all
}

// around returns the instants of some days, in order. A change of the clock at midnight
// may move some to the next day, and show the last of a day after the first of the next,
// so that a day is never asked without its neighbors.
func (s *Schedule) around(first date, days int) []time.Time {
	var all []time.Time
	for i := range days {
		all = append(all, s.instants(first.add(i))...)
	}
	slices.SortFunc(all, time.Time.Compare)
	return slices.CompactFunc(all, time.Time.Equal)
}

const (
	// A date has its next fitting weekday within 40 years, also over a year such as 2100.
	searchYears = 41
	missedYears = 20
	windowDays  = 28 // that are computed at once
)

// each yields the instants of some years: those after t in order, or those that are not after t
// in reverse order.
func (s *Schedule) each(t time.Time, direction, years int) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		for days, seen := 1, 0; seen < 366*years; days, seen = min(2*days, windowDays), seen+days {
			begin, end := t, t.AddDate(0, 0, direction*days)
			t = end
			if direction < 0 {
				begin, end = end, begin
			}
			instants := s.around(dateOf(begin.In(s.zone)).add(-1), days+3)
			if direction < 0 {
				slices.Reverse(instants)
			}
			for _, at := range instants {
				if at.After(begin) && !at.After(end) && !yield(at.In(s.zone)) {
					return
				}
			}
		}
	}
}

// Prev returns the last scheduled instant that is not after t.
func (s *Schedule) Prev(t time.Time) (time.Time, bool) { return first(s.each(t, -1, searchYears)) }

// Next returns the first scheduled instant that is after t.
func (s *Schedule) Next(t time.Time) (time.Time, bool) { return first(s.each(t, 1, searchYears)) }

func first(all iter.Seq[time.Time]) (time.Time, bool) {
	for at := range all {
		return at, true
	}
	return time.Time{}, false
}

// maxEarly is how far ahead of its time an instant is due at most.
const maxEarly = 2 * time.Minute

// Early returns how far ahead of t an instant may lie to be due: a quarter of the time from
// the last one to the next one, 2 minutes at most. That is more than two clocks of one network
// differ by, and too little for a start by hand, or a late one, to take what is yet to come.
func (s *Schedule) Early(t time.Time) time.Duration {
	before, ok := s.Prev(t)
	after, later := s.Next(t)
	if !ok || !later {
		return maxEarly
	}
	return min(after.Sub(before)/4, maxEarly)
}

// Due returns the instant for which something that starts at t is started: the next one if it
// is at most early ahead, otherwise the last instant that is not after t.
func (s *Schedule) Due(t time.Time, early time.Duration) (time.Time, bool) {
	if at, ok := s.Next(t); ok && at.Sub(t) <= early {
		return at, true
	}
	return s.Prev(t)
}

// Between returns the scheduled instants after from and before to, oldest first. If there
// are more than most, it returns the newest of them, and how many more there are, of the
// last twenty years.
func (s *Schedule) Between(from, to time.Time, most int) (list []time.Time, more int) {
	for at := range s.each(to.Add(-1), -1, missedYears) {
		if !at.After(from) {
			break
		}
		if len(list) == most {
			more++
		} else {
			list = append(list, at)
		}
	}
	slices.Reverse(list)
	return list, more
}

// After returns the first scheduled instants after t, of the next forty years at most.
func (s *Schedule) After(t time.Time, most int) (list []time.Time) {
	for at := range s.each(t, 1, searchYears) {
		if len(list) == most {
			break
		}
		list = append(list, at)
	}
	return list
}
