// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import (
	"fmt"
	"math"
	"testing"
)

// The mistakes of Once.
const (
	unconfirmed   mistake = "the work begins before the mark is confirmed"
	unchecked     mistake = "no check after the mark is confirmed"
	claimWithData mistake = "the claim of the lock carries the ledger"
	readBefore    mistake = "the ledger is read before the lock is held"
	endByItself   mistake = "the end of a run is written after the release"
	asText        mistake = "slots are compared as text"
	spoiltIsEmpty mistake = "what is no ledger is read as an empty one"
	redoesAll     mistake = "a run that has ended is redone"
	dropsLowest   mistake = "the lowest span is dropped, and the floor does not rise"
)

// onceWorld is hosts that are asked for slots, as crontabs with wrong clocks do.
type onceWorld struct {
	*board
	wrong mistake
	Options
	next  int64
	hosts []*onceHost

	begun map[int64]uint64 // by slot, the token
	last  entry            // the latest run that was begun
	freed map[uint64]bool  // tenures that have ended in order
}

type onceHost struct {
	*seat
	at     string
	pause  int // steps of it that are left out
	slot   int64
	before []byte // what the store had when it was asked
	was    ledger
	led    ledger
}

func newOnceWorld(seed uint64, wrong mistake) *onceWorld {
	w := &onceWorld{
		board: newBoard(seed, 3), wrong: wrong, Options: Options{Redo: seed%2 == 1, OutOfOrder: seed/2%2 == 1, MaxAhead: -1}, next: 8,
		begun: map[int64]uint64{}, freed: map[uint64]bool{},
	}
	for _, s := range w.seats {
		w.hosts = append(w.hosts, &onceHost{seat: s, at: "idle"})
	}
	return w
}

func onceSchedule(seed uint64, wrong mistake) error {
	w := newOnceWorld(seed, wrong)
	for step := 0; step < 3000 && w.found == nil; step++ {
		switch h := w.hosts[w.random.IntN(len(w.hosts))]; {
		case w.chance(3):
			w.deliver()
		case w.chance(40):
			h.good = false
		case w.chance(150):
			h.leave()
			h.at = "idle"
		case w.chance(900) && !w.standing():
			w.record.data, w.record.version = []byte("spoilt"), w.record.version+1
		case h.pause > 0:
			h.pause--
		case w.chance(60):
			h.pause = w.random.IntN(40)
		default:
			w.step(h)
		}
	}
	return w.found
}

// parse is parseOnce, and refuse ledger.refuse.
func (w *onceWorld) parse(data []byte, token uint64) (ledger, error) {
	l, err := parseOnce(data, token)
	if err != nil && w.wrong == spoiltIsEmpty {
		return parseOnce(nil, token)
	}
	return l, err
}

func (w *onceWorld) refuse(l ledger, slot int64) error {
	last, ok := l.newest()
	switch {
	case w.wrong == asText && !w.OutOfOrder && ok && slot != last.Slot && (fmt.Sprint(slot) > fmt.Sprint(last.Slot)) != (slot > last.Slot):
		if slot > last.Slot {
			return ErrPassed
		}
		return nil
	case w.wrong == redoesAll && w.Redo && ok && slot == last.Slot:
		return nil
	}
	return l.refuse(slot, &w.Options, 0)
}

// begin is ledger.begin. There is nothing between two slots but slots.
func (w *onceWorld) begin(l ledger, e entry) ledger {
	first := int64(math.MinInt64)
	if w.OutOfOrder {
		first = e.Slot
	}
	if spans := l.Begun.with(span{first, e.Slot}).spans(); w.wrong == dropsLowest && len(spans) > maxSpans {
		l.Begun = begun(spans[1:])
	}
	return l.begin(e, first)
}

func (w *onceWorld) step(h *onceHost) {
	switch h.at {
	case "idle":
		if w.chance(4) {
			w.next++
		}
		h.leave()
		h.at, h.slot, h.before = "wait", max(1, w.next-w.random.Int64N(3)), w.record.data
		if w.OutOfOrder { // clocks that are far apart, and every second slot is missed
			h.slot = 2 * (w.next - w.random.Int64N(60))
		}
	case "wait":
		w.wait(h)
	case "mark":
		w.mark(h)
	case "work":
		h.led = h.led.end(entry{Slot: h.slot, Token: h.token, State: StateDone})
		h.begin()
		h.at = "leave"
	case "leave":
		switch {
		case h.yes || !w.mine(h.seat) || w.chance(10):
			w.freed[h.token] = w.freed[h.token] || h.yes
			h.at = "idle"
		case w.wrong == endByItself:
			w.send(write{by: h.seat, frees: true})
		default:
			w.send(write{by: h.seat, frees: true, data: h.led.bytes()})
		}
	}
}

func (w *onceWorld) wait(h *onceHost) {
	if !h.got {
		var data []byte
		if w.wrong == claimWithData {
			l, err := w.parse(w.record.data, w.record.token)
			if err != nil || w.refuse(l, h.slot) != nil {
				h.at = "idle"
				return
			}
			data = w.begin(l, entry{Slot: h.slot, Token: w.record.token + 1}).bytes()
		}
		w.acquire(h.seat, data)
		return
	}
	data := h.data
	if w.wrong == readBefore {
		data = h.before
	}
	l, err := w.parse(data, h.token)
	h.led = l
	switch {
	case !h.good:
		h.at = "idle"
	case w.wrong == claimWithData && err == nil && len(l.Runs) > 0 && l.Runs[len(l.Runs)-1].Token == h.token:
		h.at, h.slot, h.was = "mark", l.Runs[len(l.Runs)-1].Slot, l
		h.begin()
		h.yes = true
	case err != nil || w.refuse(l, h.slot) != nil:
		h.begin()
		h.at = "leave"
		if err != nil {
			h.at = "idle" // it runs out by itself
		}
	default:
		h.at, h.was, h.led = "mark", l, w.begin(l, entry{Slot: h.slot, Token: h.token})
		h.begin()
	}
}

func (w *onceWorld) mark(h *onceHost) {
	good := h.good || w.wrong == unchecked && h.yes
	switch {
	case !good || w.chance(20):
		if !h.good { // told that it was not run
			h.at = "idle"
			return
		}
		h.at, h.led = "leave", h.was
		h.begin()
	case h.yes || w.wrong == unconfirmed:
		h.at = "work"
		w.began(entry{Slot: h.slot, Token: h.token})
	case w.mine(h.seat):
		w.send(write{by: h.seat, data: h.led.bytes()})
	}
}

// began checks that the work may begin.
func (w *onceWorld) began(e entry) {
	if by, again := w.begun[e.Slot]; again && (!w.Redo || w.freed[by]) {
		w.fail("slot %d, begun under token %d, is begun again under token %d; redo %v", e.Slot, by, e.Token, w.Redo)
	}
	if e.Slot < w.last.Slot && !w.OutOfOrder || e.Token < w.last.Token {
		w.fail("slot %d is begun under token %d after slot %d under token %d", e.Slot, e.Token, w.last.Slot, w.last.Token)
	}
	w.begun[e.Slot], w.last = e.Token, e
}

func TestRulesOfOnce(t *testing.T) {
	findsAll(t, 100, onceSchedule,
		unconfirmed, unchecked, claimWithData, readBefore, endByItself, asText, spoiltIsEmpty, redoesAll, dropsLowest)
}
