// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/guard"
	"github.com/tenurelock/tenure/cmd/internal/pattern"
	"github.com/tenurelock/tenure/cmd/internal/schedule"
	"github.com/tenurelock/tenure/once"
)

type onceCmd struct {
	job
	workFlags
	Cron         *string        `placeholder:"EXPR"`
	TZ           *string        `name:"tz" placeholder:"ZONE"`
	At           *string        `placeholder:"TIME"`
	Slot         *string        `placeholder:"N"`
	Now          *string        `placeholder:"TIME"`
	Early        *time.Duration `must:"not be negative"`
	Redo         bool
	AllowRepeats bool
	CatchUp      int `must:"not be negative"`
	MaxAhead     *int
	Changed      bool

	Show   bool    `xor:"ledger"`
	Reset  *string `placeholder:"SLOT" xor:"ledger"`
	Reason string
}

// clockTolerance is how far apart the clocks of two hosts may be without a word.
const clockTolerance = time.Minute

// mostMissed is how many missed slots are listed: the others are counted.
const mostMissed = 1000

// Run runs the command for one slot, or shows or resets the ledger.
func (o *onceCmd) Run(c *console, rest operands) error {
	if o.Show || o.Reset != nil {
		return o.administer(c, rest)
	}
	if o.Reason != "" {
		return usage("--reason needs --reset")
	}
	at, err := o.occurrence()
	switch {
	case err != nil:
		return err
	case o.Changed && at.schedule == nil:
		return usage("--changed needs --cron: the schedule that is stored from now on")
	case o.Changed && !rest.given:
		return o.reschedule(c, at)
	}
	options, err := o.onceOptions(at)
	if err != nil {
		return err
	}
	if err := checkLedgerName(o.Name); err != nil {
		return err
	}
	t, err := o.open(c, rest)
	if err != nil {
		return err
	}
	defer t.close()
	t.on(once.LockName(o.Name))
	w := t.newRuns()
	defer w.stop()
	if o.Changed {
		changed, err := o.change(w.ctx, c, t.client, at)
		if err != nil {
			return o.notRun(w, at, once.Result{}, err)
		}
		if changed && !at.isNow() {
			return o.elsewhere(c, "%s is not run: it was before the change", slotText(at.slot, at.minutes))
		}
	}
	if at.minutes {
		w.scheduled = func(slot int64) string { return once.MinuteTime(slot).Format(time.RFC3339) }
	}
	silence := func() {}
	if c.terminal { // elsewhere it would be a second line
		silence = beside(w.ctx, t.announce)
	}
	result, err := once.Once(w.ctx, t.client, o.Name, at.slot, &options, func(ctx context.Context, turn *once.Turn) error {
		silence()
		if off := at.off(); off != "" && turn.Slot() == at.slot && turn.Attempt() == 1 {
			say := c.say
			if !at.isNow() { // a user who asked only for errors does not expect it
				say = c.warn
			}
			say("%q: running for %s, %s", o.Name, slotText(at.slot, at.minutes), off)
		}
		return w.work(ctx, turn)
	})
	silence()
	if result.Run.Token == 0 {
		return o.notRun(w, at, result, err)
	}
	return o.ran(w, at, result, err)
}

func checkLedgerName(name string) error {
	return refused(tenure.Options{}, func(ctx context.Context, client *tenure.Client) error {
		_, err := once.Show(ctx, client, name)
		return err
	})
}

func (o *onceCmd) onceOptions(at occurrence) (once.Options, error) {
	options := once.Options{
		AllowRepeats: o.AllowRepeats,
		Redo:         o.Redo, CatchUp: o.CatchUp, History: true,
		Timeout: o.Timeout, Retries: o.Retry, RetryDelay: valueOf(o.RetryDelay),
	}
	if err := o.check(); err != nil {
		return options, err
	}
	switch {
	case o.CatchUp > 0 && at.schedule == nil:
		return options, usage("--catch-up needs --cron, which says what was missed")
	case o.CatchUp > mostMissed:
		return options, usage("--catch-up %d must be at most %d", o.CatchUp, mostMissed)
	}
	if at.schedule != nil {
		options.OutOfOrder = true
		if next, ok := at.schedule.Next(once.MinuteTime(at.slot)); ok {
			options.WaitAhead = next.Sub(once.MinuteTime(at.slot))
		}
		options.Between = func(last, slot int64) ([]int64, int) {
			list, more := at.schedule.Between(once.MinuteTime(max(last, minSlot)), once.MinuteTime(slot), mostMissed)
			return minutesOf(list), more
		}
		identity := at.identity()
		options.Schedule = &identity
	}
	if o.MaxAhead != nil {
		options.MaxAhead = int64(*o.MaxAhead)
		if options.MaxAhead == 0 {
			return options, usage("--max-ahead 0 would refuse every slot: write a number from 1, or -1 for no limit")
		}
	}
	return options, nil
}

