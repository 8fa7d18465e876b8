// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// DeleteReleased deletes a released lock and its history, oldest record first, if rec is
// still the lock's record. It returns how many history records it has deleted. The error
// is a [*driver.ConflictError] if another process has taken the lock.
//
// The client holds the lock while it deletes its history. So a process that takes the
// lock afterwards does not lose its terms.
func (c *Client) DeleteReleased(ctx context.Context, rec driver.Record, past []driver.Record) (history int, err error) {
	if len(past) == 0 {
		return 0, c.delete(ctx, rec)
	}
	version := rand.Text()
	next := driver.Claimed(driver.Record{
		Key: rec.Key, Version: version, Beat: version, State: driver.Held, Since: time.Now().Round(0),
		Owner: c.options.Owner, Host: c.options.Host, Label: "deletes it",
		Lease: c.timing.Lease, Heartbeat: c.timing.Heartbeat,
	}, rec, true)
	held := next
	if err := c.insist(ctx, func(ctx context.Context) (err error) {
		held, err = c.Store.Swap(ctx, rec, next)
		return err
	}); err != nil {
		return 0, err
	}
	// Half of a lease is enough for a hundred records. The other half allows for the
	// clocks of other processes.
	within, cancel := context.WithTimeout(ctx, c.timing.Lease/2)
	defer cancel()
	for i := 0; i < len(past) && err == nil; i++ { // after a failure, the rest of the history has no hole
		if err = c.delete(within, past[i]); err == nil {
			history++
		}
	}
	if err == nil {
		err = c.delete(within, held)
	}
	if err != nil { // release the lock; if that fails, its lease expires
		free := held
		free.Version, free.State, free.End, free.Until = rand.Text(), driver.Released, driver.EndReleased, rec.Until
		_ = c.insist(context.WithoutCancel(ctx), func(ctx context.Context) error {
			_, err := c.Store.Swap(ctx, held, free)
			return err
		})
	}
	return history, err
}

func (c *Client) delete(ctx context.Context, rec driver.Record) error {
	return c.insist(ctx, func(ctx context.Context) error { return c.Store.Delete(ctx, rec) })
}

// insist makes a write, and repeats it while other writers block it.
func (c *Client) insist(ctx context.Context, write func(context.Context) error) error {
	return c.Persist(ctx, c.timing.RequestTimeout, func(err error) bool {
		var conflict *driver.ConflictError
		return errors.Is(err, driver.ErrNotApplied) && !errors.Is(err, driver.ErrPermanent) && !errors.As(err, &conflict)
	}, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, c.timing.RequestTimeout)
		defer cancel()
		return write(ctx)
	})
}

// Persist repeats a call while its error may be temporary, up to a bound.
func (c *Client) Persist(
	ctx context.Context, bound time.Duration, passes func(error) bool, call func(context.Context) error,
) error {
	begun, pause := time.Now(), c.timing.RequestTimeout/20
	for {
		err := call(ctx)
		if err == nil || !passes(err) || time.Since(begun) >= bound {
			return err
		}
		if ended := c.Sleep(ctx, pause); ended != nil {
			return ended
		}
		pause = min(2*pause, c.timing.RequestTimeout)
	}
}
