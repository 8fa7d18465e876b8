// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package notification

import (
	"time"
)

// apart is the delay from one waiter's read to the next one's.
const apart = 20 * time.Millisecond

// Waits has the locks that a process waits for.
type Waits struct {
	address string        // its own
	least   time.Duration // between two messages of one wait
	env     Env
	all     map[ID]*Waiting
}

// Env provides randomness.
type Env struct {
	NewID  func() ID      // unguessable, different each time
	Random func() float64 // in [0, 1)
}

// Waiting is a process that waits for one term of a lock.
type Waiting struct {
	of      *Waits
	id      ID
	secret  string // of the holder
	to      string
	nonce   ID
	echo    ID // the word that the holder expects
	lease   time.Duration
	refresh time.Duration

	next    time.Duration // when to send a Wait
	sent    time.Duration // when the last one was
	unheard int           // Waits without an answer
	again   time.Duration // an answer may bring the next Wait forward from then on

	hinted  time.Duration // when the last hint was given
	any     bool          // a hint was given
	due     time.Duration // when the next hint is due
	pending bool          // a hint is due

	observes bool
	changed  func() // called when Next may be sooner
}

// NewWaits returns the empty Waits of a process that is notified at the address. lease is its
// own lease: in that time it sends at most perLease messages for each wait.
func NewWaits(address string, lease time.Duration, env Env) *Waits {
	return &Waits{address: address, least: lease / perLease, env: env, all: map[ID]*Waiting{}}
}

// perLease is the most messages in a lease, without the first exchange.
const perLease = 20

// Begin notes that the process waits for a lock whose record has shown the target. It
// returns nil if the target is invalid. lease is the record's lease, and refresh is how
// often the process polls. Heard calls changed when Step may be due sooner.
func (w *Waits) Begin(now time.Duration, key, target string, lease, refresh time.Duration, changed func()) *Waiting {
	to, secret, ok := parts(target)
	if !ok || lease <= 0 {
		return nil
	}
	v := &Waiting{
		of: w, id: NameOf(secret, key), secret: secret, to: to, nonce: w.env.NewID(),
		lease: lease, refresh: refresh, next: now, changed: changed,
	}
	if was := w.all[v.id]; was != nil { // another term of the same process
		v.hinted, v.any = was.hinted, was.any
	}
	w.all[v.id] = v
	return v
}

// Follows continues the hint limit of the wait before this one: a lock gives no more
// hints because it changes hands.
func (v *Waiting) Follows(was *Waiting) {
	if was != nil && was.any {
		v.hinted, v.any = was.hinted, true
	}
}

// Observes says whether the process only observes. The next message reports that to the
// holder; it is due at once if the process wants the lock now.
func (v *Waiting) Observes(now time.Duration, yes bool) {
	if v.observes && !yes {
		v.next = max(min(v.next, now), v.sent+v.of.least) // the process may change its mind many times
	}
	v.observes = yes
}

// End forgets a wait.
func (w *Waits) End(v *Waiting) {
	if w.all[v.id] == v {
		delete(w.all, v.id)
	}
}

// Next returns when Step has something to do.
func (v *Waiting) Next() time.Duration {
	if v.pending {
		return min(v.next, v.due)
	}
	return v.next
}

// Step returns the packet to send now, or nil, and whether to read the record.
func (v *Waiting) Step(now time.Duration) (packet *Packet, look bool) {
	if v.pending && now >= v.due {
		v.pending, v.any, v.hinted, look = false, true, now, true
	}
	if now < v.next {
		return nil, look
	}
	// Until it is answered, the Wait is sent as often as the record is polled, and then
	// less and less often: three times in a lease once the holder knows.
	most := v.rest()
	pace := min(max(v.refresh, v.of.least), most)
	for n := v.unheard; n > 0 && pace < most; n-- {
		pace = min(2*pace, most)
	}
	v.unheard++
	v.sent, v.next = now, now+pace-time.Duration(v.of.env.Random()*float64(pace)/8)
	m := Message{Kind: Wait, Lock: v.id, Nonce: v.nonce, Echo: v.echo, Address: v.of.address}
	if v.observes {
		m.Place = 1
	}
	return &Packet{v.to, m.Append(nil, v.secret)}, look
}

// rest is the pause between messages once the holder has answered. The writer of the
// record chooses its lease, but not how often this process sends.
func (v *Waiting) rest() time.Duration { return max(v.lease/3, v.of.least) }

// Heard takes a message for a waiter.
func (w *Waits) Heard(now time.Duration, b []byte, m Message) {
	v := w.all[m.Lock]
	if v == nil || v.nonce != m.Nonce || !Genuine(b, v.secret) {
		return
	}
	switch {
	case m.Kind == Notify:
		v.hint(now, m.Place)
	case m.Echo == v.echo: // the holder will notify
		v.unheard = 0
		v.next = max(v.next, v.sent+v.rest()-v.rest()/8) // a forged answer delays no Wait for long
	case now >= v.again:
		v.echo, v.next, v.again = m.Echo, now, now+v.of.least
	}
	v.changed()
}

// hint makes a read due. A lock gives at most one hint in a quarter of the refresh
// period, because anyone who can read the store can forge any number of them.
func (v *Waiting) hint(now time.Duration, place uint16) {
	due := now + time.Duration(place)*apart
	if v.any {
		due = max(due, v.hinted+v.refresh/4)
	}
	if !v.pending || due < v.due {
		v.pending, v.due = true, due
	}
}

// AskedOf returns the message that a request is in a record with that target, or nil if
// the target is invalid.
func AskedOf(key, target string, word ID) *Packet {
	to, secret, ok := parts(target)
	if !ok {
		return nil
	}
	m := Message{Kind: Asked, Lock: NameOf(secret, key), Nonce: word}
	return &Packet{to, m.Append(nil, secret)}
}
