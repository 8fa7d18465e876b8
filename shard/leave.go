// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/shard/internal/plan"
)

// departure is how a worker leaves.
type departure struct {
	until  time.Time // when it goes, whoever has not come
	marked time.Time // when its place has said so
	hurry  time.Time // until then it looks often
	deal   time.Time // when partitions are handed over next; zero until the roll says so

	again   time.Time  // when others are due
	queue   []handover // until then
	portion int
	former  []former // what some others may go by yet
}

// former is a plan that has been replaced.
type former struct {
	v     *view     // nil for one that this worker has not seen
	until time.Time // by then the others have looked, and found the new one
}

// replaces notes that a plan has been replaced while the worker leaves. Where several were,
// one after the other within a look, it has seen only the first and the last of them; others
// may have found one in between.
func (d *departure) replaces(before, v *view, period time.Duration) {
	now := time.Now()
	until := now.Add(period + period/4)
	d.former = slices.DeleteFunc(d.former, func(f former) bool { return !now.Before(f.until) })
	d.former = append(d.former, former{before, until})
	if v.roll.Epoch > before.roll.Epoch+1 {
		d.former = append(d.former, former{nil, until})
	}
}

// knows says that a worker is to have a partition by all plans that it may go by.
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

// Where many leave at once, each must learn soon that the others do: from the roll,
// so from the coordinator, which may be one of them, or from one that takes its
// place. So all of these look often, for some looks after something has changed.
const (
	hurries  = 4 // looks
	hurrying = 4 // times as often
)

// leaveStep does the next thing for a worker that leaves, and returns true when
// it can go. Until then its partitions are worked on. It hands them over to their
// next owners by the plan, or is asked for them. When no other worker should have
// any, it goes at once.
func (w *worker) leaveStep() bool {
	if w.departure == nil {
		timeout := w.g.options.LeaveTimeout
		w.departure = &departure{until: time.Now().Add(max(0, timeout))}
		w.mu.Lock()
		w.leaving = true
		w.queue = nil
		clear(w.claiming) // what is under way is seen to the end
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
	if !w.heirs() {
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

// stranded says that nobody has room for what this worker still has.
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

// handover is a partition that a worker which leaves is to hand over.
type handover struct {
	p  *Partition
	to member
}

// portions is in how many portions a worker that leaves hands over what it does in
// the time of a look.
const portions = 10

// deal hands over what others wait for, some at a time: in the time of a look, to
// each as many as it waits for, in the order in which it does.
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
		d.again = time.Time{} // what is to be handed over is found anew, at once
		return
	}
	for _, h := range d.queue[:n] {
		w.handOver(h)
	}
	if d.queue, d.deal = d.queue[n:], now.Add(w.period/portions); len(d.queue) == 0 {
		d.deal = d.again
	}
}

// overtaken looks at the group before something is handed over, and returns true if there
// is a new plan: the next owners may go by it already, and not know of this worker's.
func (w *worker) overtaken() bool {
	before := w.epoch()
	w.poll()
	return w.epoch() != before
}

func (w *worker) epoch() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.view.roll.Epoch
}

// handovers returns what is to be handed over in the time of a look.
func (w *worker) handovers() []handover {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.view
	heirs := map[int]member{}
	for _, m := range v.roll.Members {
		if m.active() && m.Awaits > 0 && m.Owner != "" && m.Owner != w.client.Options().Owner {
			heirs[m.Place] = m
		}
	}
	var all []handover
	for id, p := range w.held {
		place, ok := v.owner(id)
		if to, awaits := heirs[place]; ok && awaits && !p.stopping.Load() && w.departure.knows(id, to) {
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

// staying returns those of which the next owners do not leave, as their places say. One
// that does may have begun to before it found that it is to have the partition, so that
// it does not wait for it; and the roll does not say so yet.
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
	list := w.lookedAt(w.client.Statuses(w.ctx, names, nil))
	return slices.DeleteFunc(all, func(h handover) bool {
		st := list[at[h.to.Place]]
		p, ok := parseProfile(st.Data)
		return st.err == nil && (!st.Held || st.Session != h.to.Session || ok && p.Leaving)
	})
}

// handOver has the handler of a partition stop, and the lock free then, for the next
// owner, which waits for it; unless the plan has changed or something else has ended
// its work. The lock is not kept for the next owner: that one may leave as well, by
// the time at which the handler has returned, and whoever is to have the partition
// then would have to wait. Nobody else takes it meanwhile.
func (w *worker) handOver(h handover) {
	w.mu.Lock()
	place, ok := w.view.owner(h.p.id)
	planned := ok && place == h.to.Place && w.view.in[h.to.Session] == h.to
	epoch := w.view.roll.Epoch
	w.mu.Unlock()
	if !planned || h.p.stopping.Swap(true) {
		return
	}
	h.p.setHeir(h.to.Owner)
	reason := fmt.Sprintf("%q leaves; planned for %q in epoch %d", w.client.Options().Owner, h.to.Owner, epoch)
	if err := h.p.lease.StepDown(&tenure.StepDownOptions{Reason: reason}); err != nil {
		w.trouble(err)
	}
}

// mark tells the others that this worker leaves. If it is the coordinator, it
// writes that into the roll. It stays the coordinator until it goes: others may
// leave as well, and are to learn of each other.
func (w *worker) mark() {
	ctx, stop := w.bounded(w.client.Options().LeaseDuration)
	defer stop()
	if err := w.seat.SetData(ctx, w.profile(true).bytes()); err != nil {
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
		c.lookNow()
		w.due = time.Time{} // what it has written
	}
}

// hurryOn has a worker that leaves look often from now on, for a while.
func (w *worker) hurryOn() {
	if d := w.departure; d != nil {
		d.hurry = time.Now().Add(hurries * w.period)
	}
}

// pause returns how long the worker waits until it looks at the group again.
func (w *worker) pause() time.Duration {
	if d := w.departure; d != nil && time.Now().Before(d.hurry) {
		return w.jittered() / hurrying
	}
	return w.jittered()
}

// rolledOff says that the roll shows that this worker leaves, or that nobody has
// written one for so long that nobody will.
func (w *worker) rolledOff() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, in := w.view.in[w.session.ID()]
	if in && m.Leaving && w.departure.deal.IsZero() {
		// The others look first, and find what they are to have.
		w.departure.deal = time.Now()
		for _, f := range w.departure.former {
			w.departure.deal = f.until
		}
	}
	return in && m.Leaving || time.Since(w.departure.marked) > 2*w.client.Options().LeaseDuration
}
