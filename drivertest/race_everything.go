// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// raceEverything has all racers claim, renew, write data, lay requests, release,
// hand over and take over the same keys, each from the record that it saw last, and then checks
// that the writes that were applied form one chain: each replaced the record
// that the one before had left, and the token rose with each change of holder
// and at no other time.
func (e *env) raceEverything(t *testing.T) {
	keys := []string{e.key(), e.key()}
	each := max(e.h.Ops/racers, 10)
	var (
		mu    sync.Mutex
		links []link
		wg    sync.WaitGroup
	)
	for i := range racers {
		r := &racer{
			e: e, c: e.clients[i%len(e.clients)],
			random: rand.New(rand.NewPCG(uint64(i), 5)), seen: map[string]driver.Record{},
		}
		wg.Go(func() {
			for range each {
				if err := r.step(t, keys[r.random.IntN(len(keys))]); err != nil {
					t.Error(err)
					return
				}
			}
			mu.Lock()
			defer mu.Unlock()
			links = append(links, r.links...)
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for _, key := range keys {
		e.checkChain(t, key, links)
	}
}

// link is a write that was applied: the record that it replaced, and what it
// left.
type link struct {
	kind      string
	prev, now driver.Record
}

type racer struct {
	e      *env
	c      *client
	random *rand.Rand
	seen   map[string]driver.Record
	links  []link
}

// step makes one call on key. It returns an error if the store does.
func (r *racer) step(t *testing.T, key string) error {
	rec := r.seen[key]
	if rec.Key == "" || r.random.IntN(8) == 0 {
		got, err := r.c.Get(t.Context(), key, driver.Strong)
		if err == nil {
			return r.saw("Get", got)
		}
		if !errors.Is(err, driver.ErrNotFound) {
			return fmt.Errorf("Get: %w", err)
		}
		if rec.Key != "" {
			return fmt.Errorf("Get: %w, of a key that had %s", err, brief(rec))
		}
	}
	var kind string
	var now, prev driver.Record
	var err error
	if rec.State != driver.Held && (rec.State != driver.Reserved || r.random.IntN(4) == 0) {
		kind = "claim"
		now, prev, err = r.c.Claim(t.Context(), r.e.held(key))
	} else {
		var next driver.Record
		switch n := r.random.IntN(14); {
		case n < 3 && rec.State == driver.Held:
			kind, next = "request", r.e.asked(rec)
		case n < 4:
			kind, next = "reservation", r.e.reserved(rec, "successor")
		case n < 8:
			kind, next = "heartbeat", r.e.beat(rec)
		case n < 10:
			kind, next = "data", dataOf(r.e, rec)
		case n < 12:
			kind, next = "release", r.e.released(rec)
		default:
			kind, next = "takeover", r.e.taken(rec)
		}
		prev = rec
		now, err = r.c.Swap(t.Context(), rec, next)
	}
	var conflict *driver.ConflictError
	switch {
	case err == nil:
		r.links = append(r.links, link{kind: kind, prev: prev, now: now})
		return r.saw(kind, now)
	case errors.As(err, &conflict) && !conflict.Absent:
		return r.saw(kind, conflict.Current)
	default:
		return fmt.Errorf("%s: %w", kind, err)
	}
}

// saw notes a record that a strong read, a write or a conflict showed. What
// one goroutine sees never goes back.
func (r *racer) saw(how string, rec driver.Record) error {
	if last := r.seen[rec.Key]; rec.Token < last.Token {
		return fmt.Errorf("%s shows %s, after %s was seen", how, brief(rec), brief(last))
	}
	r.seen[rec.Key] = rec
	return nil
}

// checkChain orders the links of key from the first record to the stored one.
func (e *env) checkChain(t *testing.T, key string, links []link) {
	t.Helper()
	type id struct {
		version string
		token   uint64
	}
	next := map[id]link{}
	for _, l := range links {
		if l.now.Key != key {
			continue
		}
		from := id{l.prev.Version, l.prev.Token}
		if other, ok := next[from]; ok {
			t.Fatalf("two writes replaced %s: a %s by %s, a %s by %s",
				brief(l.prev), other.kind, brief(other.now), l.kind, brief(l.now))
		}
		next[from] = l
	}
	var at driver.Record
	for range len(next) {
		l, ok := next[id{at.Version, at.Token}]
		if !ok {
			t.Fatalf("%s was replaced by a write that nobody made, or one was lost", brief(at))
		}
		if l.prev.Version != "" {
			e.wantEqual(t, "record that a "+l.kind+" replaced", l.prev, at)
		}
		want := at.Token
		if l.kind == "claim" || l.kind == "takeover" {
			want++
		}
		if l.now.Token != want {
			t.Fatalf("a %s led from token %d to %d", l.kind, at.Token, l.now.Token)
		}
		if l.kind == "claim" && at.Key != "" && at.State != driver.Released {
			t.Fatalf("a claim replaced %s", brief(at))
		}
		at = l.now
	}
	if at.Key != "" {
		e.wantStored(t, at)
	}
}
