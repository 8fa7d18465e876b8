// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/engine"
)

// Patience is how long calls to a store without an answer are retried. Package tenure
// has its own for acquires. But a status read there is one request: it may fail because
// other processes lock the store's file, which is no reason to give up.
type Patience struct {
	limit time.Duration // negative: without end
	since time.Time     // the last answer, or the first call
}

// Patient returns the patience of a call that begins now: the given limit, unless the
// options have another. A negative limit means for ever.
func Patient(limit time.Duration, o tenure.AcquireOptions) *Patience {
	if o.StoreTimeout != 0 {
		limit = o.StoreTimeout
	}
	return &Patience{limit: limit, since: time.Now()}
}

// Brief is the patience of a caller that does not wait for a slot, as for
// [tenure.Client.TryAcquire].
func (b Base) Brief() time.Duration { return 3 * b.Client.Options().RequestTimeout }

// Answered notes that the store has given an answer.
func (p *Patience) Answered() { p.since = time.Now() }

// Ends says whether to give up after that error.
func (p *Patience) Ends(err error) bool {
	if errors.Is(err, tenure.ErrClosed) || errors.Is(err, tenure.ErrSessionClosed) ||
		errors.Is(err, tenure.ErrUnreadable) || errors.Is(err, tenure.ErrPermanent) {
		return true
	}
	return p.limit >= 0 && time.Since(p.since) >= p.limit
}

// Patiently repeats the question until it has an answer, as long as the patience lasts.
// The error is ctx's if that has ended, otherwise the last one.
func (b Base) Patiently(ctx context.Context, p *Patience, question func() error) error {
	for {
		err := question()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return engine.Done(ctx)
		case p.Ends(err):
			return err
		}
		Pause(ctx, b.Client.Options().RefreshPeriod/4)
	}
}

// Pause waits for about that long, or until ctx ends. A part of it is random, so that
// processes do not synchronize.
func Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(About(d))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// About returns a random duration that is about d: a tenth less or more.
func About(d time.Duration) time.Duration { return d*9/10 + rand.N(d/5+1) }
