// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	Shared             bool           // readers run beside each other
	Exclusive          bool           // and a writer alone
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
		return usage("--unless-alive waits for a sign of life, which --wait %v does not allow", *r.Wait)
	case r.ConflictExitStatus < 0 || r.ConflictExitStatus > 255:
		return usage("-E %d must be from 0 to 255", r.ConflictExitStatus)
	case r.Slots == nil && r.Resize:
		return usage("--resize needs --slots: the new number of slots")
	case r.Shared && r.Exclusive:
		return usage("--shared and --exclusive exclude each other: a command reads, or it writes")
	case r.Slots != nil && (r.Shared || r.Exclusive):
		return usage("--slots goes with neither --shared nor --exclusive: a semaphore has slots of its own")
	case r.Slots != nil && (*r.Slots < 1 || *r.Slots > semaphore.MaxSlots):
		return usage("--slots %d must be from 1 to %d", *r.Slots, semaphore.MaxSlots)
	case r.Slots != nil && r.UnlessAlive:
		return usage("--slots and --unless-alive exclude each other: it is one holder that shows a sign of life")
	case (r.Shared || r.Exclusive) && r.UnlessAlive:
		return usage("--unless-alive goes with neither --shared nor --exclusive: it is one holder that shows a sign of life")
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
		t.console.warn("the lease of %q was lost after the command had ended (%s): it was free too early",
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
