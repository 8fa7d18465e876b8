// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// TestGuardInterleavings runs a leader that is paused at any place, and its
// successor, in thousands of random orders of their steps: with the guard no
// write is made under a token that is not the lock's. Without it, some are: else
// the test would show nothing.
func TestGuardInterleavings(t *testing.T) {
	t.Parallel()
	const workers = 2
	for guarded, orders := range map[bool]int{true: interleavings, false: interleavings / 10} {
		if testing.Short() {
			orders /= 5
		}
		t.Run(fmt.Sprintf("guard=%t", guarded), func(t *testing.T) {
			t.Parallel()
			var (
				mu    sync.Mutex
				total tally
				wg    sync.WaitGroup
			)
			for seed := range uint64(workers) {
				w := newWorld(t, guarded, seed)
				wg.Go(func() {
					for range orders / workers {
						if err := w.order(t); err != nil {
							t.Error(err)
							return
						}
					}
					stale, err := w.stale(t)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					total.stale += stale
					total.written += w.written
					total.refused += w.refused
					total.busy += w.busy
				})
			}
			wg.Wait()
			t.Logf("%+v", total)
			switch {
			case guarded && total.stale > 0:
				t.Errorf("%d writes of a former leader were accepted", total.stale)
			case guarded && total.refused == 0:
				t.Error("no write was refused")
			case !guarded && total.stale == 0:
				t.Error("no stale write without the guard: the orders are too tame")
			case total.written < orders:
				t.Errorf("%d writes in %d orders: the successor's at least must be made", total.written, orders)
			}
		})
	}
}

// tally counts what came of the transactions.
type tally struct{ written, refused, busy, stale int }

// world is a database with one lock, the program's ledger, and dice.
type world struct {
	tally
	db      *sql.DB
	store   *Store
	guarded bool
	random  *rand.Rand
	rec     driver.Record
}

func newWorld(t *testing.T, guard bool, seed uint64) *world {
	t.Helper()
	db, s, rec := guarded(t)
	s.forceSync = syncNormal                  // it is not about power
	s.yield = func(int) bool { return false } // what it would wait for is in this goroutine
	return &world{db: db, store: s, guarded: guard, random: rand.New(rand.NewPCG(seed, 9)), rec: rec}
}

// actor makes one transaction under a token, step by step.
type actor struct {
	token uint64
	reads bool // before it asks the guard, and so from a snapshot
	step  int
	tx    *sql.Tx
	tries int
}

// order runs the leader and its successor to their ends in a random order.
func (w *world) order(t *testing.T) error {
	former := w.rec
	leader := &actor{token: former.Token, reads: w.random.IntN(2) == 0}
	successor := &actor{token: former.Token + 1, reads: w.random.IntN(2) == 0}
	taken := false
	// Some leaders are well into their transaction, some have not begun.
	for pause := w.random.IntN(6); pause > 0 && leader.step < steps; pause-- {
		if err := w.advance(t, leader); err != nil {
			return err
		}
	}
	for leader.step < steps || successor.step < steps {
		switch {
		case w.random.IntN(2) == 0 && leader.step < steps:
			if err := w.advance(t, leader); err != nil {
				return err
			}
		case !taken:
			now, err := w.store.Swap(t.Context(), former, takeover(former))
			if errors.Is(err, driver.ErrNotApplied) {
				continue // the leader is writing
			}
			if err != nil {
				return err
			}
			w.rec, taken = now, true
		case successor.step < steps:
			if err := w.advance(t, successor); err != nil {
				return err
			}
		}
	}
	return nil
}

// steps of an actor: begin, perhaps read, ask the guard, write, commit.
const steps = 5

// advance makes one step. Whoever meets another writer rolls back and begins
// again, some times; whoever is refused has come to its end.
func (w *world) advance(t *testing.T, a *actor) (err error) {
	ctx := t.Context()
	switch a.step {
	case 0:
		a.tx, err = w.db.BeginTx(ctx, nil)
	case 1:
		if a.reads {
			var n int
			err = a.tx.QueryRowContext(ctx, "SELECT count(*) FROM ledger WHERE entry < 0").Scan(&n)
		}
	case 2:
		if w.guarded {
			err = Guard(ctx, a.tx, w.rec.Key, a.token)
		}
	case 3:
		_, err = a.tx.ExecContext(ctx, "INSERT INTO ledger (writer, holder) SELECT ?, token FROM tenure_records WHERE key = ?", a.token, w.rec.Key)
	case 4:
		if err = a.tx.Commit(); err == nil {
			w.written++
		}
	}
	a.step++
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrStale):
		w.refused++
		a.step = steps
	case locked(err):
		w.busy++
		a.step = 0
		if a.tries++; a.tries > 1000 {
			return fmt.Errorf("token %d never gets through: %w", a.token, err)
		}
	default:
		return err
	}
	if a.tx != nil {
		_ = a.tx.Rollback()
	}
	return nil
}

// stale counts the entries that were made under another token than the lock's.
func (w *world) stale(t *testing.T) (n int, err error) {
	err = w.db.QueryRowContext(t.Context(), "SELECT count(*) FROM ledger WHERE writer <> holder").Scan(&n)
	return n, err
}
