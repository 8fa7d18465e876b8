// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// sessionViews is what a client has seen of sessions, those of other processes
// and its own, by their ids. It is guarded by the mutex of what the client has seen.
type sessionViews struct {
	t        protocol.Timing
	env      protocol.Env
	liveness *livenessCache
	known    map[string]*protocol.View
}

// maxObserved bounds the sessions, and the locks, of which a client remembers all that it
// saw when nobody waits for them. Of up to maxMarks more it remembers since when they have
// shown no life.
const maxObserved = 10_000

// maxHeldObserved is up to how many locks a client holds and remembers what it saw of them
// before. The next acquire of a lock is quicker for that, and on some stores cheaper; of many
// locks it would be much memory.
const maxHeldObserved = 1000

// newSessionViews returns those of a client that has seen nothing yet.
func newSessionViews(t protocol.Timing, env protocol.Env, liveness *livenessCache) *sessionViews {
	return &sessionViews{t: t, env: env, liveness: liveness, known: map[string]*protocol.View{}}
}

// Of returns the view of a session, the same for all callers.
func (s *sessionViews) Of(id string) *protocol.View {
	u := s.known[id]
	if u == nil {
		if len(s.known) >= maxObserved {
			s.thin()
		}
		u = protocol.NewView(s.t, s.env)
		s.known[id] = u
	}
	return u
}

// thin forgets the sessions that nobody has asked about for the longest time. The
// next caller that asks about one has it read anew. If the session shows the same
// sign of life then, it has shown it since it was first seen.
func (s *sessionViews) thin() {
	looked := func(id string) time.Duration {
		at, _ := s.known[id].Known()
		return at
	}
	ids := slices.SortedFunc(maps.Keys(s.known), func(a, b string) int { return cmp.Compare(looked(a), looked(b)) })
	for _, id := range ids[:len(ids)/2] {
		s.liveness.Note(s.known[id])
		delete(s.known, id)
	}
}

// livenessCache is what is left of locks and sessions of which a client knew more than it
// can keep: since when each has shown its latest sign of life. A process that tries
// the locks of many dead holders in turn comes back to each of them with the count
// going on.
type livenessCache struct {
	now   func() time.Duration
	lease time.Duration

	mu     sync.Mutex
	marks  map[lifeSum]mark
	listed map[string]lifeSum // by key, those of them that lists have shown last
	tidied time.Duration      // nothing more can be dropped until then
}

// newLivenessCache returns one for a client of that lease, which counts by now.
func newLivenessCache(now func() time.Duration, lease time.Duration) *livenessCache {
	return &livenessCache{now: now, lease: lease, marks: map[lifeSum]mark{}, listed: map[string]lifeSum{}}
}

// lifeSum stands for what a record shows of its holder. Two that differ have
// different sums: an instant that belongs to another sign could be too early.
type lifeSum [16]byte

type mark struct {
	since time.Duration // after the reply that first showed it
	until time.Duration // it is kept at least
}

const (
	// maxMarks bounds them: 32 bytes each, a few megabytes in all.
	maxMarks = 50_000
	// maxMarkAge is how many leases a mark is kept at least. The mark of a living
	// holder is worth nothing after its next heartbeat, but no client can tell
	// which marks those are.
	maxMarkAge = 16
)

func sumOf(rec driver.Record) lifeSum {
	var b []byte
	for _, s := range []string{rec.Key, rec.Sign(), string(rec.State)} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.AppendUvarint(b, rec.Token)
	b = binary.AppendVarint(b, int64(rec.Lease))
	sum := sha256.Sum256(b)
	return lifeSum(sum[:16])
}

// Note keeps what matters of a view that is forgotten: if it shows a holder, since
// when. When there is no room, Note keeps the marks that it has, so that they come
// to their end and make room.
func (r *livenessCache) Note(s *protocol.View) {
	rec, found := s.Record()
	if !found || s.Tied() { // a lock under a session shows no life
		return
	}
	if _, holds := s.DeadAt(); !holds {
		return
	}
	now := r.now()
	until := now + maxMarkAge*min(max(r.lease, rec.Lease), protocol.MaxLease)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.marks) >= maxMarks && now >= r.tidied {
		r.tidy(now)
	}
	sum := sumOf(rec)
	was, known := r.marks[sum]
	switch {
	case known:
		r.marks[sum] = mark{min(was.since, s.Since()), until}
	case len(r.marks) < maxMarks:
		r.marks[sum] = mark{s.Since(), until}
	}
}

// glance returns a view of one cheap reply alone, which counts since the sign of life was shown
// first. That is a true count if a strong reply shows the sign later: it was there all the time.
func (r *livenessCache) glance(
	t protocol.Timing, env protocol.Env, sent, now time.Duration, rec driver.Record,
) *protocol.View {
	env.Recall, env.Differs = r.Of, nil
	s := protocol.NewView(t, env)
	s.Observe(sent, now, driver.Strong, rec, true)
	r.replaces(rec)
	r.Note(s)
	return s
}

// replaces drops the mark of the sign of life that lists had shown of a record before. A client
// that lists again and again would else keep one of each heartbeat.
func (r *livenessCache) replaces(rec driver.Record) {
	sum := sumOf(rec)
	r.mu.Lock()
	defer r.mu.Unlock()
	if was, known := r.listed[rec.Key]; known && was != sum {
		delete(r.marks, was)
	}
	switch _, known := r.listed[rec.Key]; {
	case rec.State == driver.Released || rec.State == driver.Closed:
		delete(r.listed, rec.Key)
	case known || len(r.listed) < maxMarks:
		r.listed[rec.Key] = sum
	}
}

// tidy drops what was kept for long enough.
func (r *livenessCache) tidy(now time.Duration) {
	r.tidied = now + maxMarkAge*r.lease
	for sum, m := range r.marks {
		if now >= m.until {
			delete(r.marks, sum)
		} else {
			r.tidied = min(r.tidied, m.until)
		}
	}
}

// Of returns since when a record's sign of life has been shown, if that was noted.
// The mark is dropped: from then on the caller keeps it.
func (r *livenessCache) Of(rec driver.Record) (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.marks) == 0 {
		return 0, false
	}
	sum := sumOf(rec)
	m, ok := r.marks[sum]
	delete(r.marks, sum)
	return m.since, ok
}
