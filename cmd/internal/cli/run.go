// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/guard"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/semaphore"
)

type runCmd struct {
	job
	progressFlags
	Slots              *int // as many hold the name at a time
	Resize             bool
	Shared             bool           // readers may run together
	Exclusive          bool           // and a writer runs alone
	Wait               *time.Duration `must:"not be negative"`
	Timeout            time.Duration  `must:"not be negative"`
	UnlessAlive        bool
	AtLeastFor         time.Duration `must:"not be negative"`
	ConflictExitStatus int           `name:"conflict-exit-code" short:"E" default:"75"`
}

// Run holds the lock while the command runs.
func (r *runCmd) Run(c *console, rest operands) error {
	if err := cmp.Or(r.check(), r.progressFlags.check(&r.job)); err != nil {
		return err
	}
	t, err := r.open(c, rest)
	if err != nil {
		return err
	}
	defer t.close()
	t.proves = true
	r.tell(t)
	if err := r.choose(t); err != nil {
		return err
	}
	waitUntil := time.Now().Add(valueOf(r.Wait))
	for {
		lease, err := t.acquire(context.Background(), patience{
			wait: r.Wait, held: r.ConflictExitStatus,
			options: tenure.AcquireOptions{UnlessAlive: r.UnlessAlive},
		})
		if err != nil {
			return err
		}
		begun := time.Now()
		o, err := r.hold(t, lease)
		if err == nil {
			if !t.keep(lease, o, r.AtLeastFor-time.Since(begun)) {
				t.conclude(lease, &o)
			}
			return ended(o.status())
		}
		_ = t.release(lease, unstarted(err))
		switch sig := (signaled{}); {
		case errors.As(err, &sig):
			return sig
		case errors.Is(err, guard.ErrOverdue): // it may have begun: a second time would be one too many
			return failed(statusLost, fmt.Errorf("the lease of %q was lost: %w", t.lock, err))
		case !errors.Is(err, guard.ErrTooLate):
			return cannotRun(err)
		case t.meanwhile != nil:
			return *t.meanwhile
		}
		// This process was stopped until the lease was over, before anything had
		// begun: it waits for the lock again.
		if err := t.idle(context.Background(), latePause); err != nil {
			return err
		}
		if r.Wait != nil {
			left := max(0, time.Until(waitUntil))
			r.Wait = &left
		}
	}
}

// check finds what is wrong with the command line before a store is touched.
func (r *runCmd) check() error {
	switch {
	case r.UnlessAlive && r.Wait != nil && *r.Wait == 0:
		return usage("--unless-alive waits for a sign of life, so it excludes --wait %v", *r.Wait)
	case r.ConflictExitStatus < 0 || r.ConflictExitStatus > 255:
		return usage("-E %d must be from 0 to 255", r.ConflictExitStatus)
	case r.Slots == nil && r.Resize:
		return usage("--resize needs --slots: the new number of slots")
	case r.Shared && r.Exclusive:
		return usage("--shared and --exclusive exclude each other: a command is a reader or a writer")
	case r.Slots != nil && (r.Shared || r.Exclusive):
		return usage("--slots excludes --shared and --exclusive: a semaphore has its own slots")
	case r.Slots != nil && (*r.Slots < 1 || *r.Slots > semaphore.MaxSlots):
		return usage("--slots %d must be from 1 to %d", *r.Slots, semaphore.MaxSlots)
	case r.Slots != nil && r.UnlessAlive:
		return usage("--slots and --unless-alive exclude each other: --unless-alive watches a single holder")
	case (r.Shared || r.Exclusive) && r.UnlessAlive:
		return usage("--unless-alive excludes --shared and --exclusive: it watches a single holder")
	case r.Slots != nil && len(r.Name) > semaphore.MaxNameLen:
		return usage("name %.20q... has %d bytes: with --slots at most %d are allowed",
			r.Name, len(r.Name), semaphore.MaxNameLen)
	case (r.Shared || r.Exclusive) && len(r.Name) > rwlock.MaxNameLen:
		return usage("name %.20q... has %d bytes: with --shared and --exclusive at most %d are allowed",
			r.Name, len(r.Name), rwlock.MaxNameLen)
	}
	return nil
}

// hold runs the command for as long as it may.
func (r *runCmd) hold(t *command, lease *tenure.Lease) (outcome, error) {
	ctx := lease.Context()
	if r.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, r.Timeout, once.ErrTimeout)
		defer stop()
	}
	return t.insist(ctx, lease)
}

