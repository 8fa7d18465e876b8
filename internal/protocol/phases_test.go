// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// walk is a session with two locks under it, and a lease of its own, to all of which
// random things happen. After each step it checks all four.
type walk struct {
	t       *testing.T
	r       *rand.Rand
	now     time.Duration
	session *Keeper
	all     []*Holder
	was     map[*Holder]Holder
	out     map[*Holder]*Call
	seen    map[string]int
}

func newWalk(t *testing.T, seed uint64, seen map[string]int) *walk {
	w := &walk{t: t, r: rand.New(rand.NewPCG(seed, 1)), was: map[*Holder]Holder{}, out: map[*Holder]*Call{}, seen: seen}
	timing := Timing{Progress: time.Duration(seed%2) * 4 * time.Second, StopTimeout: time.Duration(1+seed%3) * 3 * time.Second}.WithDefaults()
	env := counting()
	w.session = NewKeeper(timing, env, Grant{Record: alive(timing, "s", "v")})
	w.all = []*Holder{w.session.Holder, NewHolder(timing, env, Grant{Record: theirs(timing, "v", 7)})}
	for range 2 {
		w.all = append(w.all, NewTied(timing, env, Grant{Record: under(timing, "s", "v", 7)}, w.session))
	}
	return w
}

// machine returns the machine of a holder: the session's is its keeper.
func (w *walk) machine(h *Holder) Machine {
	if h == w.session.Holder {
		return w.session
	}
	return h
}

// took carries out what a machine asks for.
func (w *walk) took(h *Holder, a Action) {
	if a.Call != nil {
		w.out[h] = a.Call
	}
	for _, m := range a.Wake {
		switch m := m.(type) {
		case *Keeper:
			w.took(m.Holder, m.Step(w.now))
		case *Holder:
			w.took(m, m.Step(w.now))
		}
	}
	for i, h := range w.all {
		if err := h.Invariant(w.was[h]); err != nil {
			w.t.Fatalf("holder %d: not so: %v\nwas %+v\nis  %+v", i, err, w.was[h], *h)
		}
		w.was[h] = *h
		w.seen[fmt.Sprintf("tied %v, phase %d", h.under != nil, h.phase)]++
		w.seen[fmt.Sprintf("tied %v, silence %d", h.under != nil, h.silence)]++
		w.seen[fmt.Sprintf("tied %v, %v, done %v", h.under != nil, h.freed, h.done())]++
	}
}

// answer returns what a store may say to a call.
func (w *walk) answer(c *Call) Result {
	switch w.r.IntN(12) {
	case 0:
		return Result{Outcome: Unknown, Err: errStore}
	case 1:
		return Result{Outcome: NotApplied, Err: errStore}
	case 2: // applied, and the answer to an earlier one was lost
		return conflict(c.Next)
	case 3:
		rec := c.Prev.Clone()
		rec.Version, rec.Requests = fmt.Sprint("q", w.now), []driver.Request{w.request()}
		return conflict(rec)
	case 4:
		if w.r.IntN(8) == 0 {
			return conflict(driver.Record{Key: c.Key, Version: "x", Beat: "x", Owner: "x", Token: c.Prev.Token + 1, State: driver.Held})
		}
	}
	return found(c.Next)
}

func (w *walk) request() driver.Request {
	q := driver.Request{ID: fmt.Sprint("q", w.now), Kind: driver.StepDown, Lock: "k", Token: 7}
	if w.r.IntN(2) == 0 {
		q.Kind, q.To = driver.HandOver, "x"
	}
	return q
}

// step has something happen to one of them.
func (w *walk) step() {
	h := w.all[w.r.IntN(len(w.all))]
	w.now += time.Duration(w.r.IntN(1000)) * time.Millisecond
	if at, due := w.machine(h).Next(); due && w.r.IntN(2) == 0 {
		w.now = max(w.now, min(at, w.now+time.Minute))
	}
	if c := w.out[h]; c != nil && w.r.IntN(4) > 0 {
		w.out[h] = nil
		w.took(h, w.machine(h).Reply(w.now, w.answer(c)))
		return
	}
	var a Action
	switch n := w.r.IntN(60); {
	case n == 0:
		a = w.stop(h)
	case n == 1 && w.r.IntN(4) == 0:
		a = w.machine(h).GiveUp(w.now)
	case n == 2 && w.r.IntN(8) == 0 && h == w.session.Holder:
		a = w.session.Replace(w.now, errStore)
	case n == 2 && w.r.IntN(8) == 0:
		a = h.Replace(w.now, errStore)
	case h == w.session.Holder: // it is told no more
		a = w.session.Step(w.now)
	case n == 3:
		a = h.HandOver(w.now, driver.Request{To: []string{"", "x"}[w.r.IntN(2)]})
	case n == 4:
		_, a = h.SetData(w.now, []byte("d"))
	case n == 5:
		a = h.Renew(w.now)
	case n == 6 && w.r.IntN(2) == 0:
		_, a = h.Leave(w.now, []byte("d"), &driver.Request{Reason: "failed"})
	case n < 10 && h.phase >= stopping:
		a = h.Done(w.now)
	case n < 40:
		h.Progress(w.now)
		a = h.Step(w.now)
	default:
		a = h.Step(w.now)
	}
	w.took(h, a)
}

func (w *walk) stop(h *Holder) Action {
	if h == w.session.Holder {
		return w.session.Stop(w.now)
	}
	return h.Stop(w.now)
}

// TestPhases: whatever happens, and in whatever order, what is said of a holder's state
// holds after each step.
func TestPhases(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(700) {
		w := newWalk(t, seed, seen)
		for range 150 {
			w.step()
		}
	}
	for _, want := range []string{
		"tied false, phase 0", "tied false, phase 1", "tied false, phase 2", "tied false, phase 3", "tied true, phase 4",
		"tied false, silence 1", "tied false, silence 2", "tied true, silence 1", "tied true, silence 2", "tied true, silence 3", "tied true, silence 4",
		"tied false, released, done true", "tied false, gone, done false", "tied false, gone, done true", "tied false, uncertain, done true", "tied false, kept, done true",
		"tied true, released, done true", "tied true, released, done false", "tied true, gone, done false",
	} {
		if seen[want] < 5 {
			t.Errorf("the walks hardly reach %s: %v", want, seen)
		}
	}
}
