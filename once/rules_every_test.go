// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import (
	"testing"
	"time"
)

// The mistakes of Every.
const (
	beforeTheRead   mistake = "an age counts from before the read"
	fromTheSend     mistake = "one's own claim counts from the send"
	anyPeriod       mistake = "a former leader's age counts for the next period"
	anyLedger       mistake = "an age counts for the same number of another ledger"
	twoWrites       mistake = "claim and reset are two writes"
	holdersClock    mistake = "an age goes by the holder's clock, which is stepped"
	claimWithPeriod mistake = "the claim of the lock carries the number of periods"
	runsUnconfirmed mistake = "the work runs before its period is confirmed"
	oldAtFirst      mistake = "a ledger begins at the age of a period"
	agesUnconfirmed mistake = "a period that is not confirmed is aged"
)

const (
	rulePeriod = time.Minute
	ruleDrift  = 0.09
)

// everyWorld is hosts that keep time, with clocks that are wrong by 9 % at most.
type everyWorld struct {
	*board
	wrong   mistake
	catchUp int
	hosts   []*everyHost

	now   time.Duration // true time
	fill  time.Duration // see Spaced in spec/Every.tla
	since time.Duration // when it was filled
	id    string
	n     int64
	begun map[string]int64 // by ledger
	ran   map[string]int64
	runs  int
}

type everyHost struct {
	*seat
	rate    float64
	elapsed time.Duration
	at      string
	asked   time.Duration // when the request under way was sent first; 0 if none
	seen    since
	period  since
	led     periods
}

func newEveryWorld(seed uint64, wrong mistake) *everyWorld {
	w := &everyWorld{
		board: newBoard(seed, 3), wrong: wrong, catchUp: int(seed % 3), //nolint:gosec // it is below 3
		begun: map[string]int64{}, ran: map[string]int64{},
	}
	w.wrote = w.check
	for i, s := range w.seats {
		w.hosts = append(w.hosts, &everyHost{seat: s, at: "wait", rate: 1 + ruleDrift*float64(1-i)})
	}
	return w
}

func (w *everyWorld) pass(d time.Duration) {
	w.now += d
	for _, h := range w.hosts {
		h.elapsed += time.Duration(float64(d) * h.rate)
	}
}

func everySchedule(seed uint64, wrong mistake) error {
	w := newEveryWorld(seed, wrong)
	for step := 0; step < 3000 && w.found == nil; step++ {
		w.pass(time.Duration(w.random.Int64N(int64(rulePeriod / 30))))
		switch h := w.hosts[w.random.IntN(len(w.hosts))]; {
		case w.chance(3):
			w.deliver()
		case w.chance(100):
			w.pass(time.Duration(w.random.Int64N(int64(3 * rulePeriod))))
		case w.chance(60):
			h.good = false
		case w.chance(200): // crashes
			h.leave()
			h.at, h.seen, h.asked = "wait", since{}, 0
		case w.chance(700): // an operator deletes the record
			w.record.held, w.record.data, w.record.version = false, nil, w.record.version+1
		case w.wrong == holdersClock && w.chance(50):
			h.elapsed += rulePeriod / 2
		default:
			w.step(h)
		}
	}
	return w.found
}

// check is called with what a write has left in the record.
func (w *everyWorld) check(data []byte) {
	l, err := parseEvery(data, w.record.token)
	if err != nil {
		w.fail("the ledger: %v", err)
		return
	}
	switch {
	case l.ID != w.id || l.N == w.n:
	case l.N != w.n+1:
		w.fail("period %d follows period %d", l.N, w.n)
	}
	if l.N != 0 && (l.ID != w.id || l.N != w.n) {
		least := time.Duration(float64(rulePeriod.Nanoseconds()) / (1 + ruleDrift))
		w.fill = max(0, w.fill-(w.now-w.since)) + least
		if most := time.Duration(w.catchUp+1) * least; w.fill > most+time.Microsecond {
			w.fail("period %d begins at %v: %v too soon, with a catch-up of %d", l.N, w.now, w.fill-most, w.catchUp)
		}
		w.since, w.begun[l.ID] = w.now, l.N
	}
	w.id, w.n = l.ID, l.N
}

func (w *everyWorld) older(s, other since) since {
	if w.wrong == anyPeriod && other.id == s.id {
		other.n = s.n
	}
	if w.wrong == anyLedger && other.n == s.n {
		other.id = s.id
	}
	return s.older(other)
}

