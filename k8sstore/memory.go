// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"strconv"
	"sync"

	"k8s.io/api/coordination/v1"

	"github.com/tenurelock/tenure/driver"
)

// state is a record as it stood in an object.
type state struct {
	rec driver.Record // zero if there is none
	rev string        // the resourceVersion; empty: there is no object
	err error         // it cannot be understood

	foreign bool   // another client wrote the Lease last
	parts   parts  // what is kept outside of the Lease
	wake    string // as it stands in the annotation
	spec    v1.LeaseSpec
}

// found says that there is an object, readable or not.
func (s *state) found() bool { return s.rev != "" }

// memory is what a store has seen of its records last. It is a guess: a write that
// relies on it names the resourceVersion, and the API server decides.
type memory struct {
	mu   sync.Mutex
	seen map[string]state
}

// mostSeen bounds the memory. Beyond it some record is forgotten, which costs the next
// write of it one more request.
const mostSeen = 1 << 14

func newMemory() *memory { return &memory{seen: map[string]state{}} }

// note remembers a state, but not long data. What another client has written is not
// remembered: no call is refused for what that client may have undone.
func (m *memory) note(key string, s state) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !s.found() || s.err != nil || s.foreign {
		delete(m.seen, key)
		return
	}
	was, ok := m.seen[key]
	if ok && later(was.rev, s.rev) {
		return // an answer that was overtaken
	}
	if !ok && len(m.seen) >= mostSeen {
		for other := range m.seen {
			delete(m.seen, other)
			break
		}
	}
	if s.parts.Data != nil {
		s.rec.Data = nil
	}
	s.rec = s.rec.Clone() // the caller has the other one
	m.seen[key] = s
}

// later reports whether a resourceVersion is known to be later than another one. They are
// numbers, and ascend, in all API servers on etcd; nothing but the use of memory rests on
// that.
func later(a, b string) bool {
	x, errA := strconv.ParseUint(a, 10, 64)
	y, errB := strconv.ParseUint(b, 10, 64)
	return errA == nil && errB == nil && x > y
}

// of returns what was seen of a key.
func (m *memory) of(key string) (state, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.seen[key]
	return s, ok
}

// forget drops what is known of a key, after a write of unknown outcome.
func (m *memory) forget(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.seen, key)
}
