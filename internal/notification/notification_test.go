// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package notification

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

const (
	secret = "SECRET"
	lease  = 15 * time.Second
	often  = time.Second
)

// env makes words that count up.
func env() Env {
	n := byte(0)
	return Env{
		NewID: func() (id ID) {
			n++
			id[0] = n
			return id
		},
		Random: func() float64 { return 0 },
	}
}

func samples() []Message {
	id := NameOf(secret, "x")
	return []Message{
		{Kind: Wait, Lock: id, Nonce: ID{1}, Echo: ID{2}, Address: "udp://192.0.2.7:4711"},
		{Kind: Wait, Lock: id, Nonce: ID{1}, Address: strings.Repeat("a", MaxAddress)},
		{Kind: Wait, Lock: id, Nonce: ID{1}, Place: 1, Address: "B"},
		{Kind: Ack, Lock: id, Nonce: ID{1}, Echo: ID{2}},
		{Kind: Notify, Lock: id, Nonce: ID{1}, Place: 300},
		{Kind: Asked, Lock: id, Nonce: ID{1}},
	}
}

// What is sent is read back, is short, and is genuine under its secret alone.
func TestMessages(t *testing.T) {
	for _, m := range samples() {
		b := m.Append(nil, secret)
		got, ok := Parse(b)
		if !ok || got != m {
			t.Errorf("%+v is read back as %+v, %v", m, got, ok)
		}
		if len(b) > MaxMessage {
			t.Errorf("%+v has %d bytes", m, len(b))
		}
		if !Genuine(b, secret) || Genuine(b, "ANOTHER") {
			t.Errorf("%+v is taken for another's", m)
		}
		for i := range b { // no byte is left out of the MAC
			changed := bytes.Clone(b)
			changed[i] ^= 1
			if _, ok := Parse(changed); ok && Genuine(changed, secret) {
				t.Errorf("%+v with byte %d changed is genuine", m, i)
			}
		}
	}
}

// What a secret is used for keeps one use from passing for another.
func TestNamesAreNoMACs(t *testing.T) {
	if a, b := NameOf(secret, "x"), NameOf(secret, "y"); a == b || a == NameOf("ANOTHER", "x") {
		t.Error("two locks, or two secrets, have one name")
	}
	if bytes.Equal(sum(secret, "a", "b"), sum(secret, "ab", "")) {
		t.Error("what it is for runs into the text")
	}
}

func FuzzParse(f *testing.F) {
	for _, m := range samples() {
		f.Add(m.Append(nil, secret))
	}
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, ok := Parse(b)
		if !ok {
			return
		}
		genuine := Genuine(b, secret)
		again := m.Append(nil, secret)
		if !bytes.Equal(again[:len(again)-macLen], b[:len(b)-macLen]) {
			t.Errorf("%x is read as %+v, which is written as %x", b, m, again)
		}
		if genuine != bytes.Equal(again, b) {
			t.Errorf("%x is genuine: %v", b, genuine)
		}
		h := NewHeld(secret, "PRIVATE")
		h.Begin("x", lease, nil)
		if answer, _ := h.Heard(0, b, m); answer != nil && len(answer.Message) > len(b) {
			t.Errorf("the answer to %d bytes has %d", len(b), len(answer.Message))
		}
	})
}

// pair is a holder and a waiter.
type pair struct {
	t    *testing.T
	held *Held
	lock *Lock
	w    *Waits
	v    *Waiting
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t, held: NewHeld(secret, "PRIVATE"), w: NewWaits("B", lease, env())}
	p.lock = p.held.Begin("x", lease, nil)
	p.v = p.w.Begin(0, "x", Target("A", secret), lease, often, func() {})
	return p
}

// ask has the waiter send what is due, and returns the answer.
func (p *pair) ask(now time.Duration) *Packet {
	p.t.Helper()
	packet, _ := p.v.Step(now)
	if packet == nil {
		return nil
	}
	return p.hears(now, packet)
}

func (p *pair) hears(now time.Duration, packet *Packet) *Packet {
	p.t.Helper()
	m, ok := Parse(packet.Message)
	if !ok || packet.To != "A" {
		p.t.Fatalf("%x to %s is no message", packet.Message, packet.To)
	}
	answer, _ := p.held.Heard(now, packet.Message, m)
	return answer
}

func (p *pair) told(now time.Duration, packet *Packet) {
	p.t.Helper()
	m, ok := Parse(packet.Message)
	if !ok || packet.To != "B" {
		p.t.Fatalf("%x to %s is no message", packet.Message, packet.To)
	}
	p.w.Heard(now, packet.Message, m)
}

