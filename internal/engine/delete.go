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

// DeleteReleased deletes a released lock and its history, the oldest record of which comes
// first, if the lock stands as rec. It returns how many records of the history it has
// deleted. The error is a [*driver.ConflictError] if somebody has taken the lock.
//
// This client holds a lock that has a history while it deletes that history. So a process
// that takes the lock meanwhile does not lose its terms.
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
	// Half of a lease is enough for a hundred records, and leaves the other half
	// for what the clocks of others make of it.
	within, cancel := context.WithTimeout(ctx, c.timing.Lease/2)
	defer cancel()
	for i := 0; i < len(past) && err == nil; i++ { // if it fails, what is left has no hole
		if err = c.delete(within, past[i]); err == nil {
			history++
		}
	}
	if err == nil {
		err = c.delete(within, held)
	}
	if err != nil { // it is given back; if that fails it is free when the lease has run out
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

// insist makes a write, again if others keep it out of the store.
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

// Persist makes a call again for as long as its error may pass, up to a bound.
func (c *Client) Persist(
	ctx context.Context, bound time.Duration, passes func(error) bool, call func(context.Context) error,
) error {
	begun, pause := time.Now(), c.timing.RequestTimeout/20
	for {
		err := call(ctx)
		if err == nil || !passes(err) || time.Since(begun) >= bound {
			return err
		}
		if ended := c.Rest(ctx, pause); ended != nil {
			return ended
		}
		pause = min(2*pause, c.timing.RequestTimeout)
	}
}
