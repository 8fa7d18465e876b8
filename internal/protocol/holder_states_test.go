// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// walk applies random events to a session, two locks under it, and an independent
// lease. It checks all four after each step.
type walk struct {
	t       *testing.T
	r       *rand.Rand
	now     time.Duration
	session *SessionHolder
	all     []*Holder
	was     map[*Holder]stand
	out     map[*Holder]*Call
	seen    map[string]int
}

func newWalk(t *testing.T, seed uint64, seen map[string]int) *walk {
	w := &walk{t: t, r: rand.New(rand.NewPCG(seed, 1)), was: map[*Holder]stand{}, out: map[*Holder]*Call{}, seen: seen}
	timing := Timing{Progress: time.Duration(seed%2) * 4 * time.Second, StopTimeout: time.Duration(1+seed%3) * 3 * time.Second}.WithDefaults()
	env := counting()
	w.session = NewSessionHolder(timing, env, Grant{Record: alive(timing, "s", "v")})
	w.all = []*Holder{w.session.Holder, NewHolder(&timing, &env, Grant{Record: theirs(timing, "v", 7)})}
	for range 2 {
		w.all = append(w.all, NewUnderSession(&timing, &env, Grant{Record: under(timing, "s", "v", 7)}, w.session))
	}
	return w
}

// machine returns the machine of a holder: the session's is its session holder.
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
		case *SessionHolder:
			w.took(m.Holder, m.Step(w.now))
		case *Holder:
			w.took(m, m.Step(w.now))
		}
	}
	for i, h := range w.all {
		is := standOf(h)
		if err := is.follows(w.was[h]); err != nil {
			w.t.Fatalf("holder %d: not so: %v\nwas %+v\nis  %+v", i, err, w.was[h], is)
		}
		w.was[h] = is
		w.seen[fmt.Sprintf("under a session %v, %s and %s", h.under != nil, is.work, is.state)]++
	}
}

// stand is the state of a holder.
type stand struct {
	work, state    string
	cause          Cause
	expired, quiet bool
	done, over     bool
	freed          Freed
	sent, deadline time.Duration
}

func standOf(h *Holder) stand {
	name := func(state any) string {
		_, name, _ := strings.Cut(fmt.Sprintf("%T", state), ".")
		return name
	}
	state := name(h.state)
	if state == name(superseded{}) {
		state = name(over{})
	}
	return stand{
		name(h.work), state, h.Cause(), h.Expired(), h.Quiet(), h.done(), h.Over(), h.Freed(), h.sent, h.Deadline(),
	}
}

// follows returns an error that names the rule that a step from the state was to is
// breaks, beyond what the types enforce.
func (is stand) follows(was stand) error {
	for _, rule := range []struct {
		words string
		holds bool
	}{
		{"only a machine whose right to act has ended is over", !is.over || is.cause != None},
		{"the first cause stays", was.cause == None || is.cause == was.cause},
		{"whose right ended by the deadline has expired", is.cause != Expired || is.expired},
		{"what has expired stays so, and its deadline", !was.expired || is.expired && is.deadline == was.deadline},
		{"what is quiet stays so", !was.quiet || is.quiet},
		{"work that has returned stays so", !was.done || is.done},
		{"nothing expires or goes quiet then", !was.done || is.expired == was.expired && is.quiet == was.quiet},
		{"how the record was left stays", !was.over || is.freed == was.freed},
		{"the confirmed sending only rises, and stays when the lease has expired", is.sent == was.sent || is.sent > was.sent && !was.expired},
	} {
		if !rule.holds {
			return errors.New(rule.words)
		}
	}
	return nil
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

// step applies an event to one of them.
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
	case n < 10 && h.Cause() != None:
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

// TestHolderStates: whatever happens, in any order, a holder only moves forward, and
// reaches exactly the pairs of states that its comment lists.
func TestHolderStates(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(700) {
		w := newWalk(t, seed, seen)
		for range 150 {
			w.step()
		}
	}
	for _, pair := range []string{
		"running and beating", "draining and beating", "overdue and silent", "returned and releasing", "unused and releasing",
		"draining and over", "overdue and over", "returned and over", "unused and over",
	} {
		for _, under := range []bool{false, true} {
			if name := fmt.Sprintf("under a session %v, %s", under, pair); seen[name] < 5 {
				t.Errorf("the walks hardly reach %s: %v", name, seen)
			}
			delete(seen, fmt.Sprintf("under a session %v, %s", under, pair))
		}
	}
	for _, pair := range []string{
		"overdue and releasing", "overdue and withSession", "returned and withSession",
	} {
		if name := "under a session true, " + pair; seen[name] < 1 {
			t.Errorf("the walks do not reach %s: %v", name, seen)
		}
		delete(seen, "under a session true, "+pair)
	}
	if len(seen) > 0 {
		t.Errorf("the walks reach what the comment does not list: %v", seen)
	}
}
