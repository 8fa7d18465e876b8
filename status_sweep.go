// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// SweepOptions say which locks [Client.SweepReleased] deletes.
type SweepOptions struct {
	// ReleasedFor is how long a lock must have been free. It is at least a
	// minute: by then no write of its last holder can come late any more. For the
	// same reason four leases of that holder must have passed.
	ReleasedFor time.Duration
	// RestartTokens says that the tokens of the locks may begin at 1 again. A
	// fence that remembers a higher one refuses the next holders then, until it
	// is told otherwise. It is not needed where the store keeps the tokens of
	// deleted locks (see [driver.TokenKeeper]).
	RestartTokens bool
	// DryRun counts the locks, and deletes nothing.
	DryRun bool
}

// SweptLocks are what [Client.SweepReleased] has found.
type SweptLocks struct {
	// Locks is how many were deleted, and History how many records of their
	// history. After a dry run Locks is how many would be deleted; History is 0.
	Locks, History int
	// WithData is how many were left alone because they have data: what a holder
	// has left for the next one, or the size of a semaphore, which is in use
	// although nobody has written it for long.
	WithData int
	// Taken is how many were left alone because somebody took them meanwhile.
	Taken int
}

// minReleasedFor is the least [SweepOptions.ReleasedFor], and lingerLeases how many
// leases of its last holder a lock must have been free for.
const (
	minReleasedFor = time.Minute
	lingerLeases   = 4
)