// A waiter is notified when it has repeated the holder's word, and not before; then three
// times in a lease.
func TestWaiterRepeatsTheWord(t *testing.T) {
	p := newPair(t)
	first := p.ask(0)
	if len(p.held.Notify(0, p.lock)) != 0 {
		t.Error("notified without the word")
	}
	p.told(0, first)
	if at := p.v.Next(); at != 0 {
		t.Errorf("the word is repeated at %v", at)
	}
	p.told(0, p.ask(0))
	if packets := p.held.Notify(0, p.lock); len(packets) != 1 || packets[0].To != "B" {
		t.Fatalf("notified: %v", packets)
	}
	sent := 0
	for now := time.Duration(0); now < 10*lease; now += 10 * time.Millisecond {
		if answer := p.ask(now); answer != nil {
			p.told(now, answer)
			sent++
		}
	}
	if sent < 25 || sent > 35 {
		t.Errorf("%d messages in 10 leases", sent)
	}
	if n := len(p.held.Notify(10*lease, p.lock)); n != 1 {
		t.Errorf("%d places for one waiter", n)
	}
	if n := len(p.held.Notify(12*lease, p.lock)); n != 0 {
		t.Error("notified although it was not heard for more than a lease")
	}
}

// Without answers the messages become rarer, and they never end.
func TestWaiterWithoutAnswers(t *testing.T) {
	p := newPair(t)
	sent, last := 0, time.Duration(0)
	for now := time.Duration(0); now < 10*lease; now += 10 * time.Millisecond {
		if p.ask(now) != nil {
			sent, last = sent+1, now
		}
	}
	if sent < 25 || sent > 45 || last < 9*lease {
		t.Errorf("%d messages in 10 leases, the last at %v", sent, last)
	}
}

// Forged answers put off no message for long: the holder would forget the waiter.
func TestForgedAnswersPutOffNothing(t *testing.T) {
	p := newPair(t)
	p.told(0, p.ask(0))
	answer := p.ask(0)
	sent := 0
	for now := time.Duration(0); now < 10*lease; now += 10 * time.Millisecond {
		p.told(now, answer)
		if p.ask(now) != nil {
			sent++
		}
	}
	if sent < 25 {
		t.Errorf("%d messages in 10 leases", sent)
	}
}

// Answers that change their word are not followed without a limit.
func TestChangingWordsAreFollowedSlowly(t *testing.T) {
	p := newPair(t)
	sent := 0
	for now := time.Duration(0); now < lease; now += 10 * time.Millisecond {
		m := Message{Kind: Ack, Lock: NameOf(secret, "x"), Nonce: p.v.nonce, Echo: ID{byte(now / 1e7), byte(now / 1e9), 9}}
		p.told(now, &Packet{"B", m.Append(nil, secret)})
		if p.ask(now) != nil {
			sent++
		}
	}
	if most := perLease + 5; sent > most {
		t.Errorf("%d messages in a lease, %d are allowed", sent, most)
	}
}

// The lease in a record does not say how often a process sends.
func TestShortLeasesCauseFewMessages(t *testing.T) {
	w := NewWaits("B", lease, env())
	v := w.Begin(0, "x", Target("A", secret), time.Nanosecond, often, func() {})
	sent := 0
	for now := time.Duration(0); now < 10*often; now += time.Millisecond {
		if packet, _ := v.Step(now); packet != nil {
			sent++
		}
	}
	if most := int(10*often*perLease/lease) + 2; sent > most || sent < 3 {
		t.Errorf("%d messages in 10 refresh periods", sent)
	}
}

// Nor does a process that polls rarely send rarely: the holder would forget it.
func TestRarePollsLeaveTheHolderInformed(t *testing.T) {
	p := newPair(t)
	p.v = p.w.Begin(0, "x", Target("A", secret), lease, time.Hour, func() {})
	for now := time.Duration(0); now < 10*lease; now += 10 * time.Millisecond {
		if answer := p.ask(now); answer != nil {
			p.told(now, answer)
		}
		if now > lease && len(p.held.Notify(now, p.lock)) != 1 {
			t.Fatalf("the holder does not know of it at %v", now)
		}
	}
}

// The word is that of one lock, one waiter and one address.
func TestWordIsOfOneWaiter(t *testing.T) {
	h := NewHeld(secret, "PRIVATE")
	m := Message{Kind: Wait, Lock: NameOf(secret, "x"), Nonce: ID{1}, Address: "B"}
	other := []Message{m, m, m}
	other[0].Lock = NameOf(secret, "y")
	other[1].Nonce = ID{2}
	other[2].Address = "C"
	for _, o := range other {
		if h.word(o) == h.word(m) {
			t.Errorf("%+v and %+v have one word", o, m)
		}
	}
	if h.word(m) == NewHeld(secret, "ANOTHER").word(m) {
		t.Error("a process that knows the secret knows the word")
	}
}

