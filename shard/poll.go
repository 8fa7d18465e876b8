// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
)

// poll looks at who coordinates, and at the roll if there is a new one.
func (w *worker) poll() {
	w.polls++
	st, err := w.office()
	if err != nil {
		w.trouble(err)
		return
	}
	o := parseOffice(st.Data)
	w.lead = st.Session
	w.mu.Lock()
	v := w.view
	// A claim of its own that came late: to stand is what has the session give it up.
	disowned := st.State == tenure.StateHeld && st.Session == w.session.ID() && w.coordinator == nil
	w.mu.Unlock()
	if o.Epoch != v.roll.Epoch && o.Epoch > 0 {
		w.readRoll(v)
	}
	if st.Held && st.Session == "" && st.Token != w.stranger {
		w.stranger = st.Token
		w.trouble(notOurs(st.Name, st.Owner, st.Token))
	}
	if st.Held && !disowned || st.State == tenure.StateReserved && st.FreeIn > 0 && st.ReservedFor != w.client.Options().Owner {
		w.silent = time.Time{}
		w.standBy()
	} else {
		w.stand(st, v.active == 0)
	}
}

// ownEach is how many polls a coordinator makes for each that reads its own record: somebody
// may have changed that by hand.
const ownEach = 5

// office looks at who coordinates: by a cheap read, unless it shows that something is to be
// done, or the worker leaves and must not miss a plan. The coordinator knows what it has
// written.
func (w *worker) office() (tenure.Status, error) {
	name := LeadName(w.g.name)
	if w.isLeaving() {
		return w.client.Status(w.ctx, name)
	}
	w.mu.Lock()
	c := w.coordinator
	w.mu.Unlock()
	if c != nil && w.polls%ownEach != 0 && c.lead.Check() == nil {
		if o := c.told.Load(); o != nil {
			return tenure.Status{Name: name, State: tenure.StateHeld, Held: true, Session: w.session.ID(), Data: o.bytes()}, nil
		}
	}
	list, errs := w.client.Statuses(w.ctx, []string{name}, &tenure.ReadOptions{Eventual: true})
	st, err := list[0], errs[0]
	w.mu.Lock()
	epoch, mine := w.view.roll.Epoch, w.coordinator != nil
	w.mu.Unlock()
	if err == nil && st.Held && (st.Session == w.session.ID()) == mine && parseOffice(st.Data).Epoch == epoch {
		return st, nil
	}
	return w.client.Status(w.ctx, name)
}

func (w *worker) readRoll(v *view) {
	st, err := w.client.Status(w.ctx, RollName(w.g.name))
	if err != nil {
		w.trouble(err)
		return
	}
	r, ok, err := parseRoll(st.Data)
	if !ok || err != nil || r.Epoch == v.roll.Epoch {
		w.trouble(err)
		return
	}
	s := v.spec
	if s.Revision != r.Revision {
		if s, ok, err = readSpec(w.ctx, w.client, w.g.name); !ok || err != nil {
			w.trouble(err)
			return
		}
	}
	if s.Revision != r.Revision {
		return // changed since; the roll that says so comes next
	}
	w.adopt(w.g.options.Plans.view(r, s, v))
}

// adopt has the worker go by a new plan.
func (w *worker) adopt(v *view) {
	id := w.session.ID()
	w.mu.Lock()
	w.vouch(v)
	before := w.view
	w.view = v
	if w.leaving {
		w.poke() // what is next goes by the roll
		w.hurryOn()
	}
	w.recallMoves()
	for lock, k := range w.known {
		if k.outdated(lock, id, before, v) {
			delete(w.known, lock)
		}
	}
	w.mu.Unlock()
	if w.departure != nil {
		w.departure.replaces(before, v, w.period)
	}
	me, in := v.in[id]
	ev := Event{Kind: EventPlan, Place: w.place, Epoch: v.roll.Epoch}
	if in {
		ev.Count = len(v.plan.Of(me.Place))
	}
	if in && !w.told {
		w.told = true
		w.events.emit(Event{Kind: EventJoined, Place: me.Place, Epoch: v.roll.Epoch})
	}
	w.events.emit(ev)
	if was, now := len(before.plan.Unassigned()), len(v.plan.Unassigned()); was != now && in {
		w.events.emit(Event{Kind: EventUnassigned, Place: w.place, Epoch: v.roll.Epoch, Count: now})
	}
}

// join takes a place: the lowest vacant one, so that a restarted worker finds
// its former one, and the plan has no holes.
func (w *worker) join() {
	st, err := w.client.Status(w.ctx, LeadName(w.g.name))
	if err != nil {
		w.trouble(err)
		return
	}
	names := make([]string, parseOffice(st.Data).Places)
	for i := range names {
		names[i] = MemberName(w.g.name, i)
	}
	var vacant []int
	for i, st := range w.statusesOf(names) {
		if st.err == nil && !st.Held && (st.State != tenure.StateReserved || st.FreeIn == 0) {
			vacant = append(vacant, i)
		}
	}
	for tried, choice := 0, 1; len(vacant) > 0 && w.ctx.Err() == nil; tried++ {
		if tried >= inOrder {
			choice *= 2
		}
		i := rand.N(min(choice, len(vacant)))
		place := vacant[i]
		l, err := w.session.TryAcquire(w.ctx, MemberName(w.g.name, place), &tenure.AcquireOptions{Data: w.profile(false).bytes()})
		if err == nil {
			w.mu.Lock()
			w.seat, w.place = l, place
			w.mu.Unlock()
			w.giveBack(l)
			return
		}
		if !errors.Is(err, tenure.ErrHeld) {
			w.trouble(err)
			return
		}
		vacant = slices.Delete(vacant, i, i+1)
	}
}

