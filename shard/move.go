// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/shard/internal/plan"
)

// move is one partition on its way here: requested from its owner, or awaited
// from a worker that is leaving. A move is always completed: a request cannot be
// taken back, and a partition that is reserved for a worker that does not come
// would have no owner for a while.
type move struct {
	id     string
	from   sighting
	begun  time.Time
	waits  bool
	asked  bool
	cancel context.CancelFunc // of what comes before that, and of waiting
}

// requestsOfSession is how many requests to one session the workers of a group
// have under way together, about: it has room for 64.
const requestsOfSession = 48

// move asks for partitions that living workers have, within the budget.
func (w *worker) move(missing []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leaving {
		return
	}
	budget := w.g.options.Budget
	each := max(1, min(budget, requestsOfSession/max(1, w.view.active-1)))
	at, asking := map[string]int{}, 0
	for _, m := range w.moves {
		at[m.from.session]++
		if !m.waits {
			asking++
		}
	}
	now := time.Now()
	coming := map[string][]string{} // by the session of the worker that leaves
	for _, id := range missing {
		k, known := w.known[id]
		if !known || k.session == "" && !k.lone || w.claiming[id] || w.held[id] != nil {
			continue
		}
		from, in := w.view.in[k.session]
		switch {
		case !in && !now.Before(k.until): // it is looked at again first
		case in && from.Leaving && w.awaits() && !k.unanswered:
			coming[k.session] = append(coming[k.session], id)
		case asking < budget && at[k.session] < each && w.room() > 0:
			at[k.session]++
			asking++
			w.begins(&move{id: id, from: k, begun: now})
		}
	}
	for session, ids := range coming {
		slices.SortFunc(ids, w.view.compare)
		for _, id := range ids[:min(len(ids), max(0, ahead*budget-at[session]))] {
			w.begins(&move{id: id, from: w.known[id], begun: now, waits: true})
		}
	}
}

// ahead is how many times as many partitions are waited for as come at a time, so
// that those who come next are waited for already.
const ahead = 2

// awaits reports whether leaving workers hand over to this one unasked. The
// caller holds mu.
func (w *worker) awaits() bool {
	me := w.view.in[w.session.ID()]
	return me.Awaits > 0 && me.Owner == w.client.Options().Owner
}

// begins begins a move. The caller holds mu.
func (w *worker) begins(m *move) {
	w.moves[m.id] = m
	w.jobs.Go(func() { w.carryOut(m) })
}

// recallMoves ends what comes before a request where a new plan does not want
// it. The caller holds mu.
func (w *worker) recallMoves() {
	for id, m := range w.moves {
		if !m.waits && !m.asked && m.cancel != nil && !w.mayHave(id) {
			m.cancel()
		}
	}
}

// recallWaits ends the waiting for partitions of others that leave: they know by now
// that this worker does too.
func (w *worker) recallWaits() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.moves {
		if m.waits && m.cancel != nil {
			m.cancel()
		}
	}
}

func (w *worker) carryOut(m *move) {
	take := w.ask
	if m.waits {
		take = w.await
	}
	l, err := take(m)
	w.mu.Lock()
	index, _ := w.view.find(m.id)
	w.mu.Unlock()
	if err == nil {
		w.begin(m.id, index, l, Event{Kind: EventMovedIn, Peer: m.from.owner, Took: time.Since(m.begun)})
	} else if w.ctx.Err() == nil && !errors.Is(err, errRecalled) && !errors.Is(err, errNotHandedOver) {
		w.again(m.id, w.jittered())
		w.events.emit(Event{Kind: EventMoveFailed, Partition: m.id, Peer: m.from.owner, Took: time.Since(m.begun), Err: err})
	}
	w.mu.Lock()
	delete(w.moves, m.id)
	w.mu.Unlock()
	w.poke()
}

var (
	errRecalled      = errors.New("the plan has changed")
	errNotHandedOver = errors.New("it was not handed over")
)

// patience is for how many looks a partition is waited for before it is asked for.
const patience = 8

// await waits for a partition of a worker that leaves, and takes it.
func (w *worker) await(m *move) (*tenure.Lease, error) {
	ctx, stop := w.bounded(patience * w.period)
	defer stop()
	w.mu.Lock()
	m.cancel = stop
	w.mu.Unlock()
	l, err := w.session.Acquire(ctx, LockName(w.g.name, m.id), nil)
	if err != nil && w.ctx.Err() == nil && ctx.Err() != nil {
		w.mu.Lock()
		m.from.unanswered = true
		w.known[m.id] = m.from
		w.mu.Unlock()
		return nil, errNotHandedOver
	}
	return l, err
}

