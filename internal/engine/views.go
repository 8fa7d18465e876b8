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

// sessionViews has the views of sessions, those of other processes and the client's
// own, by id. viewMu guards it.
type sessionViews struct {
	t        protocol.Timing
	env      protocol.Env
	liveness *livenessCache
	known    map[string]*protocol.View
}

// maxSessions and maxIdle bound how many sessions a client keeps a full view of, and how many locks
// without a waiter. Of up to maxMarks more it only remembers when each last showed new life. A view
// makes the next acquire of its lock faster, and on some stores cheaper, but needs a kilobyte.
const (
	maxSessions = 10_000
	maxIdle     = 1000
)

// newSessionViews returns the empty views of a client.
func newSessionViews(t protocol.Timing, env protocol.Env, liveness *livenessCache) *sessionViews {
	return &sessionViews{t: t, env: env, liveness: liveness, known: map[string]*protocol.View{}}
}

// Of returns the view of a session, the same for all callers.
func (s *sessionViews) Of(id string) *protocol.View {
	u := s.known[id]
	if u == nil {
		if len(s.known) >= maxSessions {
			s.thin()
		}
		u = protocol.NewView(s.t, s.env)
		s.known[id] = u
	}
	return u
}

// thin drops the views of the least recently used sessions. The next caller that needs
// one has the session read again. If it still shows the same sign of life, the count
// goes on from when that was first shown.
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

// livenessCache keeps, for locks and sessions whose views were dropped, since when each
// has shown its latest sign of life. So a process that tries the locks of many dead
// holders in turn goes on counting when it comes back to each.
type livenessCache struct {
	now   func() time.Duration
	lease time.Duration

	mu     sync.Mutex
	marks  map[lifeSum]mark
	listed map[string]lifeSum // by key: the sign that the latest list has shown
	tidied time.Duration      // no mark can be dropped before then
}

// newLivenessCache returns the cache of a client with that lease and clock.
func newLivenessCache(now func() time.Duration, lease time.Duration) *livenessCache {
	return &livenessCache{now: now, lease: lease, marks: map[lifeSum]mark{}, listed: map[string]lifeSum{}}
}

// lifeSum is a hash of the sign of life in a record. Different signs must have
// different sums: an instant that belongs to another sign could be too early.
type lifeSum [16]byte

type mark struct {
	since time.Duration // after the reply that first showed the sign of life
	until time.Duration // the mark is kept at least until then
}

const (
	// maxMarks bounds the marks: 32 bytes each, a few megabytes in all.
	maxMarks = 50_000
	// minMarkLeases is how many leases a mark is kept at least. The mark of a living holder
	// is useless after its next heartbeat, but a client cannot know which marks those are.
	minMarkLeases = 16
)

func sumOf(rec driver.Record) lifeSum {
	var b []byte
	for _, s := range []string{rec.Key, rec.Sign(), string(rec.State), rec.Life} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.AppendUvarint(b, rec.Token)
	b = binary.AppendVarint(b, int64(rec.Lease))
	sum := sha256.Sum256(b)
	return lifeSum(sum[:16])
}

// Note keeps a mark for a view that is dropped, if it shows a holder. When the cache is
// full, Note drops the new mark, so that the old ones can age and make room.
func (r *livenessCache) Note(s *protocol.View) {
	rec, found := s.Record()
	if !found || s.UnderSession() { // a lock under a session shows no life
		return
	}
	if _, holds := s.DeadAt(); !holds {
		return
	}
	now := r.now()
	until := now + minMarkLeases*min(max(r.lease, rec.Lease), protocol.MaxLease)
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

// glance returns a view that takes one eventual reply for strong, and counts from when the sign of
// life was first shown. A strong reply with that sign makes the count valid: the sign was there
// all the time.
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

// replaces drops the mark of the sign of life that the previous list had shown for a record.
// Otherwise a client that lists repeatedly would keep a mark of each heartbeat.
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

// tidy drops the marks that have been kept long enough.
func (r *livenessCache) tidy(now time.Duration) {
	r.tidied = now + minMarkLeases*r.lease
	for sum, m := range r.marks {
		if now >= m.until {
			delete(r.marks, sum)
		} else {
			r.tidied = min(r.tidied, m.until)
		}
	}
}

// Of returns since when a record's sign of life has been shown, if that was noted. It
// drops the mark: the caller keeps the instant.
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
