// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/guard"
	"github.com/tenurelock/tenure/once"
)

type everyCmd struct {
	Words []string `arg:""`
	storeFlags
	leaseFlags
	outputFlags
	workFlags
	CatchUp int `must:"not be negative"`

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
		return failed(o.status(), errors.New("the command had to stop"))
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
		return lookFailed(ctx, err)
	}
	return nil
}