// ran says what was out of the ordinary, and returns the status of the command.
func (o *onceCmd) ran(w *runs, at occurrence, result once.Result, err error) error {
	c := w.console
	if u := result.Unfinished; u != nil {
		c.warn("%q: the run of %s by %s has no end in the ledger: its host or its lease was lost",
			o.Name, slotText(u.Slot, at.minutes), holderText(u.Owner, u.Token))
	}
	if l := result.Later; l != nil {
		c.warn("%q: %s was run before %s, by %s: the clock of that host is ahead of this one's",
			o.Name, slotText(l.Slot, at.minutes), slotText(at.slot, at.minutes), holderText(l.Owner, l.Token))
	}
	if n := result.MissedCount; n > 0 {
		were := "were"
		if n == 1 {
			were = "was"
		}
		c.warn("%q: %s before this one %s not run: %s", o.Name, counted(n, "occurrence"), were, missedText(result))
	}
	if result.Closed != nil {
		c.warn("%q: the ledger has no room for more gaps: missed slots up to %s are given up",
			o.Name, slotText(*result.Closed, at.minutes))
	}
	status := 0
	for _, r := range append(result.Caught, result.Run) {
		one, ok := w.last[r.Slot]
		switch {
		case !ok && w.fault != nil:
			return w.unstarted()
		case !ok: // all had to end before the command could begin
			status = statusLost
			if w.came != 0 {
				status = signaled{w.came}.ExitCode()
			}
			return failed(status, fmt.Errorf("%q: %s was marked as begun, but not run: %s (--reset opens it again)",
				o.Name, slotText(r.Slot, at.minutes), r.Error))
		case one.status() != 0:
			status = one.status()
			c.say("%q: the run of %s failed: %s", o.Name, slotText(r.Slot, at.minutes), r.Error)
		}
	}
	if !result.Recorded && status != statusLost {
		if errors.Is(err, tenure.ErrLost) {
			c.warn("the lease of %q was lost after the command had ended: the ledger does not show how it ended", w.lock)
		} else {
			c.warn("%q: the end of the run may be missing from the ledger: the release was not confirmed", o.Name)
		}
	}
	return ended(status)
}

// elsewhere says why the command was not run here, which is no failure.
func (o *onceCmd) elsewhere(c *console, format string, args ...any) error {
	text := fmt.Sprintf("%q: %s", o.Name, fmt.Sprintf(format, args...))
	c.say("%s", text)
	c.emit(record{Event: eventNotRun, Lock: once.LockName(o.Name), Cause: text})
	return ended(0)
}