// SweepReleased deletes the records of locks that were released long ago, and their
// history, so that a store whose locks have ever new names does not grow. It goes
// through the locks whose names begin with prefix; it may be slow. The time of a
// release is by the wall clock of the last holder, and is compared with the clock
// of this machine. A wrong clock has a lock deleted early or late, which harms only
// users that need its token or its history. A lock that is held, reserved, under a
// session, or has data, is left alone.
//
// This client holds a lock that has a history while it deletes that history. So a
// process that takes the lock meanwhile does not lose its tenures. The error is
// that of the store, or matches the context's; the result still counts what was
// deleted before it.
func (c *Client) SweepReleased(
	ctx context.Context, prefix string, options *SweepOptions,
) (SweptLocks, error) {
	var o SweepOptions
	if options != nil {
		o = *options
	}
	keeps := c.store.Keeper != nil && c.store.Keeper.KeepsTokens()
	var err error
	switch {
	case o.ReleasedFor < minReleasedFor:
		err = refused("released for %v must be at least %v", o.ReleasedFor, minReleasedFor)
	case !keeps && !o.RestartTokens && !o.DryRun:
		err = refused("this store does not keep the tokens of deleted locks: they begin at 1 again, " +
			"and fences refuse them, so RestartTokens must say that this may be")
	case c.engine.Closed():
		err = ErrClosed
	}
	s := releasedSweep{c: c, SweepOptions: o}
	if err == nil {
		err = eachPage(ctx, c.bounded(c.store.List), prefix, func(page driver.Page) error {
			for _, rec := range page.Records {
				if err := s.sweep(ctx, rec); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err != nil {
		return s.swept, wrap("sweep", prefix, err)
	}
	return s.swept, nil
}

// releasedSweep is one [Client.SweepReleased] under way.
type releasedSweep struct {
	SweepOptions
	c     *Client
	swept SweptLocks
}

func (s *releasedSweep) sweep(ctx context.Context, rec driver.Record) error {
	switch {
	case strings.HasPrefix(rec.Key, driver.OwnPrefix), rec.State != driver.Released, !protocol.Readable(rec),
		rec.Until.IsZero(), time.Since(rec.Until.Round(0)) < max(s.ReleasedFor, lingerLeases*rec.Lease),
		rec.Token >= driver.MaxToken:
		return nil
	}
	if len(rec.Data) > 0 {
		s.swept.WithData++
		return nil
	}
	if s.DryRun {
		s.swept.Locks++
		return nil
	}
	return s.remove(ctx, rec)
}

// remove deletes a released lock and its history, if it stands as it was seen.
func (s *releasedSweep) remove(ctx context.Context, rec driver.Record) error {
	past, err := s.past(ctx, rec)
	if err != nil {
		return err
	}
	if len(past) == 0 {
		return s.taken(s.delete(ctx, rec))
	}
	held, err := s.hold(ctx, rec)
	if err != nil {
		return s.taken(err)
	}
	// Half of a lease is enough for a hundred records, and leaves the other half
	// for what the clocks of others make of it.
	within, cancel := context.WithTimeout(ctx, s.c.timing.Lease/2)
	defer cancel()
	for _, t := range slices.Backward(past) { // the oldest first: if it fails, what is left has no hole
		if err = s.delete(within, t); err != nil {
			break
		}
		s.swept.History++
	}
	if err == nil {
		err = s.delete(within, held)
	}
	if err != nil {
		s.giveBack(ctx, held, rec)
		return s.taken(err)
	}
	s.swept.Locks++
	return nil
}

// taken counts a lock that somebody else has written meanwhile, which this sweep
// then leaves alone. Without an error it counts a lock that is gone.
func (s *releasedSweep) taken(err error) error {
	var conflict *driver.ConflictError
	switch {
	case err == nil:
		s.swept.Locks++
	case errors.As(err, &conflict):
		s.swept.Taken++
	default:
		return err
	}
	return nil
}

// hold takes the lock, if it stands as it was seen, so that nobody else can while
// its history goes.
func (s *releasedSweep) hold(ctx context.Context, rec driver.Record) (driver.Record, error) {
	version := rand.Text()
	next := driver.Claimed(driver.Record{
		Key: rec.Key, Version: version, Beat: version, State: driver.Held, Since: time.Now().Round(0),
		Owner: s.c.options.Owner, Host: s.c.options.Host, Label: "deletes it",
		Lease: s.c.timing.Lease, Heartbeat: s.c.timing.Heartbeat,
	}, rec, true)
	var held driver.Record
	err := s.write(ctx, func(ctx context.Context) (err error) {
		held, err = s.c.store.Swap(ctx, rec, next)
		return err
	})
	return held, err
}

// write has something written, again if others keep it out of the store.
func (s *releasedSweep) write(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.c.timing.RequestTimeout)
	defer cancel()
	for {
		err := do(ctx)
		var conflict *driver.ConflictError
		if !errors.Is(err, driver.ErrNotApplied) || errors.Is(err, driver.ErrPermanent) || errors.As(err, &conflict) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(s.c.timing.RequestTimeout / 20):
		}
	}
}

// giveBack frees a lock that could not be deleted. If that fails it is free when
// its lease has run out.
func (s *releasedSweep) giveBack(ctx context.Context, held, was driver.Record) {
	next := held
	next.Version, next.State, next.End, next.Until = rand.Text(), driver.Released, driver.EndReleased, was.Until
	_ = s.write(context.WithoutCancel(ctx), func(ctx context.Context) error {
		_, err := s.c.store.Swap(ctx, held, next)
		return err
	})
}

func (s *releasedSweep) delete(ctx context.Context, rec driver.Record) error {
	return s.write(ctx, func(ctx context.Context) error { return s.c.store.Delete(ctx, rec) })
}

// pastAtOnce is how many tenures are looked for at once.
const pastAtOnce = 25

// past returns the records of the lock's history, the newest first. It reads
// downwards until there are none: the history limit of the clients that wrote them
// is not known.
func (s *releasedSweep) past(ctx context.Context, rec driver.Record) ([]driver.Record, error) {
	var all []driver.Record
	below := map[uint64]uint64{} // tokens that were raised, and those from which
	for _, e := range protocol.Present(rec) {
		below[e.Token] = e.Below()
	}
	for from := rec.Token; from > 0; {
		var keys []string
		for from > 0 && len(keys) < pastAtOnce {
			keys = append(keys, protocol.HistoryKey(rec.Key, from))
			if b, known := below[from]; known {
				from = b
			} else {
				from--
			}
		}
		found, err := s.c.engine.ReadAll(ctx, keys, nil)
		if err != nil {
			return nil, err
		}
		before := len(all)
		for _, f := range found {
			switch {
			case isNotFound(f.Err):
			case f.Err != nil:
				return nil, f.Err
			case f.Record.State == driver.Past:
				all = append(all, f.Record)
				if t := f.Record.Tenure(f.Record.End); t.End == driver.EndRaised && t.Asked != nil {
					from = min(from, t.Asked.Token) // there is nothing between the two
				}
			}
		}
		if len(all) == before {
			break
		}
	}
	return all, nil
}
