// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/shard/internal/plan"
)

// move is a partition that another worker is asked for. Once it was asked it is
// seen to the end: a request cannot be taken back, and what is reserved for
// nobody who comes would be without an owner for a while.
type move struct {
	id     string
	from   sighting
	begun  time.Time
	asked  bool
	cancel context.CancelFunc // of what comes before that
}

// requestsOfSession is how many requests to one session the workers of a group
// have under way together, about: it has room for 64.
const requestsOfSession = 48

// move asks for partitions that living workers have, within the budget.
func (w *worker) move(missing []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	budget := w.g.options.Budget
	if w.leaving || len(w.moves) >= budget {
		return
	}
	each := max(1, min(budget, requestsOfSession/max(1, w.view.active-1)))
	at := map[string]int{}
	for _, m := range w.moves {
		at[m.from.session]++
	}
	now := time.Now()
	for _, id := range missing {
		if len(w.moves) >= budget || w.room() == 0 {
			return
		}
		k, known := w.known[id]
		if !known || k.session == "" && !k.lone || w.claiming[id] || w.held[id] != nil || at[k.session] >= each {
			continue
		}
		if _, in := w.view.in[k.session]; !in && !now.Before(k.until) {
			continue // it is looked at again first
		}
		at[k.session]++
		m := &move{id: id, from: k, begun: now}
		w.moves[id] = m
		w.jobs.Go(func() { w.carryOut(m) })
	}
}

// recallMoves ends what comes before a request where a new plan does not want
// it. The caller holds mu.
func (w *worker) recallMoves() {
	for id, m := range w.moves {
		if !m.asked && m.cancel != nil && !w.mayHave(id) {
			m.cancel()
		}
	}
}

func (w *worker) carryOut(m *move) {
	l, err := w.ask(m)
	w.mu.Lock()
	index, _ := w.view.find(m.id)
	w.mu.Unlock()
	if err == nil {
		w.begin(m.id, index, l, Event{Kind: EventMovedIn, From: m.from.owner, Took: time.Since(m.begun)})
	} else if w.ctx.Err() == nil && !errors.Is(err, errRecalled) {
		w.again(m.id, w.jittered())
		w.events.emit(Event{Kind: EventMoveFailed, Partition: m.id, From: m.from.owner, Took: time.Since(m.begun), Err: err})
	}
	w.mu.Lock()
	delete(w.moves, m.id)
	w.mu.Unlock()
	w.poke()
}

var errRecalled = errors.New("the plan has changed")

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
	err := w.client.Transfer(ctx, name, o.Owner, fmt.Sprintf("planned for %q in epoch %d", o.Owner, epoch))
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

// plannedElsewhere says that another worker is to have a partition.
func (v *view) plannedElsewhere(id string, place int) bool {
	owner, ok := v.owner(id)
	return ok && owner != plan.None && owner != place
}
