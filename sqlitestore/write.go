// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tenurelock/tenure/driver"
)

// maxBatch is the highest number of writes in one transaction. It bounds how
// long the first of them waits for the others, and how long other processes are
// locked out.
const maxBatch = 128

// write is one Claim, Swap or Delete on its way to the file.
type write struct {
	ctx context.Context
	// durable asks that it outlive a power loss from the moment it is answered.
	durable bool
	// apply makes the write within a transaction. It returns an error of the
	// engine; results of the protocol, such as a conflict, go to answer.
	apply func(*conn) error
	// answer is nil if apply wrote something.
	answer error
	// wake reports whether watchers of key must be notified.
	wake bool
	key  string
	done chan error // has room for one, so that the writer never waits
}

// submit hands a write to the writer and waits for its outcome.
func (s *Store) submit(ctx context.Context, w *write) error {
	if err := s.ready(ctx); err != nil {
		return driver.NotApplied(err)
	}
	w.ctx, w.done = ctx, make(chan error, 1)
	select {
	case s.writes <- w:
	case <-ctx.Done():
		return driver.NotApplied(ctx.Err())
	case <-s.closing:
		return driver.NotApplied(driver.ErrClosed)
	}
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-w.done: // both: the outcome is worth more
		return err
	default:
		return fmt.Errorf("sqlite file %q: write under way, outcome unknown: %w", s.file, ctx.Err())
	}
}

// runWriter makes all writes of the store on one connection until Close.
//
// Writes that wait while a transaction is being synced to the disk share the
// next one: a thousand heartbeats of a process are a few syncs. No write
// waits for others to join, and none gets SQLITE_BUSY because of another.
func (s *Store) runWriter(c *conn) {
	defer s.running.Done()
	for {
		select {
		case w := <-s.writes:
			s.commit(c, s.gather(w))
		case <-s.closing:
			return
		}
	}
}

// gather returns first and the writes that wait now. It answers and drops
// writes whose caller has given up: they are never made.
func (s *Store) gather(waiting ...*write) []*write {
	var batch []*write
	for {
		for _, w := range waiting {
			if err := w.ctx.Err(); err != nil {
				w.done <- driver.NotApplied(err)
			} else {
				batch = append(batch, w)
			}
		}
		if len(batch) == maxBatch {
			return batch
		}
		select {
		case w := <-s.writes:
			waiting = []*write{w}
		default:
			return batch
		}
	}
}

// How long a batch waits for the writer of another process: busyTries pauses of about half
// a millisecond at first and 4 ms at last, 66 ms in all, and never more than 0.1 s. The
// other writer takes as long as a sync of the disk. If each of twenty processes that write
// at once backed off as after a failure, the file would be idle for most of the time, and
// the unluckiest would wait for a second.
const (
	busyTries    = 25
	busyPause    = time.Millisecond / 2
	maxBusyPause = 4 * time.Millisecond
)

// pause waits until another process may have committed. It returns false when the store
// is closed.
func (s *Store) pause(try int) bool {
	d := min(busyPause<<(try/4), maxBusyPause)
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.closing:
		return false
	}
}

// commit makes the writes of batch in one transaction and answers them.
//
// Until COMMIT an error means that nothing was written and never will be: only
// this goroutine uses the connection, and it commits only what began after the
// last successful BEGIN IMMEDIATE. That holds even if the rollback fails; then
// BEGIN fails, too, and the next rollback runs.
func (s *Store) commit(c *conn, batch []*write) {
	if len(batch) == 0 {
		return
	}
	err := s.begin(c, batch)
	for try := 0; locked(err) && try < busyTries && s.yield(try); try++ {
		// Writes that have come meanwhile join it.
		if batch = s.gather(batch...); len(batch) == 0 {
			return
		}
		err = s.begin(c, batch)
	}
	if err != nil {
		_ = c.run(sqlRollback)
		fail(batch, driver.NotApplied(err))
		return
	}
	for _, w := range batch {
		w.answer, w.wake = nil, false
		if err := w.apply(c); err != nil {
			_ = c.run(sqlRollback)
			makeRoom(c, err)
			if len(batch) == 1 {
				w.done <- driver.NotApplied(fault(s.file, err))
				return
			}
			// One write must not make others of its batch fail. Nothing has
			// been applied, so each is made by itself.
			for _, w := range batch {
				s.commit(c, []*write{w})
			}
			return
		}
	}
	if _, err := c.exec(sqlCommit); err != nil {
		_ = c.run(sqlRollback) // fails if the engine has rolled back by itself
		makeRoom(c, err)
		s.failCommit(batch, err)
		return
	}
	if err := s.check(); errors.Is(err, driver.ErrReplaced) {
		fail(batch, err) // it is written where no other process finds it: no lock is granted there
		return
	}
	// Other processes are notified before the caller is answered: it may end the process next.
	s.notify(batch)
	for _, w := range batch {
		w.done <- w.answer
	}
}