// note is timekeeper.note.
func (w *everyWorld) note(h *everyHost, s since) since {
	s = w.older(s, h.seen)
	h.seen = s.newer(h.seen)
	return s
}

// received returns from when an answer of now counts.
func (w *everyWorld) received(h *everyHost, late mistake) time.Duration {
	at := h.elapsed
	if w.wrong == late && h.asked != 0 {
		at = h.asked
	}
	h.asked = 0
	return at
}

func (h *everyHost) campaign() {
	h.leave()
	h.at, h.asked = "wait", 0
}

func (w *everyWorld) step(h *everyHost) {
	switch h.at {
	case "wait":
		w.wait(h)
	case "lead":
		w.lead(h)
	case "claim":
		w.claim(h)
	case "leave":
		if h.yes || !w.mine(h.seat) || w.chance(10) {
			h.campaign()
			return
		}
		w.send(write{by: h.seat, frees: true, data: h.led.bytes()})
	}
}

func (w *everyWorld) wait(h *everyHost) {
	l, err := parseEvery(w.record.data, w.record.token)
	switch {
	case err != nil:
		w.fail("the ledger: %v", err)
	case h.got && !h.good:
		h.campaign()
	case h.got:
		w.granted(h)
	case h.asked == 0:
		h.asked = h.elapsed
	case w.chance(2) && l.ID != "": // a look
		w.note(h, l.noted(w.received(h, beforeTheRead)))
	default:
		var data []byte
		if w.wrong == claimWithPeriod && h.led.ID != "" {
			data = h.led.bytes()
		}
		w.acquire(h.seat, data)
	}
}

// granted is timekeeper.lead.
func (w *everyWorld) granted(h *everyHost) {
	l, err := parseEvery(h.data, h.token)
	if err != nil {
		w.fail("the ledger: %v", err)
		return
	}
	if l.ID == "" {
		l = newPeriods()
		if w.wrong == oldAtFirst {
			l.Age = rulePeriod.Milliseconds()
		}
	}
	h.led, h.period = l, w.note(h, l.noted(w.received(h, beforeTheRead)))
	h.at, h.asked = "lead", 0
	h.begin()
}

// lead is term.keep.
func (w *everyWorld) lead(h *everyHost) {
	age := h.period.now(h.elapsed)
	switch {
	case !h.good:
		h.campaign()
	case age >= rulePeriod:
		h.led = h.led.claimed(age, rulePeriod, w.catchUp, entry{Token: h.token})
		if w.wrong == twoWrites {
			h.led.Age = age.Milliseconds()
		}
		h.at = "claim"
		h.begin()
	case w.chance(20): // in order
		h.led = h.led.aged(h.period, h.elapsed)
		h.at = "leave"
		h.begin()
	case w.mine(h.seat) && w.chance(3):
		h.led = h.led.aged(h.period, h.elapsed)
		w.send(write{by: h.seat, data: h.led.bytes()})
	}
}

// claim is term.begin.
func (w *everyWorld) claim(h *everyHost) {
	switch {
	case !h.good: // told that it was not run
		h.campaign()
	case h.yes || w.wrong == runsUnconfirmed:
		h.period = h.led.noted(w.received(h, fromTheSend))
		if w.wrong == twoWrites {
			h.period.age = 0
		}
		w.note(h, h.period)
		w.run(h)
		h.at = "lead"
		h.begin()
	case w.chance(20): // stops; the release may be what begins the period
		h.at = "leave"
		h.begin()
		if w.wrong == agesUnconfirmed {
			h.led = h.led.aged(h.led.noted(h.elapsed-rulePeriod/2), h.elapsed) // a pause of that length
		}
	case w.mine(h.seat):
		if h.asked == 0 {
			h.asked = h.elapsed
		}
		w.send(write{by: h.seat, data: h.led.bytes()})
	}
}

func (w *everyWorld) run(h *everyHost) {
	w.runs++
	if h.led.N <= w.ran[h.led.ID] {
		w.fail("period %d runs after period %d of its ledger", h.led.N, w.ran[h.led.ID])
	}
	if h.led.N > w.begun[h.led.ID] {
		w.fail("period %d runs, and the store has begun %d", h.led.N, w.begun[h.led.ID])
	}
	w.ran[h.led.ID] = h.led.N
}

func TestRulesOfEvery(t *testing.T) {
	findsAll(t, 100, everySchedule,
		beforeTheRead, fromTheSend, anyPeriod, anyLedger, twoWrites, holdersClock, claimWithPeriod,
		runsUnconfirmed, oldAtFirst, agesUnconfirmed)
}