func (o *onceCmd) notRun(w *runs, at occurrence, result once.Result, err error) error {
	if w.came != 0 && len(result.Caught) == 0 {
		return signaled{w.came}
	}
	var done *once.DoneError
	var passed *once.PassedError
	var running *once.RunningError
	var ahead *once.SlotAheadError
	var schedules *once.ScheduleError
	var notRun *once.NotRunError
	slot := slotText(at.slot, at.minutes)
	switch {
	case errors.As(err, &done):
		return o.begunBefore(w, slot, done.Run)
	case errors.As(err, &running):
		who := w.outer.holder(w.lock, running.Held.Owner, running.Held.Token)
		switch {
		case running.Run.Left != "":
			return tempFail("%q: %s is not run: %s has ended, but %s waits for processes that it left behind: %s (--timeout limits that)",
				o.Name, slot, slotText(running.Run.Slot, at.minutes), who, running.Run.Left)
		case running.Same():
			return o.elsewhere(w.console, "%s is being run by %s", slot, who)
		case running.Run.Token != 0:
			return o.elsewhere(w.console, "%s is not run: %s is still being run by %s",
				slot, slotText(running.Run.Slot, at.minutes), who)
		}
		return o.elsewhere(w.console, "%s is not run here: %s has the lock, and has shown a sign of life", slot, who)
	case errors.As(err, &passed) && passed.Run.State == once.StateChanged:
		return o.elsewhere(w.console, "%s is not run: it was before the change of the schedule%s", slot, byText(passed.Run))
	case errors.As(err, &passed):
		return tempFail("%q: %s is not run: it counts as begun, since %s was%s, and is not among the last %d runs: "+
			"%s (--reset opens it again)",
			o.Name, slot, slotText(passed.Last, at.minutes), byText(passed.Run), once.Kept,
			at.suspect("is the clock of this host late?", "numbers must rise"))
	case errors.As(err, &ahead):
		return tempFail("%q: %s is not run: it is more than %d ahead of %s, the last one: %s (--max-ahead allows more)",
			o.Name, slot, ahead.MaxAhead, slotText(ahead.Last, at.minutes),
			at.suspect("is the clock of this host right?", "is the number right?"))
	case errors.As(err, &schedules):
		return tempFail("%q: %s is not run: the schedule here is %s, and that of %s%s was %s, whose next times "+
			"differ: give both the same --tz, or, if the schedule was changed, run this once: tenure once --cron '%s' --changed %s",
			o.Name, slot, schedules.Text, slotText(schedules.Run.Slot, true), byText(schedules.Run),
			schedules.Ledger, *o.Cron, o.Name)
	case errors.As(err, &notRun):
		return failed(statusLost, fmt.Errorf("%q: %s was marked as begun, but not run: %s (--redo runs it)",
			o.Name, slot, flags.OneLine(notRun.Err)))
	case errors.Is(err, tenure.ErrLost) || errors.Is(err, tenure.ErrSteppedDown):
		return failed(statusLost, fmt.Errorf("%q: %s was not run: the lease was lost before: %s",
			o.Name, slot, flags.OneLine(err)))
	case len(result.Caught) > 0 && w.ctx.Err() != nil: // a signal, while missed slots were caught up
		status := w.last[result.Caught[len(result.Caught)-1].Slot].status()
		if w.came != 0 {
			status = signaled{w.came}.ExitCode()
		}
		return failed(cmp.Or(status, statusHeld), fmt.Errorf("%q: %s is not run: a signal came before it was begun: %s",
			o.Name, slot, flags.OneLine(err)))
	case errors.Is(err, errors.ErrUnsupported): // as for --slots: another flag or store is needed
		return usage("%w", err)
	}
	return storeFailed(err)
}

func (o *onceCmd) begunBefore(w *runs, slot string, r once.Run) error {
	c, who := w.console, holderText(r.Owner, r.Token)
	if r.Token == 0 {
		return o.elsewhere(c, "%s was begun, longer ago than the last %d runs", slot, once.Kept)
	}
	switch r.State {
	case once.StateDone:
		if ahead := time.Until(r.Begun); ahead > clockTolerance {
			c.warn("%q: %s was run by %s at %s by the clock of its host, which is %v ahead of this one: "+
				"one of the two clocks is wrong", o.Name, slot, who, clockText(r.Begun), round(ahead))
		}
		return o.elsewhere(c, "%s is done: by %s, in %v", slot, who, round(r.Took))
	case once.StateFailed:
		return o.elsewhere(c, "%s was run by %s, and failed: %s (--reset opens it again)", slot, who, r.Error)
	case once.StateRunning:
		return o.elsewhere(c, "%s is being run by %s", slot, w.outer.holder(w.lock, r.Owner, r.Token))
	}
	return tempFail("%q: %s was begun by %s at %s, and it is not known how it ended: --redo runs it again",
		o.Name, slot, who, clockText(r.Begun))
}

