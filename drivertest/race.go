// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// racers is how many goroutines race, spread over the handles.
const racers = 4 * handles

func testRace(t *testing.T, e *env) {
	// Of an absent key, and of a key that is free again.
	t.Run("Claim", func(t *testing.T) {
		for range max(e.h.Ops/(4*racers), 3) {
			key := e.key()
			for token := uint64(1); token <= 2; token++ {
				won := e.oneWins(t, func(c *client) (driver.Record, error) {
					now, _, err := c.Claim(t.Context(), e.held(key))
					return now, err
				})
				if won.Token != token {
					t.Fatalf("token %d, want %d", won.Token, token)
				}
				e.swap(t, e.clients[0], won, e.released(won))
			}
		}
	})

	// A deletion after the claim leaves it alone.
	t.Run("Delete", func(t *testing.T) {
		for round := range max(e.h.Ops/(4*racers), 3) {
			_, free := e.freed(t, e.clients[0])
			var won driver.Record
			var err error
			var wg sync.WaitGroup
			start := make(chan struct{})
			for i := range handles { // which of them runs first goes by their order, on an idle machine
				c, claims := e.clients[i], i == round%handles
				wg.Go(func() {
					<-start
					if claims {
						won, _, err = c.Claim(t.Context(), e.held(free.Key))
					} else if err := c.Delete(t.Context(), free); err != nil {
						_ = asConflict(t, "Delete beside a claim", free.Key, err)
					}
				})
			}
			close(start)
			wg.Wait()
			if err != nil {
				t.Fatalf("Claim beside deletions: %v", err)
			}
			e.wantStored(t, won)
		}
	})

	t.Run("Raise", func(t *testing.T) {
		if !e.h.Raises {
			t.Skip("the harness declares no raises")
		}
		for range max(e.h.Ops/(4*racers), 3) {
			rec := e.claim(t, e.clients[0], e.held(e.key()))
			e.oneWins(t, func(c *client) (driver.Record, error) { return c.Raise(t.Context(), rec, e.raised(rec, 1000)) })
		}
	})

	t.Run("Everything", e.raceEverything)
}

// oneWins has all racers try at once, and fails the test unless exactly one is
// granted and each other gets a conflict with the winner's record. It returns
// that record.
func (e *env) oneWins(t *testing.T, try func(c *client) (driver.Record, error)) driver.Record {
	t.Helper()
	var (
		records [racers]driver.Record
		errs    [racers]error
		start   = make(chan struct{})
		wg      sync.WaitGroup
	)
	for i := range racers {
		wg.Go(func() {
			<-start
			records[i], errs[i] = try(e.clients[i%len(e.clients)])
		})
	}
	close(start)
	wg.Wait()
	winner := -1
	for i, err := range errs {
		if err != nil {
			continue
		}
		if winner >= 0 {
			t.Fatalf("two won: %s and %s", brief(records[winner]), brief(records[i]))
		}
		winner = i
	}
	if winner < 0 {
		t.Fatalf("nobody won: %v", errors.Join(errs[:]...))
	}
	won := records[winner]
	for i, err := range errs {
		if i == winner {
			continue
		}
		if conflict := asConflict(t, "loser", won.Key, err); conflict != nil {
			e.wantEqual(t, "the loser's conflict", conflict.Current, won)
		}
	}
	e.wantStored(t, won)
	if t.Failed() {
		t.FailNow()
	}
	return won
}

