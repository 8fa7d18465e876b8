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
	from   observation
	begun  time.Time
	waits  bool
	asked  bool
	cancel context.CancelFunc // of what comes before that, and of waiting
}

// requestsOfSession is about how many requests to one session the workers of a group have
// under way together: it has room for 64.
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

// ahead is the factor by which a worker waits for more partitions than come at a time, so
// that it already waits for the following ones.
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

// recallMoves ends the preparation of moves that a new plan does not want. The caller
// holds mu.
func (w *worker) recallMoves() {
	for id, m := range w.moves {
		if !m.waits && !m.asked && m.cancel != nil && !w.mayHave(id) {
			m.cancel()
		}
	}
}

// recallWaits ends the waiting for partitions of other leaving workers: they know by now
// that this worker leaves too.
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

// patience is the number of polls for which a worker waits for a partition before it asks
// for it.
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
	asked, epoch := m.asked, w.view.membership.Epoch
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
		return nil, fmt.Errorf("waiting: %w", err) // of an abandoned move
	case errors.Is(err, tenure.ErrUnanswered) && ctx.Err() == nil: // it is dead
	default:
		return nil, err
	}
	return w.session.TryAcquire(ctx, name, nil)
}

// takeReserved takes a partition that is reserved for this worker by its request, so that
// it is free with the session: the worker leaves, and will not use it.
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
	for i, st := range w.statuses(lockNames(w.g.name, asked)) {
		if st.err != nil || st.State != tenure.StateReserved || st.ReservedFor != w.client.Options().Owner {
			continue
		}
		// Unless the move takes it at this moment, or it cannot be taken: then it stays
		// reserved for a while.
		if l, err := w.session.TryAcquire(ctx, LockName(w.g.name, asked[i]), nil); err == nil {
			w.giveBack(l)
		}
	}
}

