// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/tenurelock/tenure/driver"
)

const (
	samples = 20
	// tryPatience bounds how long a store that is busy is asked again.
	tryPatience = 5 * time.Second
	busyPause   = 20 * time.Millisecond
	// hintPatience bounds how long a hint is waited for.
	hintPatience = 2 * time.Second
)

// try takes, renews, releases and deletes a record of its own.
func (p *Patient) try(ctx context.Context, store driver.Store) error {
	ctx, cancel := context.WithTimeout(ctx, 2*tryPatience)
	defer cancel()
	version := rand.Text()
	rec := driver.Record{
		Key: driver.OwnPrefix + "doctor/" + rand.Text(), Version: version, Beat: version, Owner: "tenure doctor",
		State: driver.Held, Lease: p.Options.LeaseDuration, Since: time.Now(),
	}
	begun := time.Now()
	for {
		now, _, err := store.Claim(ctx, rec)
		if err == nil {
			rec = now
			break
		}
		if errors.Is(err, driver.ErrNotApplied) && !errors.Is(err, driver.ErrPermanent) &&
			time.Since(begun) < tryPatience && ctx.Err() == nil {
			<-time.After(busyPause) // a store may say so at once
			continue
		}
		var conflict *driver.ConflictError
		if errors.As(err, &conflict) && time.Since(begun) < tryPatience {
			if !conflict.Absent { // its token was raised, as by the first grant after a failover
				continue
			}
			p.Tell(driver.Warn("store", "grants no lock for now: its server may have lost writes").
				Advise("wait: a process that waits for a lock ends this"))
			return nil
		}
		p.Tell(driver.Bad("store", "cannot be written: %v", err).Advise("fix that first"))
		return err
	}
	defer func() {
		if left := store.Delete(context.WithoutCancel(ctx), rec); left != nil {
			p.Tell(driver.Warn("store", "the record %q could not be deleted: %v", rec.Key, left).Advise("it does no harm"))
		}
	}()
	var writes, reads []time.Duration
	var refused error
	for range samples {
		next := rec
		next.Version = rand.Text()
		next.Beat = next.Version
		sent := time.Now()
		now, err := store.Swap(ctx, rec, next)
		if err != nil {
			if errors.Is(err, driver.ErrNotApplied) && ctx.Err() == nil {
				refused = err
				continue // another process was writing
			}
			p.Tell(driver.Bad("store", "a record cannot be renewed: %v", err).Advise("a heartbeat is such a write"))
			return err
		}
		writes = append(writes, time.Since(sent))
		rec = now
		sent = time.Now()
		seen, err := store.Get(ctx, rec.Key, driver.Strong)
		if err != nil || seen.Version != rec.Version {
			p.Tell(driver.Bad("store", "a record was written, but reading it back gave version %q, %v", seen.Version, err).
				Advise("do not use this store"))
			return errors.Join(errors.New("not read back"), err)
		}
		reads = append(reads, time.Since(sent))
	}
	if len(writes) == 0 {
		p.Tell(driver.Bad("store", "no heartbeat succeeded: %v", refused).Advise("fix that first"))
		return nil
	}
	p.Tell(driver.OK("store", "can be read and written"))
	p.Tell(judgeWrites(measure(writes), p.Options))
	p.Tell(driver.OK("latency", "reads take %v", measure(reads)))
	p.looks(ctx, store, rec.Key)
	rec = p.hint(ctx, store, rec)
	return nil
}

// identity says which store this is.
func (p *Patient) identity(ctx context.Context, store driver.Store) {
	ctx, cancel := context.WithTimeout(ctx, tryPatience)
	defer cancel()
	id, err := Identity(ctx, store)
	shown := "the store"
	if p.Store != nil {
		shown = p.Store()
	}
	switch {
	case err != nil:
		p.Tell(driver.Warn("identity", "the identity of %s cannot be read: %v", shown, err).
			Advise("hosts cannot check whether they use the same store"))
	case id == NoIdentity:
		p.Tell(driver.OK("identity", "%s has %s: the first command that takes a lock creates it", shown, id))
	default:
		p.Tell(driver.OK("identity", "%s of %s: hosts that exclude each other show the same identity", id, shown))
	}
}

// looks measures the reads of waiters, which may be eventually consistent.
func (p *Patient) looks(ctx context.Context, store driver.Store, key string) {
	var looks []time.Duration
	for range samples {
		sent := time.Now()
		if _, err := store.Get(ctx, key, driver.Eventual); err != nil && !errors.Is(err, driver.ErrNotFound) {
			p.Tell(driver.Warn("latency", "an eventually consistent read failed: %v", err).
				Advise("waiters poll with such reads: try again"))
			return
		}
		looks = append(looks, time.Since(sent))
	}
	p.Tell(driver.OK("latency", "a waiter's reads take %v; it polls every %v", measure(looks),
		p.Options.RefreshPeriod))
}

// hint releases the record, and checks whether a waiter is notified. It
// returns the record as it then is.
func (p *Patient) hint(ctx context.Context, store driver.Store, rec driver.Record) driver.Record {
	other, err := p.open(ctx)
	if err != nil {
		p.Tell(driver.Warn("watch", "a second handle cannot be opened: %v", err))
		return rec
	}
	defer func() { _ = other.Close() }()
	watcher, ok := other.(driver.Watcher)
	if !ok {
		p.Tell(driver.OK("watch", "this store has no watch: a waiter sees a release within %v", p.Options.RefreshPeriod))
		return rec
	}
	hinted := make(chan struct{}, 1)
	stop, err := watcher.Watch(ctx, rec.Key, func() {
		select {
		case hinted <- struct{}{}:
		default:
		}
	})
	if errors.Is(err, errors.ErrUnsupported) {
		p.Tell(driver.OK("watch", "this store has no watch: a waiter sees a release within %v", p.Options.RefreshPeriod))
		return rec
	}
	if err != nil {
		p.Tell(driver.Warn("watch", "the store cannot watch for a release: %v", err).Advise("waiters poll instead"))
		return rec
	}
	defer stop()
	next := rec
	next.Version, next.State, next.End, next.Until = rand.Text(), driver.Released, driver.EndReleased, time.Now()
	sent := time.Now()
	now, err := store.Swap(ctx, rec, next)
	if err != nil {
		p.Tell(driver.Warn("watch", "the trial release failed: %v", err).Advise("try again"))
		return rec
	}
	select {
	case <-hinted:
		p.Tell(driver.OK("watch", "a waiter is notified of a release after %v", shown(time.Since(sent))))
	case <-time.After(hintPatience):
		p.Tell(driver.Warn("watch", "a waiter was not notified of a release within %v", hintPatience).
			Advise("polls find it, every %v; check whether the -notify file beside the database can be "+
				"written", p.Options.RefreshPeriod))
	}
	return now
}
