// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/once"
)

// onceCmd is tenure once.
type onceCmd struct {
	job
	workFlags
	Cron     *string        `placeholder:"EXPR"`
	TZ       *string        `name:"tz" placeholder:"ZONE"`
	At       *string        `placeholder:"TIME"`
	Slot     *string        `placeholder:"N"`
	Now      *string        `placeholder:"TIME"`
	Early    *time.Duration `must:"not be negative"`
	Redo     bool
	CatchUp  int `must:"not be negative"`
	MaxAhead *int
	Changed  bool

	Show   bool
	Reset  *string `placeholder:"SLOT"`
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
		return usage("--changed needs --cron: it says that the schedule is another one now")
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
	t.lock = once.LockName(o.Name)
	w := t.newRuns()
	defer w.stop()
	if o.Changed {
		changed, err := once.Reschedule(w.ctx, t.client, o.Name, at.identity(), at.over())
		switch {
		case err != nil:
			return o.notRun(w, at, once.Result{}, err)
		case changed:
			o.sayChanged(c, at)
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
			if !at.isNow() { // nobody who asked for errors alone expects it
				say = c.warn
			}
			say("%q: this is the run of %s, %s", o.Name, slotText(at.slot, at.minutes), off)
		}
		return w.work(ctx, turn)
	})
	silence()
	if result.Run.Token == 0 {
		return o.notRun(w, at, result, err)
	}
	return o.ran(w, at, result, err)
}

// checkLedgerName checks the name by the rules of package once.
func checkLedgerName(name string) error {
	return refused(tenure.Options{}, func(ctx context.Context, client *tenure.Client) error {
		_, err := once.Show(ctx, client, name)
		return err
	})
}

func (o *onceCmd) onceOptions(at occurrence) (once.Options, error) {
	options := once.Options{
		Redo: o.Redo, CatchUp: o.CatchUp, History: true,
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
			return options, usage("--max-ahead 0 would refuse every slot: want a number from 1, or -1 for any slot")
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
		c.warn("%q: %s before this one %s not run: %s", o.Name, counted(n, "occurrence"), wasOrWere(n), o.missedText(result))
	}
	if result.Closed != nil {
		c.warn("%q: the ledger has no room for more gaps: what was not run up to %s is given up",
			o.Name, slotText(*result.Closed, at.minutes))
	}
	status := 0
	for _, r := range append(result.Caught, result.Run) {
		one, ok := w.last[r.Slot]
		switch {
		case !ok && w.fault != nil:
			return w.unstarted()
		case ok && one.status() != 0:
			status = one.status()
			c.say("%q: the run of %s failed: %s", o.Name, slotText(r.Slot, at.minutes), r.Error)
		}
	}
	if !result.Recorded && status != statusLost {
		if errors.Is(err, tenure.ErrLost) {
			c.warn("the lease of %q was lost when the command had ended: how it ended is not in the ledger", w.lock)
		} else {
			c.warn("%q: whether the end of the run is in the ledger is not known: the release was not confirmed", o.Name)
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

// notRun says why the command was not run here, and returns what that means.
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
			return tempFail("%q: %s is not run: %s has ended, and %s waits for what it left behind: %s (--timeout bounds that)",
				o.Name, slot, slotText(running.Run.Slot, at.minutes), who, running.Run.Left)
		case running.Same():
			return o.elsewhere(w.console, "%s is being run by %s", slot, who)
		case running.Run.Token != 0:
			return o.elsewhere(w.console, "%s is not run: %s is still being run by %s",
				slot, slotText(running.Run.Slot, at.minutes), who)
		}
		return o.elsewhere(w.console, "%s is not run here: %s has the lock, and has shown that it lives", slot, who)
	case errors.As(err, &passed) && passed.Run.State == once.StateChanged:
		return o.elsewhere(w.console, "%s is not run: it was before the change of the schedule%s", slot, byText(passed.Run))
	case errors.As(err, &passed):
		return tempFail("%q: %s is not run: it counts as begun, since %s was%s, and is not among the last %d runs: "+
			"is the clock of this host late? (--reset opens it again)",
			o.Name, slot, slotText(passed.Last, at.minutes), byText(passed.Run), once.Kept)
	case errors.As(err, &ahead):
		return tempFail("%q: %s is not run: it is more than %d ahead of %s, the last one: "+
			"is the clock of this host right? (--max-ahead allows more)",
			o.Name, slot, ahead.MaxAhead, slotText(ahead.Last, at.minutes))
	case errors.As(err, &schedules):
		return tempFail("%q: %s is not run: the schedule here is %s, and that of %s%s was %s, whose next times are "+
			"others: give both the same --tz, or, if the schedule was changed, write once: tenure once --cron '%s' --changed %s",
			o.Name, slot, schedules.Text, slotText(schedules.Run.Slot, true), byText(schedules.Run),
			schedules.Ledger, *o.Cron, o.Name)
	case errors.As(err, &notRun):
		return failed(statusLost, fmt.Errorf("%q: %s was marked as begun, and not run: %s (--redo runs it)",
			o.Name, slot, flags.OneLine(notRun.Err)))
	case errors.Is(err, tenure.ErrLost) || errors.Is(err, tenure.ErrSteppedDown):
		return failed(statusLost, fmt.Errorf("%q: %s was not run: the lease was lost before: %s",
			o.Name, slot, flags.OneLine(err)))
	}
	return storeFailed(err)
}