// hear finds the requests in the session's record, so that partitions requested by other
// leaving workers are released before the session is closed, and are not reserved for
// them after that.
func (w *worker) hear() {
	if w.remaining() == 0 {
		return
	}
	ctx, stop := w.bounded(w.client.Options().RequestTimeout)
	defer stop()
	if st, err := w.client.SessionStatus(ctx, w.session.ID(), nil); err == nil && st.Requests > 0 {
		_ = w.session.Renew(ctx) // otherwise the close finds them
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

// leavesToo reports whether a worker is leaving, by its place, or has left.
func (w *worker) leavesToo(owner string) bool {
	w.mu.Lock()
	i := slices.IndexFunc(w.view.membership.Members, func(m member) bool { return !m.vacant() && m.Owner == shownOwner(owner) })
	if i < 0 {
		w.mu.Unlock()
		return true
	}
	m := w.view.membership.Members[i]
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
	p, ok := parseMemberInfo(st.Data)
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

// gives reports whether the plan gives a partition to the worker with this session.
func (v *view) gives(id, session string) bool {
	owner, ok := v.owner(id)
	me, in := v.in[session]
	return ok && in && owner == me.Place
}

// plannedElsewhere reports whether the plan gives a partition to another worker.
func (v *view) plannedElsewhere(id string, place int) bool {
	owner, ok := v.owner(id)
	return ok && owner != plan.None && owner != place
}

// departure is how a worker leaves.
type departure struct {
	until  time.Time // when it goes, even if not all next owners have come
	marked time.Time // when its place has said so
	hurry  time.Time // until then it polls often
	deal   time.Time // when partitions are handed over next; zero until the membership says so

	again   time.Time  // when others are due
	queue   []handover // until then
	portion int
	former  []former // plans that other workers may still use
}

// former is a plan that has been replaced.
type former struct {
	v     *view     // nil for a plan that this worker has not seen
	until time.Time // by then the others have polled and found the new one
}

// replaces notes that a plan has been replaced while the worker leaves. If there were
// several between two polls, this worker has seen only the first and the last of them;
// others may have found a plan in between.
func (d *departure) replaces(before, v *view, period time.Duration) {
	now := time.Now()
	until := now.Add(period + period/4)
	d.former = slices.DeleteFunc(d.former, func(f former) bool { return !now.Before(f.until) })
	d.former = append(d.former, former{before, until})
	if v.membership.Epoch > before.membership.Epoch+1 {
		d.former = append(d.former, former{nil, until})
	}
}

// knows reports whether all plans that a worker may use give it a partition.
func (d *departure) knows(id string, to member) bool {
	for _, f := range d.former {
		if f.v == nil {
			return false
		}
		place, ok := f.v.owner(id)
		if m, in := f.v.in[to.Session]; !ok || !in || m.Place != place {
			return false
		}
	}
	return true
}

// Where many leave at once, each must learn soon that the others do: from the membership,
// so from the coordinator, which may be leaving itself, or from its successor. So all of
// these poll often, for some polls after something has changed.
const (
	hurries  = 4 // polls
	hurrying = 4 // times as often
)

// leaveStep does the next step of a leaving worker, and returns true when it can go.
// Until then its handlers work on. It hands its partitions over to their next owners by
// the plan, or on request. When no other worker should have any, it goes at once.
func (w *worker) leaveStep() bool {
	if w.departure == nil {
		timeout := w.g.options.LeaveTimeout
		w.departure = &departure{until: time.Now().Add(max(0, timeout))}
		w.mu.Lock()
		w.leaving = true
		w.queue = nil
		clear(w.claiming) // claims under way are completed
		w.recallMoves()
		w.mu.Unlock()
		w.events.emit(Event{Kind: EventLeaving, Place: w.place, Count: w.remaining()})
	}
	w.mu.Lock()
	busy := len(w.held)+len(w.moves)+w.claimers > 0
	w.mu.Unlock()
	if w.seat == nil || !busy || !time.Now().Before(w.departure.until) {
		return true
	}
	if w.departure.marked.IsZero() {
		w.mark()
	}
	if !w.hasSuccessors() {
		return true
	}
	if w.departure.marked.IsZero() {
		return false
	}
	if w.rolledOff() && w.stranded() {
		return true
	}
	w.deal()
	return false
}

// stranded says that no other worker has room for what this worker still has.
func (w *worker) stranded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.held {
		if owner, ok := w.view.owner(id); !ok || owner != plan.None {
			return false
		}
	}
	return len(w.moves)+w.claimers == 0
}

// handover is a partition that a leaving worker is to hand over.
type handover struct {
	p  *Partition
	to member
}

// portions is the number of portions in which a leaving worker hands partitions over
// between two polls.
const portions = 10

// deal hands over partitions that others wait for, some at a time: between two polls, to
// each worker as many as it waits for, in the order of its requests.
func (w *worker) deal() {
	d, now := w.departure, time.Now()
	if d.deal.IsZero() || now.Before(d.deal) {
		return
	}
	w.recallWaits()
	if !now.Before(d.again) {
		d.former = slices.DeleteFunc(d.former, func(f former) bool { return !now.Before(f.until) })
		d.queue, d.again = w.staying(w.handovers()), now.Add(w.period)
		for _, f := range d.former {
			if f.until.Before(d.again) {
				d.again = f.until
			}
		}
		d.portion = (len(d.queue) + portions - 1) / portions
	}
	n := min(len(d.queue), d.portion)
	if n > 0 && w.overtaken() {
		d.again = time.Time{} // look for what is to be handed over again, at once
		return
	}
	for _, h := range d.queue[:n] {
		w.handOver(h)
	}
	if d.queue, d.deal = d.queue[n:], now.Add(w.period/portions); len(d.queue) == 0 {
		d.deal = d.again
	}
}

// overtaken polls the group before a hand-over, and returns true if there is a new plan:
// the next owners may already use it, and not know this worker's plan.
func (w *worker) overtaken() bool {
	before := w.epoch()
	w.poll()
	return w.epoch() != before
}

func (w *worker) epoch() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.view.membership.Epoch
}

// handovers returns what is to be handed over between two polls.
func (w *worker) handovers() []handover {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.view
	successors := map[int]member{}
	for _, m := range v.membership.Members {
		if m.active() && m.Awaits > 0 && m.Owner != "" && m.Owner != w.client.Options().Owner {
			successors[m.Place] = m
		}
	}
	var all []handover
	for id, p := range w.held {
		place, ok := v.owner(id)
		if to, awaits := successors[place]; ok && awaits && !p.stopping.Load() && w.departure.knows(id, to) {
			all = append(all, handover{p, to})
		}
	}
	slices.SortFunc(all, func(a, b handover) int { return v.compare(a.p.id, b.p.id) })
	dealt := map[int]int{}
	return slices.DeleteFunc(all, func(h handover) bool {
		dealt[h.to.Place]++
		return dealt[h.to.Place] > h.to.Awaits
	})
}

// staying returns the hand-overs whose next owners do not leave, as their places say. A
// next owner may have begun to leave before it found that it is to have the partition, so
// that it does not wait for it; and the membership does not say so yet.
func (w *worker) staying(all []handover) []handover {
	at := map[int]int{}
	var names []string
	for _, h := range all {
		if _, ok := at[h.to.Place]; !ok {
			at[h.to.Place] = len(names)
			names = append(names, MemberName(w.g.name, h.to.Place))
		}
	}
	if len(names) == 0 {
		return nil
	}
	list := w.read(names, nil)
	return slices.DeleteFunc(all, func(h handover) bool {
		st := list[at[h.to.Place]]
		p, ok := parseMemberInfo(st.Data)
		return st.err == nil && (!st.Held || st.Session != h.to.Session || ok && p.Leaving)
	})
}

// handOver stops the handler of a partition and then frees the lock for the next owner,
// which waits for it; unless the plan has changed or something else has ended its work.
// The lock is not reserved for the next owner: that worker may have left too by the
// time the handler returns, and then the new planned owner would have to wait. No other
// worker takes it meanwhile.
func (w *worker) handOver(h handover) {
	w.mu.Lock()
	place, ok := w.view.owner(h.p.id)
	planned := ok && place == h.to.Place && w.view.in[h.to.Session] == h.to
	epoch := w.view.membership.Epoch
	w.mu.Unlock()
	if !planned || h.p.stopping.Swap(true) {
		return
	}
	h.p.successor.Store(&h.to.Owner)
	reason := fmt.Sprintf("%q leaves; planned for %q in epoch %d", w.client.Options().Owner, h.to.Owner, epoch)
	if err := h.p.lease.StepDown(&tenure.StepDownOptions{Reason: reason}); err != nil {
		w.trouble(err)
	}
}

// mark announces that this worker leaves. If it is the coordinator, it writes that into
// the membership. It stays the coordinator until it goes: others may leave as well, and
// are to learn of each other.
func (w *worker) mark() {
	ctx, stop := w.bounded(min(w.client.Options().LeaseDuration, time.Until(w.departure.until)))
	defer stop()
	if err := w.seat.SetData(ctx, w.memberInfo(true).bytes()); err != nil {
		w.trouble(err)
		return
	}
	w.departure.marked = time.Now()
	w.hurryOn()
	w.mu.Lock()
	c := w.coordinator
	w.mu.Unlock()
	w.due = time.Now().Add(w.pause())
	if c != nil {
		c.lookNow(ctx)
		w.due = time.Time{} // what it has written
	}
}

// hurryOn has a leaving worker poll often for a while.
func (w *worker) hurryOn() {
	if d := w.departure; d != nil {
		d.hurry = time.Now().Add(hurries * w.period)
	}
}

// pause returns how long the worker waits until it polls the group again.
func (w *worker) pause() time.Duration {
	if d := w.departure; d != nil && time.Now().Before(d.hurry) {
		return w.jittered() / hurrying
	}
	return w.jittered()
}

// rolledOff says that the membership shows that this worker leaves, or that no
// coordinator has written one for so long that none will.
func (w *worker) rolledOff() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, in := w.view.in[w.session.ID()]
	if in && m.Leaving && w.departure.deal.IsZero() {
		// The others poll first, and find their partitions.
		w.departure.deal = time.Now()
		for _, f := range w.departure.former {
			w.departure.deal = f.until
		}
	}
	return in && m.Leaving || time.Since(w.departure.marked) > 2*w.client.Options().LeaseDuration
}