// ask asks for a partition, and takes it when it is free.
func (w *worker) ask(m *move) (*tenure.Lease, error) {
	name := LockName(w.g.name, m.id)
	if err := w.prepare(m); err != nil {
		return nil, err
	}
	w.mu.Lock()
	m.asked = !w.leaving && w.mayHave(m.id)
	asked, epoch := m.asked, w.view.roll.Epoch
	w.mu.Unlock()
	if !asked {
		return nil, errRecalled
	}
	o := w.client.Options()
	ctx, stop := w.bounded(o.HeartbeatPeriod + o.StopTimeout + 2*o.LeaseDuration)
	defer stop()
	why := fmt.Sprintf("planned for %q in epoch %d", o.Owner, epoch)
	err := w.client.StepDown(ctx, name, &tenure.StepDownOptions{To: o.Owner, Reason: why})
	var before *tenure.RequestedError
	switch {
	case err == nil, errors.Is(err, tenure.ErrNotHeld):
	case errors.As(err, &before) && before.Request.To == o.Owner:
		return nil, fmt.Errorf("waiting: %w", err) // of a move that was given up on
	case errors.Is(err, tenure.ErrUnanswered) && ctx.Err() == nil: // it is dead
	default:
		return nil, err
	}
	return w.session.TryAcquire(ctx, name, nil)
}

// takeReserved takes what is kept for this worker because it has asked for it, so
// that it is free with the session: the worker goes, and does not come for it.
func (w *worker) takeReserved() {
	w.mu.Lock()
	var asked []string
	for id, m := range w.moves {
		if m.asked {
			asked = append(asked, id)
		}
	}
	w.mu.Unlock()
	if len(asked) == 0 {
		return
	}
	ctx, stop := w.bounded(w.client.Options().LeaseDuration)
	defer stop()
	for i, st := range w.statuses(asked) {
		if st.err != nil || st.State != tenure.StateReserved || st.ReservedFor != w.client.Options().Owner {
			continue
		}
		// Unless what has asked for it takes it at this moment, or it cannot be taken:
		// then it is kept for a while yet.
		if l, err := w.session.TryAcquire(ctx, LockName(w.g.name, asked[i]), nil); err == nil {
			w.giveBack(l)
		}
	}
}

// hear has the requests found that lie in the session's record, so that what was
// asked for by those who leave too is released before the session is closed, and is not
// kept for them after that.
func (w *worker) hear() {
	if w.remaining() == 0 {
		return
	}
	ctx, stop := w.bounded(w.client.Options().RequestTimeout)
	defer stop()
	if st, err := w.client.SessionStatus(ctx, w.session.ID(), nil); err == nil && st.Requests > 0 {
		_ = w.session.Renew(ctx) // else they are found when it is closed
	}
}

// giveBack releases a lock when its context ends: the session is closed when all
// under it is released.
func (w *worker) giveBack(l *tenure.Lease) {
	w.jobs.Go(func() {
		<-l.Context().Done()
		_ = l.Release(w.values) // it is free with the session
	})
}

// leavesToo says that a worker is leaving, as its place says, or has left.
func (w *worker) leavesToo(owner string) bool {
	w.mu.Lock()
	i := slices.IndexFunc(w.view.roll.Members, func(m member) bool { return !m.vacant() && m.Owner == shownOwner(owner) })
	if i < 0 {
		w.mu.Unlock()
		return true
	}
	m := w.view.roll.Members[i]
	w.mu.Unlock()
	if m.Leaving {
		return true
	}
	ctx, stop := context.WithTimeout(w.values, w.client.Options().RequestTimeout)
	defer stop()
	st, err := w.client.Status(ctx, MemberName(w.g.name, m.Place))
	if err != nil {
		return false
	}
	p, ok := parseProfile(st.Data)
	return !st.Held || st.Session != m.Session || ok && p.Leaving
}

// prepare calls the user's Prepare, which a new plan can end.
func (w *worker) prepare(m *move) error {
	if w.g.options.Prepare == nil {
		return nil
	}
	ctx, stop := context.WithCancel(w.ctx)
	defer stop()
	w.mu.Lock()
	m.cancel = stop
	w.mu.Unlock()
	if err := w.g.options.Prepare(ctx, m.id); err != nil {
		if ctx.Err() != nil {
			return errRecalled
		}
		return fmt.Errorf("prepare: %w", err)
	}
	return nil
}

// gives says that the worker with this session is to have a partition.
func (v *view) gives(id, session string) bool {
	owner, ok := v.owner(id)
	me, in := v.in[session]
	return ok && in && owner == me.Place
}

// plannedElsewhere says that another worker is to have a partition.
func (v *view) plannedElsewhere(id string, place int) bool {
	owner, ok := v.owner(id)
	return ok && owner != plan.None && owner != place
}