// keep holds the lock on for a while after the command has ended, and releases it. A
// signal ends that, and a request to step down. It returns false, having done
// nothing, if the lock is not to be held on.
func (t *command) keep(lease *tenure.Lease, o outcome, left time.Duration) bool {
	if left <= 0 || o.asked || o.lost != nil || o.steppedDown != nil {
		return false
	}
	t.console.say("the command has ended with status %d; %q stays held for another %v", o.status(), t.lock, round(left))
	t.console.emit(record{Event: eventKept, Lock: t.lock, Token: lease.Token(), Pause: seconds(left)})
	ctx, stop := t.signals.cancel(lease.Context())
	_ = sleep(ctx, left) // whatever ends it, the release comes next
	stop()
	lost := context.Cause(lease.Context())
	if superseded := t.release(lease, o.failure()); superseded != nil {
		lost = superseded
	}
	if lost != nil && !errors.Is(lost, tenure.ErrSteppedDown) {
		t.console.warn("the lease of %q was lost after the command had ended (%s): the lock was free too early",
			t.lock, reasonText(lost))
	}
	t.reportTrouble(o)
	return true
}

const (
	// startPatience bounds how long a command is tried to be started for which the
	// system has no room. Others wait for the lock meanwhile.
	startPatience = 10 * time.Second
	// Between two tries, growing from the first to the second.
	firstStartPause = 100 * time.Millisecond
	maxStartPause   = 2 * time.Second
)

// insist is hold, for a command that may not be to be started for the moment: it is
// tried again while the lease lasts, for startPatience at most. The error may be a
// signaled.
func (t *command) insist(ctx context.Context, lease *tenure.Lease) (outcome, error) {
	end := time.Now().Add(startPatience)
	for pause := firstStartPause; ; pause = min(2*pause, maxStartPause) {
		o, err := t.hold(ctx, lease)
		if !guard.Transient(err) || time.Until(end) < pause {
			return o, err
		}
		t.console.emit(record{
			Event: eventNotStarted, Lock: t.lock, Token: lease.Token(), Error: flags.OneLine(err),
			Pause: seconds(pause),
		})
		t.console.say("%s; trying again in %v", flags.OneLine(err), pause)
		switch waited := t.idle(ctx, pause); {
		case errors.As(waited, new(signaled)):
			return outcome{}, waited
		case waited != nil && lease.Remaining() > 0: // it was asked back
			return o, err
		}
	}
}

type leadCmd struct {
	job
	progressFlags
	hookFlags
	Once     bool
	Priority int
	CoolDown *time.Duration `must:"be positive"`
	Pause    time.Duration  `default:"1s" must:"not be negative"`
}

// maxPause bounds the pause after a command that fails again and again. A
// command that ran longer than that begins a new count.
const maxPause = time.Minute

// Run campaigns for the lock until a signal ends it, and runs the command at
// every election won.
func (l *leadCmd) Run(c *console, rest operands) error {
	p := patience{options: tenure.AcquireOptions{
		StoreTimeout: -1, Priority: l.Priority, CoolDown: valueOf(l.CoolDown),
	}}
	if err := cmp.Or(l.checkCoolDown(), l.progressFlags.check(&l.job)); err != nil {
		return err
	}
	if l.OnElected != nil && len(rest.words) == 0 {
		rest.words = linger
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
		// This process was stopped until the lease was over; nothing is left of what had begun.
		late := errors.Is(err, guard.ErrTooLate) || errors.Is(err, guard.ErrOverdue) && !l.Once
		if err == nil {
			started = true
			t.conclude(lease, &o)
		} else {
			_ = t.release(lease, unstarted(err))
		}
		l.lost(t, lease)
		switch {
		case err == nil && (o.asked || o.lost == nil && (l.Once || o.interrupted())):
			return ended(o.status())
		case err != nil && !late && (!started && !mayPass(err) || errors.Is(err, guard.ErrOverdue)):
			return cannotRun(err) // if it is overdue it may have begun, once
		case t.meanwhile != nil:
			return *t.meanwhile
		}
		switch {
		case late:
			err = t.idle(ctx, latePause)
		case err == nil && o.lost != nil: // another process leads now, or the store is away
		case err == nil && o.steppedDown != nil:
			err = t.standBack(ctx)
		default:
			if err == nil && (o.status() == 0 || o.elapsed > maxPause) {
				failures = 0
			}
			if err != nil || o.status() != 0 {
				failures++
			}
			err = t.rest(o, err, l.pause(failures), failures)
		}
		if err != nil {
			return err
		}
	}
}

func (l *leadCmd) checkCoolDown() error {
	if l.CoolDown == nil {
		return nil
	}
	if l.Label == "" {
		return usage("--cool-down %v without --label: --label names the version of COMMAND, by which failures are counted",
			*l.CoolDown)
	}
	o, err := l.options(l.storeFlags)
	if err != nil {
		return err
	}
	return refused(o, func(ctx context.Context, client *tenure.Client) error {
		_, err := client.Acquire(ctx, l.Name, &tenure.AcquireOptions{CoolDown: *l.CoolDown})
		return err
	})
}