// inOrder is how many vacant places a joiner tries lowest first. After that it
// picks at random, so that many joiners do not race for the same place.
const inOrder = 32

func (w *worker) profile(leaving bool) profile {
	o := w.g.options
	p := profile{Weight: o.Weight, Zone: o.Zone, Max: o.Max, Address: o.Address, Leaving: leaving}
	if o.Prepare == nil && o.Max == 0 && len(w.client.Options().Owner) <= maxOwnerShown {
		p.Awaits = o.Budget // whoever hands over to it needs its name as it is
	}
	return p
}

// rank returns how many workers stand for coordinator before this one, when the
// one with the given session does no more; and false if it is not on the roll.
func (w *worker) rank(lead string) (int, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	me := w.session.ID()
	rank := 0
	for _, m := range w.view.roll.Members { // by their places
		switch {
		case m.Session == me:
			return rank, true
		case m.active() && m.Session != lead:
			rank++
		}
	}
	return rank, false
}

// standOffs is how many polls the second in line gives the first before it stands for
// coordinator itself. The others give them twice as many.
const standOffs = 2

// standsOff returns how long that is. Where the coordinator is dead, the first may see it
// later by a heartbeat period. One that came before the first would not know how long the
// others have been silent, and would wait for another lease; nor would one that came before
// the second, where the first is dead: see standBy.
func (w *worker) standsOff(lead tenure.Status, rank int) time.Duration {
	off := standOffs * w.period
	if rank > 1 {
		off *= 2
	}
	if lead.State == tenure.StateHeld {
		off += w.client.Options().HeartbeatPeriod
	}
	return off
}

// stand makes this worker the coordinator, if nobody else comes before it. The
// first in the roll stands at once: it knows the others' sessions already. So does
// one that knew of no other, and one that leaves: if the others leave as well,
// only leaving workers can stand, and all wait for a roll that says so.
func (w *worker) stand(st tenure.Status, alone bool) {
	now := time.Now()
	if w.silent.IsZero() {
		w.silent = now
	}
	w.mu.Lock()
	busy, leaving := w.coordinator != nil || now.Before(w.standOff), w.leaving
	w.mu.Unlock()
	if busy || leaving && !w.heirs() {
		return
	}
	if rank, in := w.rank(st.Session); !alone && !leaving && (rank > 0 || !in) && now.Sub(w.silent) < w.standsOff(st, rank) {
		return
	}
	l, err := w.session.TryAcquire(w.ctx, LeadName(w.g.name), nil)
	if errors.Is(err, tenure.ErrHeld) {
		return
	}
	if err != nil {
		w.trouble(err)
		return
	}
	c := &coordinator{w: w, lead: l, ended: make(chan struct{}), looks: make(chan chan struct{})}
	c.ctx, c.stop = context.WithCancelCause(w.ctx)
	w.mu.Lock()
	w.coordinator = c
	w.mu.Unlock()
	w.events.emit(Event{Kind: EventCoordinator, Place: w.place})
	w.jobs.Go(c.run)
}

// standBy has the worker that comes after the coordinator look at the others' sessions, so
// that it knows how long each has been silent when it has to take over. The second in line
// looks at the session of the first alone, which may die while the coordinator leaves.
func (w *worker) standBy() {
	rank, in := w.rank(w.lead)
	w.mu.Lock()
	busy, members := w.coordinator != nil || w.leaving, w.view.roll.Members
	w.mu.Unlock()
	if busy || !in || rank > 1 {
		return
	}
	var sessions []string
	for _, m := range members {
		switch {
		case m.vacant():
		case rank == 0:
			sessions = append(sessions, m.Session)
		case m.active() && m.Session != w.lead && sessions == nil:
			sessions = []string{m.Session}
		}
	}
	if rank == 0 && len(sessions) <= 2 {
		return
	}
	_, errs := w.sessionStatuses(sessions)
	w.trouble(firstOf(errs))
}

// sessionStatuses looks at sessions that have a heartbeat due, at all of them at once.
func (w *worker) sessionStatuses(ids []string) ([]tenure.SessionStatus, []error) {
	list, errs := make([]tenure.SessionStatus, len(ids)), make([]error, len(ids))
	var reads sync.WaitGroup
	for i, id := range ids {
		reads.Go(func() { list[i], errs[i] = w.client.SessionStatus(w.ctx, id, &tenure.ReadOptions{Eventual: true}) })
	}
	reads.Wait()
	return list, errs
}
