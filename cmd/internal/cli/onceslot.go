// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/schedule"
	"github.com/tenurelock/tenure/once"
)

// occurrence is what the command is to be run for.
type occurrence struct {
	slot     int64
	minutes  bool // slots are Unix minutes
	schedule *schedule.Schedule
	now      time.Time // what the schedule was asked for
	zone     string    // of the schedule, for people
}

// occurrence computes the slot from what the command line says.
func (o *onceCmd) occurrence() (occurrence, error) {
	var given []string
	for _, f := range []struct {
		name  string
		value *string
	}{{"--cron", o.Cron}, {"--at", o.At}, {"--slot", o.Slot}} {
		if f.value != nil {
			given = append(given, f.name)
		}
	}
	switch {
	case len(given) == 0:
		return occurrence{}, usage("no occurrence named: write --cron with the five fields of the crontab's line, or " +
			"--at TIME, or --slot N")
	case len(given) > 1:
		return occurrence{}, usage("%s exclude each other: one of them names the occurrence", strings.Join(given, " and "))
	case o.TZ != nil && o.Cron == nil:
		return occurrence{}, usage("--tz needs --cron: it is the time zone of the expression")
	case o.Now != nil && o.Cron == nil:
		return occurrence{}, usage("--now needs --cron: the slot is the last time of the schedule before it")
	case o.Early != nil && o.Cron == nil:
		return occurrence{}, usage("--early needs --cron: it is how far ahead of its time a slot may be run")
	}
	switch {
	case o.Slot != nil:
		slot, err := parseSlot("--slot", *o.Slot)
		return occurrence{slot: slot}, err
	case o.At != nil:
		at, err := parseInstant("--at", *o.At)
		return occurrence{slot: once.Minute(at), minutes: true}, err
	}
	zone, err := o.zone()
	if err != nil {
		return occurrence{}, err
	}
	s, err := schedule.Parse(*o.Cron, zone)
	if err != nil {
		return occurrence{}, usage("--cron: %w", err)
	}
	now := time.Now()
	if o.Now != nil {
		if now, err = parseInstant("--now", *o.Now); err != nil {
			return occurrence{}, err
		}
	}
	early := s.Early(now)
	if o.Early != nil {
		early = *o.Early
	}
	at, ok := s.Due(now, early)
	if !ok {
		return occurrence{}, usage("--cron %q has no time before %v", s, now)
	}
	return occurrence{slot: once.Minute(at), minutes: true, schedule: s, now: now, zone: schedule.ZoneName(zone)}, nil
}

// zone returns the time zone of --cron: that of --tz, or of CRON_TZ, which cron goes by where
// it has that, or of this host.
func (o *onceCmd) zone() (*time.Location, error) {
	name, from := os.Getenv("CRON_TZ"), "CRON_TZ="
	switch {
	case o.TZ != nil:
		name, from = *o.TZ, "--tz "
	case name == "":
		if err := schedule.SetLocal(); err != nil {
			return nil, usage("%w; or give --tz", err)
		}
		return time.Local, nil
	}
	zone, err := schedule.Zone(name)
	if err != nil {
		return nil, usage("%s%w", from, err)
	}
	return zone, nil
}

// identity is the schedule, as the ledger compares it.
func (o occurrence) identity() once.Schedule {
	return once.Schedule{
		Text: fmt.Sprintf("%s (%s)", o.schedule, o.zone),
		After: func(slot int64, count int) []int64 {
			return minutesOf(o.schedule.After(once.MinuteTime(max(slot, minSlot)), count))
		},
	}
}

// isNow reports whether the slot is due now, as much too late as it may be too early.
func (o occurrence) isNow() bool {
	return o.now.Sub(once.MinuteTime(o.slot)) <= max(time.Minute, o.schedule.Early(o.now))
}

// over returns the last slot that is over when the schedule is changed now.
func (o occurrence) over() int64 {
	if o.isNow() {
		return o.slot - 1
	}
	return max(o.slot, once.Minute(o.now))
}

func minutesOf(list []time.Time) []int64 {
	slots := make([]int64, len(list))
	for i, t := range list {
		slots[i] = once.Minute(t)
	}
	return slots
}

// reschedule writes into the ledger that the schedule was changed, and runs nothing.
func (o *onceCmd) reschedule(c *console, at occurrence) error {
	return o.ledger(c, o.storeFlags, o.Name, func(ctx context.Context, client *tenure.Client) error {
		changed, err := once.Reschedule(ctx, client, o.Name, at.identity(), at.over())
		switch {
		case err != nil:
			return err
		case !changed:
			c.say("%q: the ledger has no other schedule: nothing was changed", o.Name)
			return nil
		}
		o.sayChanged(c, at)
		return nil
	})
}

func (o *onceCmd) sayChanged(c *console, at occurrence) {
	next := ""
	if list := at.schedule.After(once.MinuteTime(at.over()), 1); len(list) > 0 {
		next = ": the first slot is " + slotText(once.Minute(list[0]), true)
	}
	c.warn("%q: the schedule is %s from now on%s", o.Name, at.identity().Text, next)
}

// off says how far from now the slot is, if that is not the minute that it is: "12h55m ago".
func (o occurrence) off() string {
	if o.schedule == nil || once.Minute(o.now) == o.slot {
		return ""
	}
	by := o.now.Sub(once.MinuteTime(o.slot))
	if by < 0 {
		return round(-by).String() + " ahead of its time"
	}
	return round(by).String() + " ago"
}

func parseSlot(flag, text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, usage("%s %.40q is no whole number, or too large: want a number that rises from one occurrence to the "+
			"next", flag, text)
	}
	return n, nil
}

// absolute is the end of a time that names its zone.
var absolute = regexp.MustCompile(`(Z|[+-]\d\d:\d\d)$`)

func parseInstant(flag, text string) (time.Time, error) {
	s, err := parseTime(text, time.Now())
	unknown := schedule.SetLocal()
	switch {
	case err == nil && unknown != nil && !absolute.MatchString(text):
		return time.Time{}, usage("%s %.40q is by the clock of this host, whose %w; or write 2006-01-02T15:04Z",
			flag, text, unknown)
	case err != nil:
		return time.Time{}, usage("%s %.40q is no time: write 2006-01-02T15:04Z, or 2006-01-02 15:04 by the clock of "+
			"this host", flag, text)
	case s.again != 0:
		return time.Time{}, usage("%s %.40q comes twice, because the clocks are set back: write the offset, as in "+
			"2006-01-02T15:04+02:00", flag, text)
	}
	return s.from, nil
}

// minSlot is a time that package time can compute with.
const minSlot = -1 << 40
