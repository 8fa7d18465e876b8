// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"

	"github.com/tenurelock/tenure/fence"
)

// SQLite in Go under the race detector takes about 1 ms for a transaction, so
// that most worlds are of a leader and its successor, and some have a third.
func actorsOf(seed uint64) int {
	if seed%5 == 0 {
		return 3
	}
	return 2
}

// world is one schedule of actors that believe that they hold a lock. An actor is
// a coroutine that runs until it pauses, with its own connection, so that each
// world is a function of its seed. Nothing waits: an actor that finds the
// database busy pauses and begins its transaction again.
type world struct {
	ctx      context.Context
	resource string
	lock     uint64 // the token of its holder
	writes   int    // of each holder
	refused  int
	busied   int
}

// newWorld returns a world in which the lock has been held often before, so
// that a few resources serve all worlds, and the table stays small.
func newWorld(ctx context.Context, seed uint64) *world {
	return &world{ctx: ctx, resource: fmt.Sprint("ledger ", seed%20), lock: seed * tokensEach, writes: 1}
}

type actor struct {
	w     *world
	conn  *sql.Conn
	token uint64
	pause func()
}

// write is one transaction of an actor, or several.
type write func(*actor) error

// run is the life of a holder: take the token, check, and write, once or more.
func (a *actor) run(write write) {
	a.pause()
	a.w.lock++
	a.token = a.w.lock
	a.pause()
	if a.w.lock != a.token {
		return // its lease says so
	}
	for left := a.w.writes; left > 0; {
		a.pause()
		switch err := write(a); {
		case err == nil:
			left--
		case busy(err):
			a.w.busied++
		case errors.Is(err, fence.ErrStale):
			a.w.refused++
			return
		default:
			panic(err)
		}
	}
}

func (w *world) schedule(seed uint64, conns []*sql.Conn, write write) {
	type step = func() (struct{}, bool)
	var able []step
	for _, conn := range conns {
		next, stop := iter.Pull(func(yield func(struct{}) bool) {
			a := &actor{w: w, conn: conn, pause: func() { yield(struct{}{}) }}
			a.run(write)
		})
		defer stop()
		able = append(able, next)
	}
	random := rand.New(rand.NewPCG(seed, 0))
	for len(able) > 0 {
		i := random.IntN(len(able))
		if _, more := able[i](); !more {
			able = append(able[:i], able[i+1:]...)
		}
	}
}

// unguarded writes in a transaction, relying only on the lease.
func unguarded(a *actor) error {
	return transaction(a, func(tx *sql.Tx) error { return nil })
}

func transaction(a *actor, check func(*sql.Tx) error) error {
	tx, err := a.conn.BeginTx(a.w.ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	a.pause()
	if err := check(tx); err != nil {
		return err
	}
	a.pause()
	if err := note(a.w.ctx, tx, a.w.resource, a.token); err != nil {
		return err
	}
	a.pause()
	return tx.Commit()
}

// guarded has the guard in the transaction.
func guarded(guard *fence.SQL) write {
	return func(a *actor) error {
		return transaction(a, func(tx *sql.Tx) error { return guard.Guard(a.w.ctx, tx, a.w.resource, a.token) })
	}
}

// late has read something before the guard, so that an engine with snapshots has an old one.
func late(guard *fence.SQL) write {
	return func(a *actor) error {
		return transaction(a, func(tx *sql.Tx) error {
			var writes int
			if err := tx.QueryRowContext(a.w.ctx, "SELECT count(*) FROM write WHERE seq < 0").Scan(&writes); err != nil {
				return err
			}
			a.pause()
			return guard.Guard(a.w.ctx, tx, a.w.resource, a.token)
		})
	}
}

// apart asks the guard in its own transaction, before the write's.
func apart(guard *fence.SQL) write {
	return func(a *actor) error {
		tx, err := a.conn.BeginTx(a.w.ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := guard.Guard(a.w.ctx, tx, a.w.resource, a.token); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		return unguarded(a)
	}
}

func TestInterleavings(t *testing.T) {
	interleave(t, interleavings{
		unsound: 500, sound: 10_000, writes: 1,
		open: func(t *testing.T) *sql.DB { return open(t, "0") },
	})
}

// interleavings are the schedules of a database.
type interleavings struct {
	unsound, sound uint64 // how many without a guard, and with one
	writes         int    // of each holder
	options        *fence.SQLOptions
	open           func(*testing.T) *sql.DB
}

func interleave(t *testing.T, i interleavings) {
	for _, c := range []struct {
		name          string
		interleavings uint64 // from the same seeds
		sound         bool
		way           func(*fence.SQL) write
	}{
		{"no guard", i.unsound, false, func(*fence.SQL) write { return unguarded }},
		{"guard in another transaction", i.unsound, false, apart},
		{"guard in the transaction", i.sound, true, guarded},
		{"guard after a read", i.sound / 4, true, late},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := i.open(t)
			way := c.way(newSQL(t, db, i.options))
			ctx := context.WithoutCancel(t.Context()) // a context that can end costs a goroutine for each statement
			conns := make([]*sql.Conn, actorsOf(0))
			for i := range conns {
				var err error
				if conns[i], err = db.Conn(ctx); err != nil {
					t.Fatal(err)
				}
				defer conns[i].Close()
			}
			refused, busied := 0, 0
			for seed := range c.interleavings {
				w := newWorld(ctx, seed)
				w.writes = i.writes
				w.schedule(seed, conns[:actorsOf(seed)], way)
				refused += w.refused
				busied += w.busied
			}
			writes, stale := tally(t, db)
			t.Logf("%d schedules: %d with a stale write; %d writes were committed, %d refused, %d found the database busy",
				c.interleavings, stale, writes, refused, busied)
			judge(t, c.sound, stale, refused)
			if busied == 0 && c.sound { // on PostgreSQL writes without a guard block no other
				t.Error("no two transactions met")
			}
		})
	}
}

func judge(t *testing.T, sound bool, stale, refused int) {
	t.Helper()
	switch {
	case sound && stale > 0:
		t.Errorf("a stale write was committed in %d schedules", stale)
	case sound && refused == 0:
		t.Error("nothing was refused: the schedules do not reach the guard")
	case !sound && stale == 0:
		t.Error("no stale write was committed: the schedules would not find a broken guard")
	}
}
