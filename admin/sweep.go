// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
)

// sweepAtOnce is how many sessions are watched at once.
const sweepAtOnce = 64

// Sweep clears what ended sessions have left in the store. It closes sessions whose
// heartbeat has stood still for their lease, so that their locks are free. It
// deletes closed sessions, whoever closed them, once it has seen them closed for
// longer than any write of theirs can be late. It watches each session for itself,
// which takes up to five times the longer of its lease and this client's. It returns
// how many records it has deleted. Sessions that show life are left alone.
//
// It reads the records of all sessions, and is for now and then: a client deletes
// by itself what it has closed, if it lives for so long. The error is that of the
// store, or matches the context's; swept still counts what was deleted before it.
func Sweep(ctx context.Context, client *tenure.Client) (swept int, err error) {
	var ids []string
	for st, err := range client.Sessions(ctx) {
		if err != nil {
			return 0, err
		}
		ids = append(ids, st.ID)
	}
	gone, errs := make([]bool, len(ids)), make([]error, len(ids))
	engine.AtOnce(sweepAtOnce, ids, func(i int, id string) {
		if ctx.Err() != nil {
			return
		}
		if gone[i], errs[i] = client.Engine().ReapSession(id).Wait(ctx); errs[i] != nil {
			errs[i] = wrap("sweep", "session "+id, errs[i])
		}
	})
	for i, deleted := range gone {
		if deleted {
			swept++
		}
		err = cmp.Or(err, errs[i])
	}
	if err == nil && ctx.Err() != nil {
		err = wrap("sweep", "sessions", engine.Done(ctx))
	}
	return swept, err
}

// SweepOptions say which locks [SweepReleased] deletes.
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

// SweptLocks are what [SweepReleased] has found.
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
// through the locks whose names begin with prefix, and their history; it may be slow. The
// time of a release is by the wall clock of the last holder, and is compared with the clock
// of this machine. A wrong clock has a lock deleted early or late, which harms only
// users that need its token or its history. A lock that is held, reserved, under a
// session, or has data, is left alone.
//
// This client holds a lock that has a history while it deletes that history. So a
// process that takes the lock meanwhile does not lose its tenures. The error is
// that of the store, or matches the context's; the result still counts what was
// deleted before it.
func SweepReleased(
	ctx context.Context, client *tenure.Client, prefix string, options *SweepOptions,
) (SweptLocks, error) {
	var o SweepOptions
	if options != nil {
		o = *options
	}
	s := releasedSweep{operator: operatorOf(client), SweepOptions: o, past: map[string][]driver.Record{}}
	keeps := s.Store.Keeper != nil && s.Store.Keeper.KeepsTokens()
	err := s.Usable()
	switch {
	case o.ReleasedFor < minReleasedFor:
		err = fmt.Errorf("released for %v must be at least %v", o.ReleasedFor, minReleasedFor)
	case !keeps && !o.RestartTokens && !o.DryRun:
		err = fmt.Errorf("this store does not keep the tokens of deleted locks: they begin at 1 again, " +
			"and fences refuse them, so RestartTokens must say that this may be")
	}
	if err == nil {
		err = s.run(ctx, prefix)
	}
	return s.swept, wrap("sweep", prefix, err)
}

// releasedSweep is one [SweepReleased] under way.
type releasedSweep struct {
	SweepOptions
	operator
	locks []driver.Record            // to be deleted
	past  map[string][]driver.Record // the history of those, by name, the oldest first
	swept SweptLocks
}

func (s *releasedSweep) run(ctx context.Context, prefix string) error {
	err := eachPage(ctx, s.bounded(s.Store.List), prefix, func(page driver.Page) error {
		for _, rec := range page.Records {
			switch {
			case strings.HasPrefix(rec.Key, driver.OwnPrefix), rec.State != driver.Released, !protocol.Readable(rec),
				rec.Until.IsZero(), time.Since(rec.Until.Round(0)) < max(s.ReleasedFor, lingerLeases*rec.Lease),
				rec.Token >= driver.MaxToken:
			case len(rec.Data) > 0:
				s.swept.WithData++
			default:
				s.locks, s.past[rec.Key] = append(s.locks, rec), nil
			}
		}
		return nil
	})
	if s.DryRun {
		s.swept.Locks = len(s.locks)
	}
	if err != nil || s.DryRun || len(s.locks) == 0 {
		return err
	}
	err = eachPage(ctx, s.bounded(s.Store.List), protocol.HistoryPrefix+prefix, func(page driver.Page) error {
		for _, rec := range page.Records {
			name, _ := protocol.HistoryOf(rec.Key)
			if past, swept := s.past[name]; swept && rec.State == driver.Past {
				s.past[name] = append(past, rec)
			}
		}
		return nil
	})
	for i := 0; i < len(s.locks) && err == nil; i++ {
		err = s.remove(ctx, s.locks[i])
	}
	return err
}

// remove deletes a lock and its history, if it stands as it was seen. One that somebody
// else has written meanwhile it leaves alone.
func (s *releasedSweep) remove(ctx context.Context, rec driver.Record) error {
	history, err := s.DeleteReleased(ctx, rec, s.past[rec.Key])
	s.swept.History += history
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
