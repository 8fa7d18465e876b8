// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package notification

import (
	"crypto/hmac"
	"slices"
	"time"
)

// Limits of what a holder remembers.
const (
	// MaxWaiters is how many processes a holder notifies for one lock. Further waiters get
	// no answer, and poll as if there were no notifications.
	MaxWaiters = 256
	// maxAllWaiters is how many waiters a holder remembers for all of its locks.
	maxAllWaiters = 1 << 14
)

// Packet is a message and its destination.
type Packet struct {
	To      string
	Message []byte
}

// Held has the locks that a process holds, and their waiters.
type Held struct {
	secret  string // in the records
	private string // in nothing
	locks   map[ID]*Lock
	waiters int // of all locks
}

// Lock is one held lock, or a session.
type Lock struct {
	id      ID
	lease   time.Duration
	waiters []waiter // in the order of arrival
	asked   func()
}

// waiter is a process that waits for a lock.
type waiter struct {
	address  string
	nonce    ID
	heard    time.Duration // when the last message came
	observes bool          // only observes, and does not want the lock
}

// NewHeld returns the empty Held of a process with that secret. No other process knows
// private.
func NewHeld(secret, private string) *Held {
	return &Held{secret: secret, private: private, locks: map[ID]*Lock{}}
}

// Begin notes that the process holds the lock. asked is called when a message says that
// a request is in the record.
func (h *Held) Begin(key string, lease time.Duration, asked func()) *Lock {
	l := &Lock{id: NameOf(h.secret, key), lease: lease, asked: asked}
	if was := h.locks[l.id]; was != nil { // lost, and granted again
		h.waiters -= len(was.waiters)
	}
	h.locks[l.id] = l
	return l
}

// End forgets the lock.
func (h *Held) End(l *Lock) {
	if h.locks[l.id] == l {
		delete(h.locks, l.id)
		h.waiters -= len(l.waiters)
	}
}

// Heard takes a message for a holder. It returns the answer, and a function to call;
// both may be nil. An answer is shorter than the message.
func (h *Held) Heard(now time.Duration, b []byte, m Message) (answer *Packet, asked func()) {
	l := h.locks[m.Lock]
	if l == nil || !Genuine(b, h.secret) {
		return nil, nil
	}
	if m.Kind == Asked {
		return nil, l.asked
	}
	word := h.word(m)
	if hmac.Equal(word[:], m.Echo[:]) && !h.enter(now, l, m) {
		return nil, nil
	}
	ack := Message{Kind: Ack, Lock: m.Lock, Nonce: m.Nonce, Echo: word}
	return &Packet{m.Address, ack.Append(nil, h.secret)}, asked
}

// word returns the word that the receiver at a Wait's address must repeat. It is
// computed each time, so that unrepeated words take no memory.
func (h *Held) word(m Message) (word ID) {
	copy(word[:], sum(h.private, "word", string(m.Lock[:])+string(m.Nonce[:])+m.Address))
	return word
}

// enter notes a waiter, and returns false if there is no room. A waiter that is noted
// already keeps its place. A waiter that wants the lock replaces an observer.
func (h *Held) enter(now time.Duration, l *Lock, m Message) bool {
	i := slices.IndexFunc(l.waiters, func(w waiter) bool { return w.address == m.Address })
	is := waiter{m.Address, m.Nonce, now, m.Place > 0}
	if i >= 0 && l.current(now, l.waiters[i]) {
		l.waiters[i] = is
		return true
	}
	n := len(l.waiters)
	l.waiters = slices.DeleteFunc(l.waiters, func(w waiter) bool { return !l.current(now, w) })
	h.waiters -= n - len(l.waiters)
	if len(l.waiters) >= MaxWaiters || h.waiters >= maxAllWaiters {
		i := slices.IndexFunc(l.waiters, func(w waiter) bool { return w.observes })
		if i < 0 || is.observes {
			return false
		}
		l.waiters = slices.Delete(l.waiters, i, i+1)
		h.waiters--
	}
	l.waiters = append(l.waiters, is)
	h.waiters++
	return true
}

// current says whether a message of the waiter has come within the lease.
func (l *Lock) current(now time.Duration, w waiter) bool { return now-w.heard <= l.lease }

// Notify returns the messages that ask the waiters to read the record. The first waiter
// reads at once, the others each a little later than the one before; observers come last.
func (h *Held) Notify(now time.Duration, l *Lock) []Packet {
	var packets []Packet
	for _, observes := range []bool{false, true} {
		for _, w := range l.waiters {
			if w.observes == observes && l.current(now, w) {
				m := Message{Kind: Notify, Lock: l.id, Nonce: w.nonce, Place: uint16(len(packets))}
				packets = append(packets, Packet{w.address, m.Append(nil, h.secret)})
			}
		}
	}
	return packets
}
