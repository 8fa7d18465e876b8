// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package linearize

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
)

// schedules are the calls that show what is broken in a store, one schedule for
// each bug.
var schedules = map[string]func(*made){
	// Its third read of what it has read before is the stale one.
	"stale reads": func(m *made) {
		rec := m.held("one")
		m.a.get(m.t.Context(), rec.Key)
		m.a.get(m.t.Context(), rec.Key)
		m.a.get(m.t.Context(), rec.Key)
		m.swap(m.b, rec, m.next(rec, driver.Held))
		m.a.get(m.t.Context(), rec.Key)
	},
	"stale conflicts": func(m *made) {
		first := m.held("one")
		second := m.swap(m.a, first, m.next(first, driver.Held))
		m.swap(m.b, second, m.next(second, driver.Held))
		m.swap(m.a, second, m.next(second, driver.Held))
	},
	// Both compare before either swaps: the bubble's clock moves when both wait.
	"lost updates": func(m *made) {
		rec := m.held("one")
		var both sync.WaitGroup
		for _, c := range []*client{m.a, m.b} {
			next := m.next(rec, driver.Held)
			both.Go(func() { c.swap(m.t.Context(), rec, next) })
		}
		both.Wait()
	},
	// A late copy of a claim brings its version back under the next token, and with
	// it what the former holder still has to say.
	"swap ignores token": func(m *made) {
		first := m.held("one")
		m.swap(m.a, first, m.next(first, driver.Released))
		m.claim(m.a, "one", driver.Held)
		m.swap(m.a, first, m.next(first, driver.Held))
	},
	"claim overwrites held": func(m *made) {
		m.held("one")
		m.claim(m.b, "two", driver.Held)
	},
	// The tenth swap is said to be not applied.
	"applied said to be not": func(m *made) {
		rec := m.held("one")
		for range 10 {
			rec = m.swap(m.a, rec, m.next(rec, driver.Held))
		}
		m.b.get(m.t.Context(), rec.Key)
	},
	"requests forced": func(m *made) {
		first := m.held("one")
		m.swap(m.a, first, m.next(first, driver.Held))
		m.swap(m.b, first, m.asked(first))
	},
	"claims reserved": func(m *made) {
		rec := m.held("one")
		m.swap(m.a, rec, m.next(rec, driver.Reserved))
		m.claim(m.b, "two", driver.Held)
	},
	"claims past": func(m *made) {
		m.claim(m.a, "one", driver.Past)
		m.claim(m.b, "two", driver.Past)
	},
	"claims closed": func(m *made) {
		rec := m.claim(m.a, "one", driver.Alive)
		m.swap(m.a, rec, m.next(rec, driver.Closed))
		m.claim(m.b, "two", driver.Alive)
	},
	"claims alive": func(m *made) {
		m.claim(m.a, "one", driver.Alive)
		m.claim(m.b, "two", driver.Alive)
	},
	"keeps the session": func(m *made) {
		rec := m.record("one", driver.Held)
		rec.Session = "session"
		m.a.claimAs(m.t.Context(), rec)
		rec.Token = 1
		taken := m.next(rec, driver.Held)
		taken.Token, taken.Session = 2, ""
		m.swap(m.b, rec, taken)
	},
	"forgets who asked": func(m *made) {
		rec := m.held("one")
		asked := m.swap(m.b, rec, m.asked(rec))
		released := m.next(asked, driver.Released)
		released.Requests, released.End, released.Asked = nil, driver.EndSteppedDown, &asked.Requests[0]
		m.swap(m.a, asked, released)
		m.claim(m.b, "two", driver.Held)
	},
	"writes twice": func(m *made) { m.held("one") },
}

// made is a history of two clients who make the calls that they are told to.
type made struct {
	t    *testing.T
	a, b *client
}

// play plays a schedule on a store, in a bubble, and says whether the history can
// be explained.
func play(t *testing.T, schedule func(*made), breakStore func(*memstore.Store) driver.Store) porcupine.CheckResult {
	t.Helper()
	h := &history{}
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		m := &made{t: t}
		for i, c := range []**client{&m.a, &m.b} {
			*c = newClient(i, breakStore(s.Open()), 1, uint64(i), h)
			defer closeStore(t, (*c).store)
		}
		schedule(m)
		keys := []string{"key"}
		h.mark(settled, keys)
		m.b.get(t.Context(), "key")
		h.mark(over, keys)
	})
	result, _ := h.check(checkTimeout)
	return result
}

// record returns a record for a claim.
func (m *made) record(version string, state driver.State) driver.Record {
	return driver.Record{Key: "key", Version: version, Owner: "owner of " + version, Lease: time.Second, State: state}
}

// claim makes a claim, and returns what it leaves if it is the key's first.
func (m *made) claim(c *client, version string, state driver.State) driver.Record {
	next := m.record(version, state)
	c.claimAs(m.t.Context(), next)
	next.Token = 1
	return next
}

// held has a hold the key from the beginning.
func (m *made) held(version string) driver.Record { return m.claim(m.a, version, driver.Held) }

// next returns a record in the state to follow rec, of the same holder.
func (m *made) next(rec driver.Record, state driver.State) driver.Record {
	next := rec.Clone()
	next.Version, next.State = m.a.fresh(), state
	if state == driver.Released {
		next.End = driver.EndReleased
	}
	return next
}

// asked returns rec with a request for its holder.
func (m *made) asked(rec driver.Record) driver.Record {
	next := m.next(rec, driver.Held)
	next.Requests = []driver.Request{{ID: next.Version, Kind: driver.StepDown, By: "b"}}
	return next
}

// swap makes a swap, and returns what it leaves if it is applied.
func (m *made) swap(c *client, from, next driver.Record) driver.Record {
	c.swap(m.t.Context(), from, next)
	return next
}
