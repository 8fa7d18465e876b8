// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import "time"

// departure is how a worker leaves.
type departure struct {
	until  time.Time // when it goes, whoever has not come
	marked time.Time // when its place has said so
}

// leaveStep does what is next for a worker that is to leave, and returns true
// when it can go. Until then its partitions are worked on, and others ask for
// them.
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
	return !w.departure.marked.IsZero() && !w.heirs() && w.rolledOff()
}

// mark tells the others that this worker leaves. If it is the coordinator, it
// writes that into the roll, and makes way for another one.
func (w *worker) mark() {
	ctx, stop := w.bounded(w.client.Options().LeaseDuration)
	defer stop()
	if err := w.seat.SetData(ctx, w.profile(true).bytes()); err != nil {
		w.trouble(err)
		return
	}
	w.departure.marked = time.Now()
	w.resign((*coordinator).last)
}

// rolledOff says that the roll shows that this worker leaves, or that nobody has
// written one for so long that nobody will.
func (w *worker) rolledOff() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, in := w.view.in[w.session.ID()]
	return in && m.Leaving || time.Since(w.departure.marked) > 2*w.client.Options().LeaseDuration
}
