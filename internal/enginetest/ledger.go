// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"sync"
	"testing"
)

// Holder is what a ledger asks of a lease.
type Holder interface {
	Owner() string
	Token() uint64
	Check() error
}

// Ledger notes the tenures of one lock. Its methods may be called concurrently.
type Ledger struct {
	mu      sync.Mutex
	last    Holder
	highest uint64
	n       int
}

// Enter is called by a holder. The one before must not believe that it is one, and tokens
// rise.
func (l *Ledger) Enter(t testing.TB, lease Holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lease.Token() <= l.highest {
		t.Errorf("token %d was given after %d", lease.Token(), l.highest)
	}
	if l.last != nil && l.last.Check() == nil && lease.Check() == nil {
		t.Errorf("%s has the lock beside %s", lease.Owner(), l.last.Owner())
	}
	l.highest, l.last, l.n = max(l.highest, lease.Token()), lease, l.n+1
}

// Count returns how many there were.
func (l *Ledger) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// Highest returns the highest token.
func (l *Ledger) Highest() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.highest
}