func (o *onceCmd) administer(c *console, rest operands) error {
	switch {
	case rest.given:
		return usage(`--show and --reset run nothing: leave out "--" and what follows`)
	case o.Changed:
		return usage("--show and --reset exclude --changed")
	case o.Reset != nil && o.Reason == "":
		return usage("--reset needs --reason: it is written into the history")
	}
	if o.Show {
		return o.ledger(c, o.storeFlags, o.Name, func(ctx context.Context, client *tenure.Client) error {
			st, err := once.Show(ctx, client, o.Name)
			if err != nil {
				return err
			}
			c.showRuns(st, st.Runs, fmt.Sprintf("%q has no runs", o.Name))
			return nil
		})
	}
	slot := int64(math.MinInt64)
	if number, err := strconv.ParseInt(*o.Reset, 10, 64); err == nil {
		slot = number
	} else if at, err := parseInstant("--reset", *o.Reset); err == nil {
		slot = once.Minute(at)
	} else if *o.Reset != "all" {
		return usage("--reset %.40q is not a slot: write all, a time such as 2006-01-02T15:04Z, or a number", *o.Reset)
	}
	return o.ledger(c, o.storeFlags, o.Name, func(ctx context.Context, client *tenure.Client) error {
		st, unread := once.Show(ctx, client, o.Name)
		err := once.Reset(ctx, client, o.Name, slot, o.Reason)
		if err == nil && unread == nil { // a ledger that cannot be read is replaced
			c.say("%q: %s", o.Name, resetText(*o.Reset, slot, st.Runs))
		}
		return err
	})
}

// resetText says what a reset of a slot has done.
func resetText(given string, slot int64, before []once.Run) string {
	minutes := strconv.FormatInt(slot, 10) != given
	text := slotText(slot, minutes)
	begun := func(r once.Run) bool {
		return r.Slot == slot && r.State != once.StateReset && r.State != once.StateChanged
	}
	switch {
	case slot == math.MinInt64:
		return "all slots are open"
	case !slices.ContainsFunc(before, begun):
		return fmt.Sprintf("%s is open, but none of the last %d runs was of that slot: is it the right one? (--show has them)",
			text, once.Kept)
	case minutes:
		return fmt.Sprintf("%s is open again: run it with --at '%s'", text, text)
	}
	return fmt.Sprintf("%s is open again: run it with --slot %s", text, text)
}

// showRuns writes the runs of a ledger, or all of it as JSON.
func (c *console) showRuns(status any, runs []once.Run, none string) {
	switch {
	case c.json:
		c.object(status)
		return
	case len(runs) == 0:
		c.say("%s", none)
		return
	}
	cells := [][]string{{"SLOT", "STATE", "STATUS", "BEGUN", "TOOK", "OWNER", "TOKEN", "TRIES", "MISSED", "ERROR"}}
	for _, r := range runs {
		status, took, tries := "-", "-", "-"
		if r.State == once.StateDone || r.State == once.StateFailed {
			took, tries = round(r.Took).String(), strconv.Itoa(r.Attempts)
			if r.State == once.StateDone || r.Exit != 0 {
				status = strconv.Itoa(r.Exit)
			}
		}
		text := r.Error
		if r.Left != "" {
			text = strings.TrimPrefix(text+"; left behind: "+r.Left, "; ")
		}
		_, minutes := r.Scheduled()
		cells = append(cells, dashed([]string{
			slotText(r.Slot, minutes), string(r.State), status, clockText(r.Begun), took,
			r.Owner, formatToken(r.Token), tries, strconv.Itoa(r.Missed), text,
		}))
	}
	c.table(cells)
}

func slotText(slot int64, minutes bool) string {
	switch {
	case slot == math.MinInt64:
		return "all"
	case !minutes || slot < minSlot || slot > -minSlot:
		return strconv.FormatInt(slot, 10)
	}
	return once.MinuteTime(slot).Local().Format("2006-01-02 15:04")
}

func missedText(result once.Result) string {
	var all []string
	for _, slot := range result.Missed {
		all = append(all, slotText(slot, true))
	}
	if len(all) < result.MissedCount {
		return all[len(all)-1] + " and before"
	}
	return joinSome(all)
}

func byText(r once.Run) string {
	if r.Token == 0 {
		return ""
	}
	return ", by " + holderText(r.Owner, r.Token)
}

// occurrence is the slot that the command is run for.
type occurrence struct {
	slot     int64
	minutes  bool // slots are Unix minutes
	schedule *schedule.Schedule
	now      time.Time // what the schedule was asked for
	zone     string    // of the schedule, for people
}

