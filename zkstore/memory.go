// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package zkstore

import (
	"sync"

	"github.com/tenurelock/tenure/driver"
)

// state is a record as its node has it.
type state struct {
	rec driver.Record // zero if there is none
	err error         // it cannot be understood
	// there says that there is a node, of this version, with a child of this name.
	there   bool
	version int32
	mark    string
}

// memory is what a store has seen of its records last. It is a guess: a write that
// relies on it names the version and the mark, and ZooKeeper decides.
type memory struct {
	mu   sync.Mutex
	seen map[string]state
}

// mostSeen bounds the memory. Beyond it some record is forgotten, which costs the next
// write of it one more request.
const mostSeen = 1 << 14

func newMemory() *memory { return &memory{seen: map[string]state{}} }

// note remembers a state.
func (m *memory) note(key string, s state) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !s.there || s.err != nil {
		delete(m.seen, key)
		return
	}
	if was, ok := m.seen[key]; ok && was.mark == s.mark && was.version > s.version {
		return // an answer that was overtaken
	}
	if len(m.seen) >= mostSeen {
		for other := range m.seen {
			delete(m.seen, other)
			break
		}
	}
	s.rec = s.rec.Clone() // the caller has the other one
	m.seen[key] = s
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
