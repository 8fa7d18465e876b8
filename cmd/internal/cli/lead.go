// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/guard"
)

// leadCmd is tenure lead.
type leadCmd struct {
	job
	progressFlags
	hookFlags
	Once          bool
	Priority      int
	PriorityPause *time.Duration
	CoolDown      *time.Duration
	Pause         time.Duration `default:"1s"`
}

// maxPause bounds the pause after a command that fails again and again. A
// command that ran longer than that begins a new count.
const maxPause = time.Minute

// Run campaigns for the lock until a signal ends it, and runs the command at
// every election won.
func (l *leadCmd) Run(c *console, rest operands) error {
	if l.Pause < 0 {
		return usage("--pause %v must not be negative", l.Pause)
	}
	p := patience{store: -1, priority: l.Priority}
	if l.PriorityPause != nil {
		if p.priorityPause = *l.PriorityPause; p.priorityPause <= 0 {
			return usage("--priority-pause %v must be positive", *l.PriorityPause)
		}
	}
	if err := l.coolDown(&p); err != nil {
		return err
	}
	if err := l.progressFlags.check(&l.job); err != nil {
		return err
	}
	if err := l.hookFlags.check(&rest); err != nil {
		return err
	}
	t, err := l.open(c, rest)
	if err != nil {
		return err
	}
	defer t.close()
	t.proves = true
	l.tell(t)
	t.warnOfName()
	t.manager.start()
	ctx := context.Background()
	failures, started := 0, false
	for {
		lease, err := t.acquire(ctx, p)
		if err != nil {
			return err
		}
		t.console.say("elected for %q under token %d", t.lock, lease.Token())
		o, err := l.lead(t, lease)
		switch {
		case errors.Is(err, guard.ErrTooLate), errors.Is(err, guard.ErrOverdue) && !l.Once:
			_ = t.release(lease, nil) // stopped until the lease was over; nothing is left of what had begun
			l.lost(t, lease)
			if t.meanwhile != nil {
				return *t.meanwhile
			}
			if err := t.idle(ctx, latePause); err != nil {
				return err
			}
			continue
		case err != nil:
			_ = t.release(lease, unstarted(err))
			l.lost(t, lease)
			if !started && !mayPass(err) || errors.Is(err, guard.ErrOverdue) { // it may have begun, once
				return cannotRun(err)
			}
			if t.meanwhile != nil {
				return *t.meanwhile
			}
			failures++
			if err := t.restUnstarted(ctx, err, l.pause(failures), failures); err != nil {
				return err
			}
			continue
		}
		started = true
		t.conclude(lease, &o)
		l.lost(t, lease)
		if o.asked || o.lost == nil && (l.Once || o.interrupted()) {
			return ended(o.status())
		}
		if t.meanwhile != nil {
			return *t.meanwhile
		}
		if o.lost != nil {
			continue // somebody else leads now, or the store is away
		}
		if o.steppedDown != nil {
			if err := t.standBack(ctx); err != nil {
				return err
			}
			continue
		}
		if o.status() == 0 || o.elapsed > maxPause {
			failures = 0
		}
		if o.status() != 0 {
			failures++
		}
		if err := t.rest(ctx, o, l.pause(failures), failures); err != nil {
			return err
		}
	}
}

// coolDown takes the cool-down, and returns an error if a client would refuse it.
func (l *leadCmd) coolDown(p *patience) error {
	if l.CoolDown == nil {
		return nil
	}
	if p.coolDown = *l.CoolDown; p.coolDown <= 0 {
		return usage("--cool-down %v must be positive", *l.CoolDown)
	}
	if l.Label == "" {
		return usage("--cool-down %v without --label: name the version of COMMAND there, by which its failures are counted", *l.CoolDown)
	}
	o, err := l.options(l.storeFlags)
	if err != nil {
		return err
	}
	return refused(o, func(ctx context.Context, client *tenure.Client) error {
		_, err := client.Acquire(ctx, l.Name, &tenure.AcquireOptions{CoolDown: p.coolDown})
		return err
	})
}

// standBack lets others lead first after a step-down.
func (t *command) standBack(parent context.Context) error {
	t.console.say("campaigning for %q again when the others have had the time to", t.lock)
	ctx, stop := t.signals.cancel(parent)
	_ = t.client.StandBack(ctx, t.lock) // a signal ends it, and nothing else
	if sig := stop(); sig != 0 {
		return signaled{sig}
	}
	return nil
}

// interrupted says that whoever sits at the terminal has ended the command by
// a key, which did not reach this process, or that the terminal is gone.
func (o outcome) interrupted() bool {
	switch o.status() {
	case 128 + int(syscall.SIGINT), 128 + int(syscall.SIGQUIT):
		return true
	case 128 + int(syscall.SIGHUP):
		return o.hungUp
	}
	return false
}

// pause is how long the lock is left to others after a command has ended:
// twice as long after each failure in a row.
func (l *leadCmd) pause(failures int) time.Duration {
	d := l.Pause
	for range failures - 1 {
		if d = 2 * d; d >= maxPause {
			break
		}
	}
	return min(d, max(maxPause, l.Pause))
}

// mayPass says that what keeps a command from its first start may pass. That
// its program was there was seen when the campaign began: what is missing, or
// not executable, now is being replaced. What only a start can tell, such as a
// program for another machine, does not pass.
func mayPass(err error) bool {
	return guard.Transient(err) || errors.Is(err, guard.ErrNotFound) ||
		errors.Is(err, guard.ErrCannotRun) && errors.Is(err, fs.ErrPermission)
}

// unstarted returns what the history is to say of a command that could not be
// started.
func unstarted(err error) error {
	if errors.Is(err, guard.ErrOverdue) {
		return nil // the lease was over, and not by the command's fault
	}
	return err
}

// restUnstarted is rest after a command that could not be started.
func (t *command) restUnstarted(parent context.Context, cause error, pause time.Duration, failures int) error {
	status := flags.StatusOf(cannotRun(cause))
	t.console.emit(record{Event: eventPausing, Lock: t.lock, Status: &status, Error: flags.OneLine(cause), Pause: seconds(pause)})
	how := flags.OneLine(cause)
	if failures > 1 {
		how += fmt.Sprintf(" (%d failures in a row)", failures)
	}
	t.console.say("%s; campaigning for %q again in %v", how, t.lock, round(pause))
	return t.idle(parent, pause)
}

// rest lets others lead for a while, and says how the command has ended.
func (t *command) rest(parent context.Context, o outcome, pause time.Duration, failures int) error {
	c := t.console
	status := o.status()
	c.emit(record{Event: eventPausing, Lock: t.lock, Status: &status, Pause: seconds(pause)})
	how := "the command has ended"
	if failures > 0 {
		how = fmt.Sprintf("the command failed with status %d", status)
		if failures > 1 {
			how += fmt.Sprintf(", %d times in a row", failures)
		}
	}
	c.say("%s; campaigning for %q again in %v", how, t.lock, round(pause))
	return t.idle(parent, pause)
}
