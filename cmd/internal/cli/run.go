// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/guard"
)

// runCmd is tenure run.
type runCmd struct {
	job
	slotFlags
	Wait               *time.Duration
	UnlessAlive        bool
	ConflictExitStatus int `name:"conflict-exit-code" short:"E" default:"75"`
}

// Run holds the lock while the command runs.
func (r *runCmd) Run(c *console, rest operands) error {
	if r.Wait != nil && *r.Wait < 0 {
		return usage("--wait %v must not be negative", *r.Wait)
	}
	if r.UnlessAlive && r.Wait != nil && *r.Wait == 0 {
		return usage("--unless-alive waits for a sign of life, which --wait %v does not allow", *r.Wait)
	}
	if r.ConflictExitStatus < 0 || r.ConflictExitStatus > 255 {
		return usage("-E %d must be from 0 to 255", r.ConflictExitStatus)
	}
	if err := r.slotFlags.check(r); err != nil {
		return err
	}
	t, err := r.open(c, rest)
	if err != nil {
		return err
	}
	defer t.close()
	if err := t.contend(r.slotFlags); err != nil {
		return err
	}
	waitUntil := time.Time{}
	if r.Wait != nil {
		waitUntil = time.Now().Add(*r.Wait)
	}
	for {
		lease, err := t.acquire(context.Background(), patience{wait: r.Wait, unlessAlive: r.UnlessAlive, held: r.ConflictExitStatus})
		if err != nil {
			return err
		}
		o, err := t.insist(lease)
		if err == nil {
			t.conclude(lease, &o)
			return ended(o.status())
		}
		_ = t.release(lease)
		if sig := (signaled{}); errors.As(err, &sig) {
			return sig
		}
		if errors.Is(err, guard.ErrOverdue) { // it may have begun: a second time would be one too many
			return failed(statusLost, fmt.Errorf("the lease of %q was lost: %w", t.lock, err))
		}
		if !errors.Is(err, guard.ErrTooLate) {
			return cannotRun(err)
		}
		if t.meanwhile != nil {
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
func (t *tenancy) insist(lease *tenure.Lease) (outcome, error) {
	end := time.Now().Add(startPatience)
	for pause := firstStartPause; ; pause = min(2*pause, maxStartPause) {
		o, err := t.hold(lease)
		if !guard.Transient(err) || time.Until(end) < pause {
			return o, err
		}
		t.console.emit(record{Event: eventNotStarted, Lock: t.lock, Token: lease.Token(), Error: oneLine(err), Pause: seconds(pause)})
		t.console.say("%s; trying again in %v", oneLine(err), pause)
		switch waited := t.idle(lease.Context(), pause); {
		case errors.As(waited, new(signaled)):
			return outcome{}, waited
		case waited != nil && lease.Remaining() > 0: // it was asked back
			return o, err
		}
	}
}
