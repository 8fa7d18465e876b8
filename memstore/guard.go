// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package memstore

import (
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Guard makes the set of records such that the engine may lose writes, as Redis and PostgreSQL with an
// asynchronous standby do: see [driver.Guarded]. The records stand in the first life of the
// engine, which is open. waits is at least the longest lease. Call it before the first client is
// made.
func (s *Store) Guard(waits time.Duration) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	life := rand.Text()
	s.db.guard = guard{waits: waits, life: life, open: life, sessions: map[string]string{}}
}

// Lose sets the records of all handles back to those of earlier, which is a [Store.Copy] of
// them, and begins a new life of the engine. Watches stay, and are not hinted. It panics
// unless the store is guarded: no other store may lose writes.
func (s *Store) Lose(earlier *Store) {
	to := earlier.db.copy()
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if s.db.guard.waits == 0 {
		panic("memstore: Lose without Guard") //nolint:forbidigo // a programmer's error
	}
	s.db.records, s.db.sorted, s.db.past = to.records, nil, map[string][]state{}
	s.db.guard.open, s.db.guard.base, s.db.guard.sessions = to.guard.open, to.guard.base, to.guard.sessions
	s.db.guard.life = rand.Text()
}

// Waits returns what was given to [Store.Guard], 0 without.
func (s *Store) Waits() time.Duration {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	return s.db.guard.waits
}

// guard is what a set of records knows of the lives of its engine.
type guard struct {
	waits    time.Duration     // 0: not guarded
	life     string            // the present one
	open     string            // the life that is open
	base     uint64            // of the tokens of the open life
	sessions map[string]string // by key: the life in which a session was opened
}

// show returns what is shown of the state of a key.
func (g *guard) show(key string, at state) state {
	closed := g.waits > 0 && g.life != g.open && !strings.HasPrefix(key, driver.OwnPrefix)
	if closed && (!at.found || at.rec.State == driver.Released || at.rec.State == driver.Reserved) {
		return state{driver.InClosedLife(at.rec, key, g.life, g.waits), true}
	}
	if at.found {
		at.rec.Life = g.life
	}
	return at
}

// guards opens the life if next allows it, and reports whether the write is refused because of
// the engine's lives, and what is shown then. at is the state of the key, and bound the life to which
// the write is bound, empty for none. A write without a guard would raise its token if raises is true,
// and would match it if matches is.
func (db *database) guards(next driver.Record, bound string, at state, raises, matches bool) (shown state, refused bool) {
	g := &db.guard
	if g.waits == 0 {
		return state{}, false
	}
	if next.Opens.Life == g.life && g.open != g.life {
		g.open, g.base = g.life, next.Opens.NextBase(g.base)
	}
	switch {
	case next.State == driver.Alive && at.rec.State == driver.Alive && g.sessions[next.Key] != g.life:
		at.rec.State, at.rec.Life, at.rec.End, at.rec.Requests = driver.Closed, g.life, driver.EndExpired, nil
		return at, true
	case bound != "" && bound != g.life, raises && g.open != g.life:
		return g.show(next.Key, at), true
	case raises && matches && at.rec.Token < g.base:
		raised := driver.RaisedAtOpening(at.rec, next, g.life, g.base)
		db.put(raised)
		return state{raised, true}, true
	}
	return state{}, false
}

// enter notes in which life a session was opened.
func (g *guard) enter(claimed driver.Record) {
	if g.waits > 0 && claimed.State == driver.Alive {
		g.sessions[claimed.Key] = g.life
	}
}

// check returns an error if a write of next may not be carried out whatever the lives are.
func (g *guard) check(next driver.Record) error {
	if g.waits > 0 && next.Lease > g.waits {
		return driver.Unsupported(fmt.Errorf("write of %q with a lease of %v: the longest is %v, for which this store "+
			"was made to wait", next.Key, next.Lease, g.waits))
	}
	return nil
}

// shown says whether prev is what the store has shown for the state of a lock in the closed life,
// which is open now.
func (g *guard) shown(prev driver.Record, at state) bool {
	free := !at.found || at.rec.State == driver.Released || at.rec.State == driver.Reserved
	return g.waits > 0 && prev.Version == g.life && prev.Token == at.rec.Token && free
}

var _ driver.Guarded = (*Store)(nil)
