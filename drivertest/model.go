// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// model is what a store must do with one key.
type model struct {
	key   string
	rec   driver.Record
	found bool

	outlive bool   // tokens outlive a delete
	deleted uint64 // the highest of them
}

// op is a kind of write of the driver's interface.
type op string

const (
	opClaim  op = "claim"
	opSwap   op = "swap"
	opRaise  op = "raise"
	opDelete op = "delete"
)

// write is a write that may be sent more than once.
type write struct {
	op         op
	prev, next driver.Record
}

// apply changes the model as w changes a store, and reports whether its
// condition held.
func (m *model) apply(w write) bool {
	switch w.op {
	case opClaim:
		if m.found && m.rec.State != driver.Released {
			return false
		}
		m.rec, m.found = driver.Claimed(w.next, m.rec, m.found), true
		m.rec.Token = max(m.rec.Token, m.deleted+1)
	case opSwap, opRaise:
		if !m.found || m.rec.Version != w.prev.Version || m.rec.Token != w.prev.Token {
			return false
		}
		m.rec = w.next
	case opDelete:
		if m.found && (m.rec.Version != w.prev.Version || m.rec.Token != w.prev.Token) {
			return false
		}
		if m.outlive {
			m.deleted = max(m.deleted, m.rec.Token)
		}
		m.rec, m.found = driver.Record{}, false
	}
	return true
}

// send makes the write w to c and fails the test unless the store does what
// the model does.
func (e *env) send(t *testing.T, m *model, c *client, what string, w write) {
	t.Helper()
	var now, prev driver.Record
	var err error
	switch w.op {
	case opClaim:
		now, prev, err = c.Claim(t.Context(), w.next.Clone())
	case opSwap:
		now, err = c.Swap(t.Context(), w.prev.Clone(), w.next.Clone())
	case opRaise:
		now, err = c.Raise(t.Context(), w.prev.Clone(), w.next.Clone())
	case opDelete:
		err = c.Delete(t.Context(), w.prev.Clone())
	}
	m.outlive = e.h.TokensOutliveDelete
	before := *m
	ok := m.apply(w)
	if ok && w.op == opClaim && !before.found && now.Token == 1 && strings.HasPrefix(m.key, driver.OwnPrefix) {
		m.rec.Token = 1 // it is no lock: the token need not outlive its record
	}
	switch {
	case ok && err != nil:
		t.Errorf("%s: %v", what, err)
	case ok && w.op == opClaim:
		e.wantEqual(t, what+": record after it", now, m.rec)
		e.wantEqual(t, what+": record that it replaced", prev, before.rec)
	case ok && w.op != opDelete:
		e.wantEqual(t, what+": record after it", now, m.rec)
	case !ok && before.found:
		e.wantConflict(t, what, err, before.rec)
	case !ok:
		e.wantAbsentConflict(t, what, m.key, err)
	}
}

// wantModel fails the test unless every client sees what the model holds.
func (e *env) wantModel(t *testing.T, m *model) {
	t.Helper()
	if m.found {
		e.wantStored(t, m.rec)
	} else {
		e.wantAbsent(t, m.key)
	}
}

// step is a write that is made from the stored record.
type step struct {
	name string
	op   op
	next func(e *env, now driver.Record) driver.Record
}

// life is the writes of a lock's life in order.
var life = []step{
	{"claim", opClaim, claimOf},
	{"heartbeat", opSwap, (*env).beat},
	{"data", opSwap, dataOf},
	{"request", opSwap, (*env).asked},
	{"heartbeat after the request", opSwap, (*env).beat},
	{"release as asked", opSwap, (*env).answered},
	{"claim under a session", opClaim, claimUnder},
	{"takeover", opSwap, (*env).taken},
	{"takeover under a session", opSwap, takenUnder},
	{"heartbeat of the successor", opSwap, (*env).beat},
	{"release", opSwap, (*env).released},
	{"takeover of the released", opSwap, (*env).taken},
	{"second request", opSwap, (*env).asked},
	{"hand-over", opSwap, handOver},
	{"heartbeat of the reservation", opSwap, (*env).beat},
	{"takeover of the reserved", opSwap, (*env).taken},
	{"delete", opDelete, (*env).beat},
	{"claim after the delete", opClaim, claimOf},
}