// begunBefore says what became of a slot that was begun before.
func (o *onceCmd) begunBefore(w *runs, slot string, r once.Run) error {
	c, who := w.console, holderText(r.Owner, r.Token)
	if r.Token == 0 {
		return o.elsewhere(c, "%s was begun, longer ago than the last %d runs", slot, once.Kept)
	}
	switch r.State {
	case once.StateDone:
		if ahead := time.Until(r.Begun); ahead > clockTolerance {
			c.warn("%q: %s was run by %s at %s by the clock of its host, which is %v ahead of this one: "+
				"one of the two is wrong", o.Name, slot, who, clockText(r.Begun), round(ahead))
		}
		return o.elsewhere(c, "%s is done: by %s, in %v", slot, who, round(r.Took))
	case once.StateFailed:
		return o.elsewhere(c, "%s was run by %s, and failed: %s (--reset opens it again)", slot, who, r.Error)
	case once.StateRunning:
		return o.elsewhere(c, "%s is being run by %s", slot, w.outer.holder(w.lock, r.Owner, r.Token))
	}
	return tempFail("%q: %s was begun by %s at %s, and nobody knows how it ended: --redo runs it again",
		o.Name, slot, who, clockText(r.Begun))
}

// administer shows the ledger, or resets it.
func (o *onceCmd) administer(c *console, rest operands) error {
	switch {
	case rest.given:
		return usage(`--show and --reset run nothing: leave out "--" and what follows`)
	case o.Show && o.Reset != nil:
		return usage("--show and --reset exclude each other")
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
	if *o.Reset != "all" {
		var err error
		if slot, err = strconv.ParseInt(*o.Reset, 10, 64); err != nil {
			at, err := parseInstant("--reset", *o.Reset)
			if err != nil {
				return usage("--reset %.40q is no slot: write all, a time such as 2006-01-02T15:04Z, or a number", *o.Reset)
			}
			slot = once.Minute(at)
		}
	}
	return o.ledger(c, o.storeFlags, o.Name, func(ctx context.Context, client *tenure.Client) error {
		return once.Reset(ctx, client, o.Name, slot, o.Reason)
	})
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

// slotText shows a slot to people.
func slotText(slot int64, minutes bool) string {
	switch {
	case slot == math.MinInt64:
		return "all"
	case !minutes || slot < minSlot || slot > -minSlot:
		return strconv.FormatInt(slot, 10)
	}
	return once.MinuteTime(slot).Local().Format("2006-01-02 15:04")
}

func slotsText(slots []int64, minutes bool) string {
	var all []string
	for _, slot := range slots {
		all = append(all, slotText(slot, minutes))
	}
	return joinSome(all)
}

// missedText lists what was missed, the last of it if there is much.
func (o *onceCmd) missedText(result once.Result) string {
	if n := len(result.Missed); n < result.MissedCount {
		return slotText(result.Missed[n-1], true) + " and before"
	}
	return slotsText(result.Missed, true)
}

func byText(r once.Run) string {
	if r.Token == 0 {
		return ""
	}
	return ", by " + holderText(r.Owner, r.Token)
}

func wasOrWere(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}