// A holder remembers so many waiters and no more, and the new ones come in when the old
// ones have gone.
func TestWaitersAreBounded(t *testing.T) {
	h := NewHeld(secret, "PRIVATE")
	l := h.Begin("x", lease, nil)
	enter := func(now time.Duration, i int) bool {
		m := Message{Kind: Wait, Lock: l.id, Nonce: ID{1}, Address: fmt.Sprint("W", i)}
		m.Echo = h.word(m)
		b := m.Append(nil, secret)
		answer, _ := h.Heard(now, b, m)
		return answer != nil
	}
	for i := range MaxWaiters {
		if !enter(0, i) || !enter(1, i) {
			t.Fatalf("no room for waiter %d", i)
		}
	}
	if enter(1, MaxWaiters) {
		t.Error("there is room for one more")
	}
	packets := h.Notify(lease/2, l)
	if len(packets) != MaxWaiters {
		t.Fatalf("%d were notified", len(packets))
	}
	for i, packet := range packets {
		if m, _ := Parse(packet.Message); int(m.Place) != i || packet.To != fmt.Sprint("W", i) {
			t.Fatalf("%s has place %d, want %d", packet.To, m.Place, i)
		}
	}
	if !enter(2*lease, MaxWaiters) || len(h.Notify(2*lease, l)) != 1 {
		t.Error("there is no room although the others have gone")
	}
	h.End(l)
	if h.waiters != 0 || len(h.locks) != 0 || enter(2*lease, 1) {
		t.Error("something is left of a lock that ended")
	}
	for range 3 { // lost, and granted again
		h.Begin("x", lease, nil)
		enter(0, 1)
	}
	if h.waiters != 1 {
		t.Errorf("%d waiters after a lock was granted again", h.waiters)
	}
	h.End(h.locks[NameOf(secret, "x")])
	for i := range 2 * maxAllWaiters / MaxWaiters {
		l = h.Begin(fmt.Sprint("lock", i), lease, nil)
		for i := range MaxWaiters {
			enter(0, i)
		}
	}
	if h.waiters != maxAllWaiters {
		t.Errorf("%d waiters of all locks, at most %d are allowed", h.waiters, maxAllWaiters)
	}
}

// Observers are notified after the waiters that want the lock, and make room for them.
func TestObserversComeLast(t *testing.T) {
	h := NewHeld(secret, "PRIVATE")
	l := h.Begin("x", lease, nil)
	enter := func(name string, observes bool) bool {
		m := Message{Kind: Wait, Lock: l.id, Nonce: ID{1}, Address: name}
		if observes {
			m.Place = 1
		}
		m.Echo = h.word(m)
		answer, _ := h.Heard(0, m.Append(nil, secret), m)
		return answer != nil
	}
	for i := range MaxWaiters {
		enter(fmt.Sprint("O", i), true)
	}
	if enter("late", true) {
		t.Error("there is room for one more that observes")
	}
	if !enter("W0", false) || !enter("W1", false) || !enter("O9", false) {
		t.Fatal("there is no room for those who want the lock")
	}
	packets := h.Notify(0, l)
	var first []string
	for _, packet := range packets[:4] {
		first = append(first, packet.To)
	}
	if got := strings.Join(first, " "); len(packets) != MaxWaiters || got != "O9 W0 W1 O2" {
		t.Errorf("%d were notified, first %s", len(packets), got)
	}
}

// Who observes, and then wants the lock, says so at once, and not again and again.
func TestObserverThatWantsTheLock(t *testing.T) {
	p := newPair(t)
	p.v.Observes(0, true)
	for range 2 {
		p.told(0, p.ask(0))
	}
	if w := p.lock.waiters; len(w) != 1 || !w[0].observes {
		t.Fatalf("waiters: %v", w)
	}
	p.v.Observes(often, false)
	p.told(often, p.ask(often))
	if p.lock.waiters[0].observes {
		t.Error("the holder was not told")
	}
	sent := 0
	for now := often; now < 11*often; now += 10 * time.Millisecond {
		p.v.Observes(now, true)
		p.v.Observes(now, false)
		if answer := p.ask(now); answer != nil {
			p.told(now, answer)
			sent++
		}
	}
	if sent > 42 {
		t.Errorf("%d messages in 10 refresh periods", sent)
	}
}