// suspect is what may be wrong if the slot does not fit: a clock, or the number that was given.
func (o occurrence) suspect(clock, number string) string {
	if o.minutes {
		return clock
	}
	return number
}

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
		return occurrence{}, usage("no slot named: write --cron with the five fields of the crontab line, or " +
			"--at TIME, or --slot N")
	case len(given) > 1:
		return occurrence{}, usage("%s exclude each other: only one of them can name the slot", strings.Join(given, " and "))
	case o.TZ != nil && o.Cron == nil:
		return occurrence{}, usage("--tz needs --cron: it is the time zone of the expression")
	case o.Now != nil && o.Cron == nil:
		return occurrence{}, usage("--now needs --cron: the slot is the last time of the schedule before it")
	case o.Early != nil && o.Cron == nil:
		return occurrence{}, usage("--early needs --cron: it is how far ahead of its time a slot may be run")
	}
	switch {
	case o.Slot != nil:
		slot, err := strconv.ParseInt(*o.Slot, 10, 64)
		if err != nil {
			err = usage("--slot %.40q is not a whole number, or is too large: want a number that rises from one slot to "+
				"the next", *o.Slot)
		}
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

// zone returns the time zone of --cron: --tz, or CRON_TZ, which cron itself uses if it
// supports that, or the zone of this host.
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

func (o *onceCmd) reschedule(c *console, at occurrence) error {
	return o.ledger(c, o.storeFlags, o.Name, func(ctx context.Context, client *tenure.Client) error {
		changed, err := o.change(ctx, c, client, at)
		if err == nil && !changed {
			c.say("%q: the ledger already has this schedule: nothing was changed", o.Name)
		}
		return err
	})
}

// change writes the schedule into the ledger, and says so if it had another one.
func (o *onceCmd) change(ctx context.Context, c *console, client *tenure.Client, at occurrence) (bool, error) {
	changed, err := once.Reschedule(ctx, client, o.Name, at.identity(), at.over())
	next := ""
	if list := at.schedule.After(once.MinuteTime(at.over()), 1); len(list) > 0 {
		next = ": the first slot is " + slotText(once.Minute(list[0]), true)
	}
	if changed {
		c.warn("%q: from now on the schedule is %s%s", o.Name, at.identity().Text, next)
	}
	return changed, err
}

// off says how far from now the slot is, if that is not the minute that it is: "12h55m ago".
func (o occurrence) off() string {
	if o.schedule == nil || once.Minute(o.now) == o.slot {
		return ""
	}
	by, how := o.now.Sub(once.MinuteTime(o.slot)), " ago"
	if by < 0 {
		by, how = -by, " ahead of its time"
	}
	return round(by).String() + how
}

// absolute is the end of a time that names its zone.
var absolute = pattern.Lazy(`(Z|[+-]\d\d:\d\d)$`)

func parseInstant(flag, text string) (time.Time, error) {
	s, err := parseTime(text, time.Now())
	unknown := schedule.SetLocal()
	switch {
	case err == nil && unknown != nil && !absolute().MatchString(text):
		return time.Time{}, usage("%s %.40q is by the clock of this host, whose %w; or write 2006-01-02T15:04Z",
			flag, text, unknown)
	case err != nil:
		return time.Time{}, usage("%s %.40q is not a time: write 2006-01-02T15:04Z, or 2006-01-02 15:04 by the clock of "+
			"this host", flag, text)
	case s.again != 0:
		return time.Time{}, usage("%s %.40q occurs twice, because the clocks are set back: write the offset, as in "+
			"2006-01-02T15:04+02:00", flag, text)
	}
	return s.from, nil
}

// minSlot is a time that package time can compute with.
const minSlot = -1 << 40

type everyCmd struct {
	Words []string `arg:""`
	storeFlags
	leaseFlags
	outputFlags
	workFlags
	CatchUp      int `must:"not be negative"`
	AllowRepeats bool

	Show   bool `xor:"ledger"`
	Reset  bool `xor:"ledger"`
	Reason string
}

// Run runs the command each period until a signal ends it, or shows or resets the
// ledger.
func (e *everyCmd) Run(c *console, rest operands) error {
	if e.Show || e.Reset {
		return e.administer(c, rest)
	}
	switch {
	case e.Reason != "":
		return usage("--reason needs --reset")
	case len(e.Words) != 2:
		return usage(`want a period and a name, as in: tenure every 1h vacuum -- ./vacuum`)
	}
	name := e.Words[1]
	period, err := time.ParseDuration(e.Words[0])
	if err != nil || period <= 0 {
		return usage("%.40q is not a period: write a number with its unit, such as 1h or 90s", e.Words[0])
	}
	if err := e.check(); err != nil {
		return err
	}
	options, err := e.leaseFlags.options(e.storeFlags)
	if err != nil {
		return err
	}
	every := once.EveryOptions{CatchUp: e.CatchUp, AllowRepeats: e.AllowRepeats, Timeout: e.Timeout, Retries: e.Retry, RetryDelay: valueOf(e.RetryDelay)}
	if err := e.refused(options, name, period, every); err != nil {
		return err
	}
	j := job{Name: name, storeFlags: e.storeFlags, leaseFlags: e.leaseFlags, outputFlags: e.outputFlags}
	t, err := j.open(c, rest)
	if err != nil {
		return err
	}
	defer t.close()
	t.on(once.EveryLockName(name))
	t.endless.Store(true)
	w := t.newRuns()
	defer w.stop()
	defer beside(w.ctx, func(ctx context.Context) { t.announceEndless(ctx) })()
	status := 0
	every.OnRun = func(r once.Run, err error) {
		switch o, ok := w.last[r.Slot]; {
		case ok:
			status = o.status()
			if status != 0 {
				c.say("%q: run %d failed: %s", name, r.Slot, flags.OneLine(err))
			}
		case w.fault != nil:
			status = flags.StatusOf(w.unstarted())
			c.warn("%q: run %d did not begin: %s", name, r.Slot, flags.OneLine(w.fault))
		case err != nil:
			c.warn("%q: run %d did not begin: %s", name, r.Slot, flags.OneLine(err))
		}
		clear(w.last)
	}
	err = once.Every(w.ctx, t.client, name, period, &every, w.work)
	switch {
	case errors.Is(err, errors.ErrUnsupported) && w.ctx.Err() == nil:
		return usage("%w", err)
	case err != nil && w.ctx.Err() == nil:
		return storeFailed(err)
	case w.came != 0: // no command was running
		return signaled{w.came}
	}
	return ended(status)
}

func (e *everyCmd) refused(o tenure.Options, name string, period time.Duration, every once.EveryOptions) error {
	return refused(o, func(ctx context.Context, client *tenure.Client) error {
		err := once.Every(ctx, client, name, period, &every, func(context.Context, *once.Turn) error { return nil })
		if errors.Is(err, tenure.ErrClosed) {
			return nil
		}
		return err
	})
}

func (e *everyCmd) administer(c *console, rest operands) error {
	switch {
	case rest.given:
		return usage(`--show and --reset run nothing: leave out "--" and what follows`)
	case len(e.Words) != 1:
		return usage("--show and --reset take only a name, as in: tenure every --show vacuum")
	case e.Reset && e.Reason == "":
		return usage("--reset needs --reason: it is written into the history")
	}
	name := e.Words[0]
	if e.Show {
		return e.ledger(c, e.storeFlags, name, func(ctx context.Context, client *tenure.Client) error {
			st, err := once.ShowEvery(ctx, client, name)
			if err != nil {
				return err
			}
			none := fmt.Sprintf("%q has no runs", name)
			switch {
			case !st.Kept:
			case st.Number > 0:
				c.say("%q: %s begun; the last one at least %v ago, of a period of %v",
					name, counted(int(st.Number), "run"), round(st.Age), st.Period)
			case st.Period > 0:
				none = fmt.Sprintf("%q: 0 runs begun; at least %v of a period of %v have passed", name, round(st.Age), st.Period)
			default:
				none = fmt.Sprintf("%q: 0 runs begun, and no process has started counting", name)
			}
			c.showRuns(st, st.Runs, none)
			return nil
		})
	}
	return e.ledger(c, e.storeFlags, name, func(ctx context.Context, client *tenure.Client) error {
		return once.ResetEvery(ctx, client, name, e.Reason)
	})
}

// workFlags are what once and every have in common about the command.
type workFlags struct {
	Timeout    time.Duration  `must:"not be negative"`
	Retry      int            `must:"not be negative"`
	RetryDelay *time.Duration `must:"be positive"`
}

func (f *workFlags) check() error {
	if f.RetryDelay != nil && f.Retry == 0 {
		return usage("--retry-delay needs --retry: how often to run a failed command again")
	}
	return nil
}

// runs runs the command for package once, each time that it is its turn.
type runs struct {
	*command
	// scheduled is the time of a slot, as the command learns of it; nil if slots
	// are mere numbers.
	scheduled func(slot int64) string

	ctx    context.Context // it ends at the first signal that no command gets
	cancel context.CancelCauseFunc
	unhand func()
	came   syscall.Signal // that signal

	last  map[int64]outcome // of each slot
	begun bool              // a command has been started
	fault error             // why one could not be
}

// newRuns takes the signals, until stop is called.
func (t *command) newRuns() *runs {
	w := &runs{command: t, last: map[int64]outcome{}}
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	w.catch()
	return w
}

// catch has signals end the context, while no command runs.
func (w *runs) catch() {
	w.unhand = w.signals.toEnd(func(sig syscall.Signal) {
		if w.came == 0 {
			w.came = sig
		}
		w.cancel(signaled{sig})
	})
}

func (w *runs) stop() {
	w.unhand()
	w.cancel(nil)
}

// work is a [once.Work]. It is called by one goroutine after the other.
func (w *runs) work(ctx context.Context, turn *once.Turn) error {
	w.unhand() // from here on they are the command's
	defer w.catch()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	lease, ok := tenure.FromContext(ctx)
	if !ok {
		return errors.New("there is no lease in the context")
	}
	w.extra = []string{
		"TENURE_SLOT=" + strconv.FormatInt(turn.Slot(), 10),
		"TENURE_ATTEMPT=" + strconv.Itoa(turn.Attempt()),
	}
	if w.scheduled != nil {
		w.extra = append(w.extra, "TENURE_SCHEDULED="+w.scheduled(turn.Slot()))
	}
	w.onLeft = func(exit guard.Exit, left string) {
		var err error
		if exit.Status() != 0 {
			err = failed(exit.Status(), errors.New(exit.String()))
		}
		go func() { _ = turn.Ended(ctx, err, left) }() // if it fails the ledger has it later
	}
	o, err := w.insist(ctx, lease)
	if sig := (signaled{}); errors.As(err, &sig) {
		if w.came == 0 {
			w.came = sig.sig
		}
		w.cancel(sig)
	}
	if err != nil {
		w.fault = err
		return failed(flags.StatusOf(cannotRun(err)), err)
	}
	w.fault, w.begun = nil, true
	w.last[turn.Slot()] = o
	w.reportTrouble(o)
	if o.asked {
		w.cancel(nil) // the end was asked for: no other attempt, no other slot
	}
	switch {
	case o.lost != nil:
		return failed(o.status(), o.lost)
	case o.timedOut:
		return failed(o.status(), errors.New("the command was stopped"))
	case o.status() != 0:
		return failed(o.status(), errors.New(o.exit.String()))
	}
	return nil
}

// unstarted is the failure of a command that could not be started.
func (w *runs) unstarted() error {
	if errors.Is(w.fault, guard.ErrTooLate) || errors.Is(w.fault, guard.ErrOverdue) {
		return failed(statusLost, fmt.Errorf("the lease of %q was lost: %w", w.lock, w.fault))
	}
	return cannotRun(w.fault)
}

// sayLedgers points from a name that was never held to the locks of the ledgers of
// once and every under that name, which were, and reports whether there are any.
func (c *console) sayLedgers(ctx context.Context, client *tenure.Client, name string) (found bool) {
	if c.quiet || c.json {
		return false
	}
	for _, ledger := range []struct{ lock, show string }{
		{once.LockName(name), "once " + name + " --show"}, {once.EveryLockName(name), "every --show " + name},
	} {
		if st, err := client.Status(ctx, ledger.lock); err == nil && st.Token > 0 {
			c.say("%q was never held, and %q was: tenure %s has its runs", name, ledger.lock, ledger.show)
			found = true
		}
	}
	return found
}

// ledger opens the store for reading the ledger of a name, or changing it.
func (f *leaseFlags) ledger(
	c *console, on storeFlags, name string, use func(context.Context, *tenure.Client) error,
) error {
	if err := checkLedgerName(name); err != nil {
		return err
	}
	options, err := f.options(on)
	if err != nil {
		return err
	}
	options.Owner = cmp.Or(options.Owner, operatorName())
	v, err := on.client(c, &options, nil)
	if err != nil {
		return err
	}
	defer v.close()
	ctx, cancel := context.WithTimeout(v.ctx, lookTimeout)
	defer cancel()
	if err := use(ctx, v.client); err != nil {
		if running := (*once.RunningError)(nil); errors.As(err, &running) {
			return failed(statusHeld, err)
		}
		return readFailed(ctx, err)
	}
	return nil
}