// raceEverything has all racers make random calls on the same keys at once: on locks,
// sessions and records of history, from the last record that each saw and from former
// ones, with duplicates of former writes. Then it checks that the store was linearizable.
//
// That takes no search. Every write brings a version of its own, and names the record
// that it replaces, so that the writes of a key have one possible order. The model makes
// them in that order, and must come to the same records; and each call, also a read,
// must have been under way at its place in that order.
func (e *env) raceEverything(t *testing.T) {
	each := max(e.h.Ops/racers, 10)
	keys := []string{e.key(), e.key(), e.key(), e.key()}
	locks := keys[:2]
	for range each/8 + 1 {
		keys = append(keys, driver.OwnPrefix+"history/"+e.key())
		if !e.h.NoSessions {
			keys = append(keys, driver.SessionKey(e.sessionID()))
		}
	}
	all := make([]*racer, racers)
	var wg sync.WaitGroup
	for i := range all {
		r := &racer{
			e: e, c: e.clients[i%len(e.clients)],
			random: rand.New(rand.NewPCG(uint64(i), 5)), keys: map[string]*walker{},
		}
		all[i] = r
		wg.Go(func() {
			for n := range each {
				key := locks[r.random.IntN(len(locks))]
				if r.random.IntN(4) == 0 { // the others, a few at a time
					key = keys[min(len(locks)+n*len(keys)/each+r.random.IntN(4), len(keys)-1)]
				}
				if err := r.step(t, key); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	var calls []call
	for _, r := range all {
		calls = append(calls, r.calls...)
	}
	for _, key := range keys {
		if t.Failed() {
			return
		}
		e.checkCalls(t, key, calls)
	}
}

// call is a call that has ended: what it wrote, if it did, the record that it left or
// was shown, and when it began and ended.
type call struct {
	what       string
	write      *write
	now, prev  driver.Record
	begin, end int64
}

type racer struct {
	e      *env
	c      *client
	random *rand.Rand
	keys   map[string]*walker
	calls  []call
}

// step makes one call on key. It returns an error if the store does.
func (r *racer) step(t *testing.T, key string) error {
	w := r.keys[key]
	if w == nil {
		w = &walker{model: model{key: key}}
		r.keys[key] = w
	}
	c := call{what: "Get", begin: r.e.serial.Add(1)}
	var err error
	if r.random.IntN(8) == 0 {
		if c.now, err = r.c.Get(t.Context(), key, driver.Strong); errors.Is(err, driver.ErrNotFound) {
			err = nil
		}
	} else {
		name, next := r.write(w)
		c.what, w.sent = name, append(w.sent, next)
		if next.op == opClaim {
			c.now, c.prev, err = r.c.Claim(t.Context(), next.next)
		} else {
			c.now, err = r.c.Swap(t.Context(), next.prev, next.next)
		}
		var conflict *driver.ConflictError
		if errors.As(err, &conflict) {
			c.now, err = conflict.Current, nil
		} else {
			c.write = &next
		}
	}
	c.end = r.e.serial.Add(1)
	if err != nil {
		return fmt.Errorf("%s on %q: %w", c.what, key, err)
	}
	if c.now.Key == "" {
		c.now.Key = key
	} else if w.rec = c.now; c.write != nil {
		w.seen = append(w.seen, c.now)
	}
	r.calls = append(r.calls, c)
	return nil
}

// write returns the next write to a key.
func (r *racer) write(w *walker) (string, write) {
	switch {
	case w.rec.State != "" && w.rec.State != driver.Past:
		return r.e.randomWrite(w, r.random, false)
	case strings.HasPrefix(w.key, driver.SessionPrefix):
		return "opening of a session", write{op: opClaim, next: r.e.openedAt(w.key)}
	case strings.HasPrefix(w.key, driver.OwnPrefix):
		return "claim with a past record", write{op: opClaim, next: r.e.past(w.key)}
	default:
		return "claim", write{op: opClaim, next: r.e.held(w.key)}
	}
}

// checkCalls checks that the calls on key can have been made one after the other, each
// at a time between its begin and its end.
func (e *env) checkCalls(t *testing.T, key string, calls []call) {
	t.Helper()
	type id struct {
		version string
		token   uint64
	}
	at := func(r driver.Record) id { return id{r.Version, r.Token} }
	writes, looks := map[id]call{}, map[id][]call{}
	for _, c := range calls {
		if c.now.Key != key {
			continue
		}
		if c.write == nil {
			looks[at(c.now)] = append(looks[at(c.now)], c)
			continue
		}
		from := at(c.prev)
		if c.write.op == opSwap {
			from = at(c.write.prev)
		}
		if other, ok := writes[from]; ok {
			t.Fatalf("two writes replaced one record: a %s by %s, a %s by %s",
				other.what, brief(other.now), c.what, brief(c.now))
		}
		writes[from] = c
	}
	m := &model{key: key}
	var last call // the call before that began last
	inTime := func(c call) {
		if c.end < last.begin {
			t.Fatalf("a %s that shows %s had ended before a %s began that shows %s",
				c.what, brief(c.now), last.what, brief(last.now))
		}
	}
	for {
		now, before := at(m.rec), last
		for _, c := range looks[now] {
			want := m.rec
			want.Key = key
			e.wantEqual(t, "record that a "+c.what+" shows", c.now, want)
			if inTime(c); c.begin > before.begin {
				before = c
			}
		}
		delete(looks, now)
		last = before
		c, ok := writes[now]
		if !ok {
			break
		}
		delete(writes, now)
		prev := m.rec
		if !m.apply(*c.write) {
			t.Fatalf("a %s by %s replaced %s", c.what, brief(c.now), brief(prev))
		}
		e.wantEqual(t, "record after a "+c.what, c.now, m.rec)
		if c.write.op == opClaim {
			e.wantEqual(t, "record that a "+c.what+" replaced", c.prev, prev)
		}
		if inTime(c); c.begin > last.begin {
			last = c
		}
	}
	for _, c := range writes {
		t.Errorf("a %s led to %s, and what it replaced was never stored", c.what, brief(c.now))
	}
	for _, more := range looks {
		t.Errorf("a %s shows %s, which was never stored, or was lost", more[0].what, brief(more[0].now))
	}
	if !t.Failed() {
		e.wantModel(t, m)
	}
}