func claimOf(e *env, now driver.Record) driver.Record { return e.held(now.Key) }

func claimUnder(e *env, now driver.Record) driver.Record {
	if e.h.NoSessions {
		return e.held(now.Key)
	}
	return e.under(now.Key, e.sessionID())
}

func takenUnder(e *env, now driver.Record) driver.Record {
	next := e.taken(now)
	next.Session = claimUnder(e, now).Session
	return next
}

func handOver(e *env, now driver.Record) driver.Record { return e.reserved(now, "successor") }

func raisedOf(e *env, now driver.Record) driver.Record { return e.raised(now, 1000) }

func dataOf(e *env, now driver.Record) driver.Record {
	return e.withData(now, []byte(e.fresh("data")))
}

// testLate sends each write of a lock's life a second time after each later
// one. A late claim may find the key free, and then opens a term under a token
// of its own; everything else must change nothing.
func testLate(t *testing.T, e *env) { e.everyLate(t, life, e.key) }

func (e *env) everyLate(t *testing.T, life []step, key func() string) {
	t.Helper()
	for late := range life {
		t.Run(life[late].name, func(t *testing.T) {
			for after := late; after < len(life); after++ {
				t.Run("after "+life[after].name, func(t *testing.T) { e.late(t, life, key(), late, after) })
			}
		})
	}
}

func (e *env) late(t *testing.T, life []step, key string, late, after int) {
	t.Helper()
	m := &model{key: key}
	var again write
	for i, step := range life[:after+1] {
		now := m.rec
		now.Key = m.key // an absent key has a record without one
		w := write{op: step.op, prev: now, next: step.next(e, now)}
		if i == late {
			again = w
		}
		e.send(t, m, e.clients[i%len(e.clients)], step.name, w)
	}
	what := fmt.Sprintf("late %s after %s", life[late].name, life[after].name)
	e.send(t, m, e.clients[(after+1)%len(e.clients)], what, again)
	e.wantModel(t, m)
}

// testRandom makes long random sequences of writes, one at a time, through
// several handles: new ones, from the current record and from former ones, and
// duplicates of former writes. The store must do what the model does.
func testRandom(t *testing.T, e *env) {
	for _, mode := range []struct {
		name    string
		deletes bool
	}{{"WithoutDelete", false}, {"WithDelete", true}} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%s/Seed%d", mode.name, seed), func(t *testing.T) {
				e.walk(t, rand.New(rand.NewPCG(seed, 0)), mode.deletes)
			})
		}
	}
}

// walker is one key of a random walk, with all its writes.
type walker struct {
	model
	seen  []driver.Record // records that were stored once
	sent  []write
	token uint64 // the highest that was granted
}

func (e *env) walk(t *testing.T, random *rand.Rand, deletes bool) {
	walkers := make([]*walker, 3)
	for i := range walkers {
		walkers[i] = &walker{model: model{key: e.key()}}
	}
	for i := range e.h.Ops / 8 {
		w := walkers[random.IntN(len(walkers))]
		c := e.clients[random.IntN(len(e.clients))]
		name, next := e.randomWrite(w, random, deletes)
		what := fmt.Sprintf("write %d (%s on %s)", i, name, brief(w.rec))
		before := w.model
		e.send(t, &w.model, c, what, next)
		if t.Failed() {
			e.wantModel(t, &w.model)
			t.Fatalf("the walk ends after %s", what)
		}
		w.sent = append(w.sent, next)
		if w.found && (!before.found || w.rec.Version != before.rec.Version || w.rec.Token != before.rec.Token) {
			w.seen = append(w.seen, w.rec)
			e.checkToken(t, w, before, deletes)
		}
	}
	for _, w := range walkers {
		e.wantModel(t, &w.model)
	}
}

