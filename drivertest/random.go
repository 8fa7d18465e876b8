// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

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

// walker is one key of a random walk and what was ever written to it.
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
	granted := !before.found || rec.State == driver.Held && (before.rec.State != driver.Held || rec.Owner != before.rec.Owner)
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

// randomOfSession returns a write to a session's record, or to what was one.
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
