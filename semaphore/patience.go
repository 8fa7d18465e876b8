// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tenurelock/tenure"
)

// patience is how long a store that gives no answer is asked again. Package
// tenure has it for what it acquires. A look at a record is one request there:
// it may fail because others have the store's file, and is no reason to give up.
type patience struct {
	limit time.Duration // negative: without end
	since time.Time     // of the last answer, or when the first question was asked
}

// patient returns the patience of a call that begins now: the given one, unless
// options say another one.
func patient(limit time.Duration, o tenure.AcquireOptions) *patience {
	if o.StoreTimeout != 0 {
		limit = o.StoreTimeout
	}
	return &patience{limit: limit, since: time.Now()}
}

// brief is how long a caller that does not wait for a slot waits for the store,
// as [tenure.Client.TryAcquire] does.
func (s *Semaphore) brief() time.Duration { return 3 * s.client.Options().RequestTimeout }

// answered notes that the store has given an answer.
func (p *patience) answered() { p.since = time.Now() }

// ends says that the store need not be asked again after such an error.
func (p *patience) ends(err error) bool {
	if errors.Is(err, tenure.ErrClosed) || errors.Is(err, tenure.ErrSessionClosed) ||
		errors.Is(err, tenure.ErrUnreadable) || errors.Is(err, tenure.ErrPermanent) {
		return true
	}
	return p.limit >= 0 && time.Since(p.since) >= p.limit
}

// patiently asks until there is an answer, for as long as the patience lasts.
// The error is ctx's if that has ended, or else the last question's.
func (s *Semaphore) patiently(ctx context.Context, p *patience, question func() error) error {
	for {
		err := question()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return done(ctx)
		case p.ends(err):
			return err
		}
		pause(ctx, s.client.Options().RefreshPeriod/4)
	}
}

// pause waits for about that long. A part of it is random, so that processes do
// not keep in step.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d*9/10 + rand.N(d/5+1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