// standBack lets others lead first after a step-down.
func (t *command) standBack(parent context.Context) error {
	t.console.say("campaigning for %q again after others have had time to lead", t.lock)
	ctx, stop := t.signals.cancel(parent)
	o := t.client.Options()
	bound, cancel := context.WithTimeout(ctx, 2*(o.RefreshPeriod+o.RequestTimeout))
	defer cancel()
	awaitLeader(bound, t.client, t.lock, func(l tenure.Leader) bool { return !l.None() && l.Owner != o.Owner })
	if sig := stop(); sig != 0 {
		return signaled{sig}
	}
	return nil
}

// interrupted says that the user at the terminal has ended the command with a key,
// which did not reach this process, or that the terminal is gone.
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
	for ; failures > 1 && d > 0 && d < maxPause; failures-- {
		d *= 2
	}
	return min(d, max(maxPause, l.Pause))
}

// mayPass says that an obstacle to the command's first start may be temporary. Its
// program existed when the campaign began: if it is missing or not executable now, it
// is being replaced. Errors that only a start shows, such as a program for another
// machine, are permanent.
func mayPass(err error) bool {
	return guard.Transient(err) || errors.Is(err, guard.ErrNotFound) ||
		errors.Is(err, guard.ErrCannotRun) && errors.Is(err, fs.ErrPermission)
}

// unstarted returns what the history is to say of a command that could not be
// started.
func unstarted(err error) error {
	if errors.Is(err, guard.ErrOverdue) || errors.Is(err, guard.ErrTooLate) || errors.As(err, new(signaled)) {
		return nil // the lease was over, or was not wanted any more, and not by the command's fault
	}
	return err
}

// rest lets others lead for a while, and says how the command has ended, or why it could not be
// started.
func (t *command) rest(o outcome, unstarted error, pause time.Duration, failures int) error {
	status, how := o.status(), "the command has ended"
	r := record{Event: eventPausing, Lock: t.lock, Status: &status, Pause: seconds(pause)}
	switch {
	case unstarted != nil:
		status, how = flags.StatusOf(cannotRun(unstarted)), flags.OneLine(unstarted)
		if r.Error = how; failures > 1 {
			how += fmt.Sprintf(" (%d failures in a row)", failures)
		}
	case failures > 1:
		how = fmt.Sprintf("the command failed with status %d, %d times in a row", status, failures)
	case failures > 0:
		how = fmt.Sprintf("the command failed with status %d", status)
	}
	t.console.emit(r)
	t.console.say("%s; campaigning for %q again in %v", how, t.lock, round(pause))
	return t.idle(context.Background(), pause)
}

// hookFlags are the flags for what a leader runs in addition to its command.
type hookFlags struct {
	OnElected *string `empty:"give it a command for the shell"`
	OnLost    *string `empty:"give it a command for the shell"`

	begun bool // a process was started in this term, or may have been
}

// linger is the command of a leader without a command: it ends on a signal.
var linger = []string{
	"sh", "-c",
	`trap 'kill $! 2>/dev/null; exit 0' TERM INT QUIT; trap '' HUP USR1 USR2; while :; do sleep 3600 & wait $!; done`,
}

// lead runs the command of a leader, after the command of --on-elected, which runs under the
// lease and under guard, too. If that fails, the command is not run.
func (f *hookFlags) lead(t *command, lease *tenure.Lease) (outcome, error) {
	f.begun = false
	if f.OnElected != nil {
		command := t.program
		t.program.Args, t.what = shell(*f.OnElected), "the command of --on-elected, which runs before COMMAND,"
		o, err := t.hold(lease.Context(), lease)
		t.program, t.what = command, ""
		f.begun = mayHaveBegun(err)
		if err != nil || o.status() != 0 || o.asked || o.steppedDown != nil {
			return o, err
		}
	}
	o, err := t.hold(lease.Context(), lease)
	f.begun = f.begun || mayHaveBegun(err)
	return o, err
}

// mayHaveBegun says, of an error of hold, that a process may have done something.
func mayHaveBegun(err error) bool { return err == nil || errors.Is(err, guard.ErrOverdue) }

func shell(text string) []string { return []string{"sh", "-c", text} }

// lost runs the command of --on-lost after the end of a term, for a lease at most. It holds
// no lock: another leader may be at work.
func (f *hookFlags) lost(t *command, lease *tenure.Lease) {
	if f.OnLost == nil || !f.begun {
		return
	}
	patience := t.client.Options().LeaseDuration
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	args := shell(*f.OnLost)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = t.environment(lease)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = ownGroup()
	cmd.Cancel = func() error { return killGroup(cmd.Process) }
	cmd.WaitDelay = patience / 10
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		t.console.warn("the command of --on-lost did not end within %v: it was killed", patience)
	case errors.Is(err, exec.ErrWaitDelay): // something that it has started keeps the output open
	case err != nil:
		t.console.warn("the command of --on-lost failed: %s", flags.OneLine(err))
	}
}
