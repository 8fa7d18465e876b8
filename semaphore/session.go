// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenurelock/tenure"
)

// tryLock takes a slot's lock if it is free: under the session, if there is one.
// The locks of the size and of the line are leases of their own: a process whose
// session has ended can still change the number of slots.
func (s *Semaphore) tryLock(ctx context.Context, name string, o *tenure.AcquireOptions) (*tenure.Lease, error) {
	if s.options.Session != nil {
		return s.options.Session.TryAcquire(ctx, name, o)
	}
	return s.client.TryAcquire(ctx, name, o)
}

// boundBySession returns a context that also ends with the session: a waiter
// polls slots, and would not learn of it before one is free.
func (s *Semaphore) boundBySession(ctx context.Context) (bound context.Context, stop context.CancelFunc) {
	if s.options.Session == nil {
		return ctx, func() {}
	}
	life := s.options.Session.Context()
	bound, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(life, cancel)
	return bound, func() {
		unhook()
		cancel()
	}
}

// orSessionEnded is the error of a call that the end of the session may have
// ended.
func (s *Semaphore) orSessionEnded(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || s.options.Session == nil {
		return err
	}
	cause := context.Cause(s.options.Session.Context())
	if cause == nil || errors.Is(err, tenure.ErrSessionClosed) {
		return err
	}
	if errors.Is(cause, tenure.ErrSessionClosed) {
		return cause
	}
	return fmt.Errorf("%w: %w", tenure.ErrSessionClosed, cause)
}
