// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package versioned is shared by stores whose engine keeps one object for each record,
// with a version of the engine's own, and writes it on the condition that it still has
// that version: etcd, ZooKeeper, Kubernetes, and the objects of a bucket.
//
// A [Writer] implements Claim, Swap, Raise and Delete with such a conditional write. A
// [Memory] is what a store has last seen of its records, so that most writes need no read.
// A [Life] ends the calls and the watches of a store with the store. The store for
// PostgreSQL uses only a Memory.
//
// All methods may be called concurrently.
package versioned

import (
	"sync"

	"github.com/tenurelock/tenure/driver"
)

// View is what a state of the engine says of a record.
type View struct {
	Record driver.Record // zero if there is no record
	Found  bool          // there is a record, readable or not
	Err    error         // it cannot be understood
	// Kept is the stored token of a deleted lock, if there is no record.
	Kept uint64
}

// State is a record as the engine had it, with what the engine needs to replace it: a
// store's own type.
type State[S any] interface {
	View() View
	// Kept returns what a memory keeps of a readable state, with a record of its own.
	// It returns false if a memory must not keep it.
	Kept() (S, bool)
	// Overtakes reports whether the state is known to be later than another one.
	Overtakes(other S) bool
}

// Memory is what a store has seen of its records last. It is a guess: a write that relies
// on it names the version, and the engine decides.
type Memory[S State[S]] struct {
	mu   sync.Mutex
	seen map[string]S
}

// mostSeen bounds the memory. Beyond it some record is forgotten, which costs the next
// write of it one more request.
const mostSeen = 1 << 14

// Note remembers the state of key. A state that was overtaken changes nothing.
func (m *Memory[S]) Note(key string, is S) {
	m.mu.Lock()
	defer m.mu.Unlock()
	view := is.View()
	kept, keep := is, false
	if view.Found && view.Err == nil {
		kept, keep = is.Kept()
	}
	if !keep {
		delete(m.seen, key)
		return
	}
	was, ok := m.seen[key]
	if ok && was.Overtakes(is) {
		return
	}
	if m.seen == nil {
		m.seen = map[string]S{}
	}
	if !ok && len(m.seen) >= mostSeen {
		for other := range m.seen {
			delete(m.seen, other)
			break
		}
	}
	m.seen[key] = kept
}

// Of returns the last state of key that was seen, and false if key was not seen yet.
func (m *Memory[S]) Of(key string) (S, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	is, ok := m.seen[key]
	return is, ok
}

// Forget drops the state of key, after a write with an unknown outcome.
func (m *Memory[S]) Forget(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.seen, key)
}

// RecordOf returns what Get returns for a state.
func RecordOf[S State[S]](is S) (driver.Record, error) {
	switch view := is.View(); {
	case view.Err != nil:
		return driver.Record{}, view.Err
	case !view.Found:
		return driver.Record{}, driver.ErrNotFound
	default:
		return view.Record, nil
	}
}

// AddTo adds the state of key to a page of List, unless there is no record.
func AddTo[S State[S]](page *driver.Page, key string, is S) {
	switch view := is.View(); {
	case view.Err != nil:
		if page.Unreadable == nil {
			page.Unreadable = map[string]error{}
		}
		page.Unreadable[key] = view.Err
	case view.Found:
		page.Records = append(page.Records, view.Record)
	}
}
