// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// livenessCache is what is left of locks and sessions of which a client knew more than it
// can keep: since when each has shown its latest sign of life. A process that tries
// the locks of many dead holders in turn comes back to each of them with the count
// going on.
type livenessCache struct {
	now   func() time.Duration
	lease time.Duration

	mu     sync.Mutex
	marks  map[lifeSum]mark
	tidied time.Duration // nothing more can be dropped until then
}

// newLivenessCache returns one for a client of that lease, which counts by now.
func newLivenessCache(now func() time.Duration, lease time.Duration) *livenessCache {
	return &livenessCache{now: now, lease: lease, marks: map[lifeSum]mark{}}
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

// Note keeps what matters of a sight that is forgotten: if it shows a holder, since
// when. When there is no room, Note keeps the marks that it has, so that they come
// to their end and make room.
func (r *livenessCache) Note(s *protocol.Sight) {
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
