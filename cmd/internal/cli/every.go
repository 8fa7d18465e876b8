// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/once"
)

// everyCmd is tenure every.
type everyCmd struct {
	Words []string `arg:""`
	storeFlags
	leaseFlags
	outputFlags
	workFlags
	CatchUp int `must:"not be negative"`

	Show   bool
	Reset  bool
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
		return usage("%.40q is no period: write a number with its unit, such as 1h or 90s", e.Words[0])
	}
	if err := e.check(); err != nil {
		return err
	}
	options, err := e.leaseFlags.options(e.storeFlags)
	if err != nil {
		return err
	}
	every := once.EveryOptions{CatchUp: e.CatchUp, Timeout: e.Timeout, Retries: e.Retry, RetryDelay: valueOf(e.RetryDelay)}
	if err := e.refused(options, name, period, every); err != nil {
		return err
	}
	j := job{Name: name, storeFlags: e.storeFlags, leaseFlags: e.leaseFlags, outputFlags: e.outputFlags}
	t, err := j.open(c, rest)
	if err != nil {
		return err
	}
	defer t.close()
	t.lock = once.EveryLockName(name)
	t.endless.Store(true)
	w := t.newRuns()
	defer w.stop()
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
	case err != nil && w.ctx.Err() == nil:
		return storeFailed(err)
	case w.came != 0: // no command was running
		return signaled{w.came}
	}
	return ended(status)
}

// refused returns an error if package once would refuse what the command line says.
func (e *everyCmd) refused(o tenure.Options, name string, period time.Duration, every once.EveryOptions) error {
	return refused(o, func(ctx context.Context, client *tenure.Client) error {
		err := once.Every(ctx, client, name, period, &every, func(context.Context, *once.Turn) error { return nil })
		if errors.Is(err, tenure.ErrClosed) {
			return nil
		}
		return err
	})
}

// administer shows the ledger, or resets it.
func (e *everyCmd) administer(c *console, rest operands) error {
	switch {
	case rest.given:
		return usage(`--show and --reset run nothing: leave out "--" and what follows`)
	case e.Show && e.Reset:
		return usage("--show and --reset exclude each other")
	case len(e.Words) != 1:
		return usage("--show and --reset want a name alone, as in: tenure every --show vacuum")
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
				none = fmt.Sprintf("%q: 0 runs begun, and nobody counts yet", name)
			}
			c.showRuns(st, st.Runs, none)
			return nil
		})
	}
	return e.ledger(c, e.storeFlags, name, func(ctx context.Context, client *tenure.Client) error {
		return once.ResetEvery(ctx, client, name, e.Reason)
	})
}
