// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/guard"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/driver"
)

// job is what run and lead have in common: a command that is run under a lock.
type job struct {
	Name string `arg:""`
	storeFlags
	leaseFlags
	outputFlags
}

// session is a client on a store, and what this process does with it.
type session struct {
	console  *console
	signals  *signals
	location storeurl.Location
	store    driver.Store
	client   *tenure.Client

	lock    string
	command guard.Command

	meanwhile  *signaled               // came during a release
	running    atomic.Pointer[running] // nil while no command runs
	waiting    chan struct{}           // has room for one: the lock was seen held
	inTrouble  atomic.Bool
	storeError atomic.Pointer[error] // the last one, until the store answers
}

// open makes everything ready to take the lock: what is wrong with the command
// line, the command and the store is found in this order, before anything is
// written to a store.
func (j *job) open(c *console, rest operands) (*session, error) {
	c.set(j.outputFlags)
	if len(rest.words) == 0 {
		return nil, usage(`no command given: write it behind "--"`)
	}
	options, err := j.options()
	if err != nil {
		return nil, err
	}
	if err := check(options, j.Name); err != nil {
		return nil, err
	}
	s := &session{
		console: c, lock: j.Name, waiting: make(chan struct{}, 1),
		command: guard.Command{Args: rest.words, Contain: j.Contain},
	}
	s.command.Notify = s.notified
	if _, err := s.command.Find(); err != nil {
		return nil, cannotRun(err)
	}
	if s.location, err = j.location(c, os.Getenv); err != nil {
		return nil, err
	}
	if s.location.Private() {
		c.say("a store in memory excludes no other process")
	}
	if s.store, err = s.location.Open(); err != nil {
		return nil, storeFailed(err)
	}
	s.signals = catchSignals() // until here there was nothing to clean up
	surviveBrokenPipe()
	options.OnEvent = s.onEvent
	if s.client, err = tenure.New(s.store, &options); err != nil {
		_ = s.store.Close()
		return nil, usage("%w", err)
	}
	return s, nil
}

// close waits for what an acquire that was given up leaves to clean up.
func (s *session) close() {
	patience := 3 * s.client.Options().RequestTimeout
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = s.client.Close(ctx) // a lease that is left has been told of
	_ = s.store.Close()
}

// onEvent is called for each event of the client. The command's life is
// extended first.
func (s *session) onEvent(e tenure.Event) {
	switch e.Kind {
	case tenure.EventRenewed:
		if r := s.running.Load(); r != nil {
			r.extend()
		}
	case tenure.EventWaiting:
		select {
		case s.waiting <- struct{}{}:
		default:
		}
	}
	s.told(e)
}

// environment is the command's.
func (s *session) environment(lease *tenure.Lease) []string {
	return append(os.Environ(),
		"TENURE_LOCK="+lease.Name(),
		"TENURE_TOKEN="+formatToken(lease.Token()),
		"TENURE_OWNER="+lease.Owner(),
		"TENURE_STORE="+s.location.URL(),
	)
}

// release releases the lock after its command has ended, and returns the loss
// that only the release has brought to light, if another holder came in
// between. A signal ends the waiting for the store's answer, and is kept for
// whoever would go on otherwise.
func (s *session) release(lease *tenure.Lease) (superseded error) {
	ctx, stop := s.signals.cancel(context.Background())
	defer stop()
	if lease.Check() != nil {
		// It runs out by itself, so the release is a courtesy. The store may be
		// what it was lost by.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 2*s.client.Options().RequestTimeout)
		defer cancel()
	}
	err := lease.Release(ctx)
	if sig := (signaled{}); errors.As(context.Cause(ctx), &sig) {
		s.meanwhile = &sig
	}
	switch {
	case errors.Is(err, tenure.ErrSuperseded):
		return err
	case errors.Is(err, tenure.ErrUncertain) && !errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		s.console.warn("the release of %q was not confirmed: it is free within %v", s.lock, s.client.Options().LeaseDuration)
	}
	return nil // what was lost during the command, the guard has seen
}

// announceAfter is how long a lock is waited for in silence.
const announceAfter = time.Second