// Hints come at once, then at most four in a refresh period, each after its place.
func TestHintsAreBounded(t *testing.T) {
	p := newPair(t)
	hint := func(now time.Duration, place uint16) {
		m := Message{Kind: Notify, Lock: p.v.id, Nonce: p.v.nonce, Place: place}
		p.told(now, &Packet{"B", m.Append(nil, secret)})
	}
	looks := func(from, to time.Duration) (at []time.Duration) {
		for now := from; now < to; now += time.Millisecond {
			if _, look := p.v.Step(now); look {
				at = append(at, now)
			}
		}
		return at
	}
	hint(0, 3)
	if at := looks(0, often); len(at) != 1 || at[0] != 3*apart {
		t.Errorf("place 3 looks at %v", at)
	}
	hint(often, 9)
	hint(often, 1)
	if at := looks(often, 2*often); len(at) != 1 || at[0] != often+apart {
		t.Errorf("places 9 and 1 look at %v", at)
	}
	n := 0
	for now := 2 * often; now < 12*often; now += time.Millisecond {
		hint(now, 0)
		if _, look := p.v.Step(now); look {
			n++
		}
	}
	if n < 35 || n > 41 {
		t.Errorf("%d hints in 10 refresh periods", n)
	}
	// Another tenure has no more of them.
	now := p.v.hinted + time.Millisecond
	next := p.w.Begin(now, "x", Target("C", "OTHER"), lease, often, func() {})
	next.Follows(p.v)
	p.v = next
	m := Message{Kind: Notify, Lock: next.id, Nonce: next.nonce}
	p.w.Heard(now, m.Append(nil, "OTHER"), m)
	if at := looks(now, now+often); len(at) != 1 || at[0] != now-time.Millisecond+often/4 {
		t.Errorf("a notification of the next holder looks at %v", at)
	}
}

// Notifications of another wait, and those that are forged without the secret, count for nothing.
func TestRingsOfOthers(t *testing.T) {
	p := newPair(t)
	for _, tt := range []struct {
		m      Message
		secret string
	}{
		{Message{Kind: Notify, Lock: p.v.id, Nonce: ID{99}}, secret},
		{Message{Kind: Notify, Lock: p.v.id, Nonce: p.v.nonce}, "ANOTHER"},
		{Message{Kind: Notify, Lock: NameOf(secret, "y"), Nonce: p.v.nonce}, secret},
	} {
		b := tt.m.Append(nil, tt.secret)
		p.w.Heard(0, b, tt.m)
		if _, look := p.v.Step(0); look {
			t.Errorf("%+v has the record looked at", tt.m)
		}
	}
	p.w.End(p.v)
	m := Message{Kind: Notify, Lock: p.v.id, Nonce: p.v.nonce}
	p.w.Heard(0, m.Append(nil, secret), m)
	if _, look := p.v.Step(0); look {
		t.Error("notified after the wait has ended")
	}
}

// A target in a record may be anything: a target in another form is invalid.
func TestMalformedTargets(t *testing.T) {
	w := NewWaits("B", lease, env())
	for _, target := range []string{"", "A", "A ", " S", "A S T", "A\x00 S", "Ä S", strings.Repeat("a", MaxAddress+1) + " S", strings.Repeat("a", 300)} {
		if w.Begin(0, "x", target, lease, often, func() {}) != nil || AskedOf("x", target, ID{}) != nil {
			t.Errorf("%q is taken for a target", target)
		}
	}
	for _, l := range []time.Duration{0, -1} {
		if w.Begin(0, "x", Target("A", secret), l, often, func() {}) != nil {
			t.Errorf("a lease of %v is waited for", l)
		}
	}
}

// A request is heard by the holder of the secret alone.
func TestAsked(t *testing.T) {
	h := NewHeld(secret, "PRIVATE")
	heard := 0
	h.Begin("x", lease, func() { heard++ })
	for _, target := range []string{Target("A", secret), Target("A", "ANOTHER")} {
		packet := AskedOf("x", target, ID{1})
		m, _ := Parse(packet.Message)
		answer, asked := h.Heard(0, packet.Message, m)
		if answer != nil {
			t.Error("it is answered")
		}
		if asked != nil {
			asked()
		}
	}
	// The sender has seen the name of the lock in a message, and does not know the secret.
	for _, m := range []Message{
		{Kind: Asked, Lock: NameOf(secret, "x")},
		{Kind: Wait, Lock: NameOf(secret, "x"), Address: "B"},
	} {
		if answer, asked := h.Heard(0, m.Append(nil, "ANOTHER"), m); answer != nil || asked != nil {
			t.Errorf("%+v is heard without the secret", m)
		}
	}
	if heard != 1 {
		t.Errorf("heard %d times, want once", heard)
	}
}