// checkToken checks what the store holds now without asking the model, which
// could be as wrong as the store.
func (e *env) checkToken(t *testing.T, w *walker, before model, deletes bool) {
	t.Helper()
	if deletes {
		return
	}
	rec := e.get(t, e.clients[0], w.key)
	changed := before.rec.State != driver.Held || rec.Owner != before.rec.Owner
	granted := !before.found || rec.State == driver.Held && changed
	if granted && rec.Token != w.token+1 {
		t.Fatalf("a change of holder led from token %d to %d", w.token, rec.Token)
	}
	if !granted && rec.Token != w.token {
		t.Fatalf("without a change of holder the token went from %d to %d", w.token, rec.Token)
	}
	w.token = rec.Token
}

func (e *env) randomWrite(w *walker, random *rand.Rand, deletes bool) (string, write) {
	from, age := w.rec, "current"
	from.Key = w.key
	if len(w.seen) > 0 && random.IntN(4) == 0 {
		from, age = w.seen[random.IntN(len(w.seen))], "former"
	}
	swap := func(name string, next driver.Record) (string, write) {
		return name + " from the " + age + " record", write{op: opSwap, prev: from, next: next}
	}
	if from.State.OfSession() {
		return e.randomOfSession(w, random, from, age, deletes)
	}
	switch n := random.IntN(25); {
	case n < 5 && len(w.sent) > 0:
		return "a duplicate", w.sent[random.IntN(len(w.sent))]
	case deletes && n == 5:
		return "delete of the " + age + " record", write{op: opDelete, prev: from}
	case deletes && n == 6: // it stays until it is deleted
		return "claim with a past record", write{op: opClaim, next: e.past(w.key)}
	case deletes && n == 7 && !e.h.NoSessions: // as well
		return "opening of a session", write{op: opClaim, next: e.openedAt(w.key)}
	case n < 11 || from.Version == "":
		next := e.held(w.key)
		if random.IntN(4) == 0 && !e.h.NoSessions {
			next.Session = e.sessionID()
		}
		if random.IntN(2) == 0 {
			next.Data = []byte(e.fresh("data"))
		}
		return "claim", write{op: opClaim, next: next}
	case n < 13:
		return swap("heartbeat", e.beat(from))
	case n < 14:
		return swap("data", dataOf(e, from))
	case n < 17 && from.Owner != "": // a reservation for nobody cannot be released as it is
		return swap("release", e.released(from))
	case n < 18 && from.State == driver.Held:
		ending := e.beat(from)
		ending.End = driver.EndStalled
		return swap("end", ending)
	case n < 20 && from.State == driver.Held:
		return swap("request", e.asked(from))
	case n < 21 && from.State == driver.Held:
		return swap("release as asked", e.answered(from))
	case n < 23:
		return swap("reservation", e.reserved(from, []string{"successor", ""}[random.IntN(2)]))
	default:
		return swap("takeover", e.taken(from))
	}
}

// randomOfSession returns a write to the record of a session, present or past.
func (e *env) randomOfSession(w *walker, random *rand.Rand, from driver.Record, age string, deletes bool) (string, write) {
	swap := func(name string, next driver.Record) (string, write) {
		return name + " from the " + age + " session", write{op: opSwap, prev: from, next: next}
	}
	switch n := random.IntN(12); {
	case n < 3 && len(w.sent) > 0:
		return "a duplicate", w.sent[random.IntN(len(w.sent))]
	case n < 5 && deletes:
		return "delete of the " + age + " session", write{op: opDelete, prev: from}
	case n < 6:
		return "claim", write{op: opClaim, next: e.held(w.key)}
	case n < 7 || from.State == driver.Closed:
		return "opening of a session", write{op: opClaim, next: e.openedAt(w.key)}
	case n < 9:
		return swap("heartbeat", e.beat(from))
	case n < 10 && len(from.Requests) < driver.MaxRequests:
		return swap("request", e.confirmed(from))
	default:
		return swap("closing", e.closed(from))
	}
}