// makeRoom moves the log into the file after a write that found no room: the log may be what
// has filled the disk, and SQLite moves it only after a commit. The next try of the write has
// the room. If others use the log just now, or the file cannot grow, nothing changes.
func makeRoom(c *conn, err error) {
	if is(err, sqlite3.SQLITE_FULL) {
		_ = c.run("PRAGMA wal_checkpoint(TRUNCATE)") // the next write reports its error
	}
}

// begin starts the transaction, with the durability that the batch needs.
func (s *Store) begin(c *conn, batch []*write) error {
	if err := s.check(); err != nil {
		return err
	}
	mode := syncNormal
	for _, w := range batch {
		if w.durable {
			mode = syncFull
		}
	}
	if mode != s.sync {
		if err := c.run(mode); err != nil {
			return fault(s.file, err)
		}
		s.sync = mode
	}
	_, err := c.exec(sqlBegin)
	return fault(s.file, err)
}

// How a commit reaches the disk. In write-ahead logging no commit leaves the
// file broken, whatever happens; the modes differ in what a power loss, or a
// crash of the operating system, may undo. A crash of a process undoes
// nothing in either.
//
// FULL syncs the log with each commit: confirmed writes stay. It is used for
// writes that change the token or the data: a token that went back would let a
// write of a former holder pass the fence, and data are checkpoints that a
// holder relies on.
//
// NORMAL syncs at a checkpoint, so that the last commits may be lost, in order:
// never one from the middle. It is used for heartbeats, releases, reservations,
// requests, closings and deletions. A power loss ends all holders and acquirers
// of the file, since they are on the same host; when they start again they see an
// older heartbeat, or a lock still held, watch it for its lease, and take over
// under a higher token. A reservation that is lost leaves such a lock, and a
// closing such a session. A request that is lost asked a holder to stop that the
// power loss has stopped; the caller may ask again. A record whose deletion is
// lost merely comes back.
//
// The history of a lock is claimed, and so synced: an audit that forgets is
// none.
const (
	syncFull   = "PRAGMA synchronous = FULL"
	syncNormal = "PRAGMA synchronous = NORMAL"
)

// failCommit answers a batch whose COMMIT failed.
//
// After SQLITE_BUSY the transaction was open still, and has been rolled back.
// After SQLITE_FULL the engine could not write out all frames of the
// transaction, whose last frame commits it. Any other error may come after
// that frame was written, from the sync or later: a recovery may find it and
// count it, unless another write has gone over it by then.
func (s *Store) failCommit(batch []*write, err error) {
	certain := locked(err) || is(err, sqlite3.SQLITE_FULL)
	err = fault(s.file, err)
	for _, w := range batch {
		if certain || w.answer != nil {
			w.done <- driver.NotApplied(err)
		} else {
			w.done <- fmt.Errorf("%w (outcome unknown)", err)
		}
	}
}

func fail(batch []*write, err error) {
	for _, w := range batch {
		w.done <- err
	}
}

// unreadable returns the answer to a write that met a record which cannot be
// decoded, and nil for any other err. Trying again does not help.
func unreadable(err error) error {
	if errors.Is(err, driver.ErrUnreadable) {
		return driver.NotApplied(driver.Permanent(err))
	}
	return nil
}
