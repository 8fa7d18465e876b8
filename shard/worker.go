// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/shard/internal/plan"
)

// view is what a worker goes by: the latest roll, and the plan that follows from
// it. It does not change.
type view struct {
	roll  roll
	spec  spec
	ids   []string
	base  []string
	index map[string]int // nil if the names are numbers
	plan  *plan.Plan
	in    map[string]member // by their sessions
	// active is how many members are to have partitions.
	active int
}

// newView makes a view, with the help of a former one, which may be nil.
func newView(r roll, s spec, former *view) *view {
	v := &view{roll: r, spec: s, in: r.sessions()}
	var before *plan.Plan
	if former != nil && former.spec.same(s) && former.spec.Revision == s.Revision {
		v.ids, v.base, v.index, before = former.ids, former.base, former.index, former.plan
	} else {
		v.ids, v.base = s.ids(), s.base()
	}
	if s.Names != nil && v.index == nil {
		v.index = make(map[string]int, len(s.Names))
		for i, id := range s.Names {
			v.index[id] = i
		}
	}
	v.plan = r.plan(v.ids, v.base, s.Zones, before)
	for _, m := range r.Members {
		if m.active() {
			v.active++
		}
	}
	return v
}

// find returns the index of a partition.
func (v *view) find(id string) (int, bool) {
	if v.index != nil {
		i, ok := v.index[id]
		return i, ok
	}
	i, err := strconv.Atoi(id)
	return i, err == nil && i >= 0 && i < len(v.ids) && v.ids[i] == id
}

// compare orders partitions by their indexes.
func (v *view) compare(a, b string) int {
	i, _ := v.find(a)
	j, _ := v.find(b)
	return i - j
}

// owner returns the place that a partition is planned for, [plan.None] if that
// is nobody's, and false if there is no such partition.
func (v *view) owner(id string) (int, bool) {
	i, ok := v.find(id)
	if !ok {
		return plan.None, false
	}
	return v.plan.Owner(i), true
}

// worker is one session's life in the group. One goroutine looks, and decides;
// others claim, ask and run the handlers.
type worker struct {
	*run
	client  *tenure.Client
	session *tenure.Session
	// ctx ends when nothing is to be begun any more: with the session, or when
	// the worker has left.
	ctx  context.Context
	stop context.CancelCauseFunc
	kick chan struct{} // has room for one: something has changed
	jobs sync.WaitGroup

	// Of the one goroutine.
	place    int // -1: none yet
	seat     *tenure.Lease
	told     bool // that it has joined
	polls    int
	silent   time.Time
	renewed  time.Time
	due      time.Time // when it looks at the group
	stuck    int
	left     bool
	suspects map[string]time.Time
	audited  int                  // where in the partitions the audit is
	vouched  map[string]time.Time // sessions: when the roll or a look said that they live
	lead     string               // the session of the coordinator
	stranger uint64               // the token of another lock in its place, that was told of

	departure *departure // nil until it is to leave

	mu          sync.Mutex // guards the fields below; never held across I/O
	view        *view
	held        map[string]*Partition
	queue       []claim
	claiming    map[string]bool // queued, or under way
	claimers    int
	moves       map[string]*move
	known       map[string]sighting
	cooling     map[string]time.Time
	leaving     bool
	coordinator *coordinator
	standOff    time.Time // until then it does not stand for coordinator
}

// sighting is what was seen of a partition that this worker is to have.
type sighting struct {
	session string    // of its living holder, "" if it has none
	lone    bool      // its holder has no session
	owner   string    // of the holder
	until   time.Time // it is not looked at before
	// unanswered: it was waited for in vain.
	unanswered bool
}

// outdated says that what was seen of a partition tells nothing any more to the worker
// with that session, which goes by the plan of now, and went by the one before.
func (k sighting) outdated(id, session string, before, now *view) bool {
	if k.session != "" {
		_, in := now.in[k.session]
		return !in // its holder is gone
	}
	// If it was handed out, that was by a plan before this one.
	return now.gives(id, session) && !before.gives(id, session)
}

func newWorker(r *run, session *tenure.Session) *worker {
	w := &worker{
		run: r, client: r.g.client, session: session, place: -1, kick: make(chan struct{}, 1),
		suspects: map[string]time.Time{}, vouched: map[string]time.Time{}, view: newView(roll{}, spec{Names: []string{}}, nil),
		held: map[string]*Partition{}, claiming: map[string]bool{}, moves: map[string]*move{},
		known: map[string]sighting{}, cooling: map[string]time.Time{},
	}
	w.ctx, w.stop = context.WithCancelCause(r.values)
	return w
}

// serve works until the session has ended, or the worker has left.
func (w *worker) serve() error {
	unhook := context.AfterFunc(w.session.Context(), func() { w.stop(context.Cause(w.session.Context())) })
	defer unhook()
	for w.ctx.Err() == nil {
		if w.leaves() && w.leaveStep() {
			w.left = true
			break
		}
		if w.tick() {
			continue
		}
		w.wait()
	}
	return w.finish()
}

// finish stops what goes on, waits for it, and closes the session. It returns why
// the worker came to its end.
func (w *worker) finish() error {
	lost := w.session.Check()
	if w.left {
		lost = nil
	}
	early := w.remaining()
	w.resign()
	if w.left {
		w.takeReserved()
		w.hear()
	}
	w.stop(errLeft)
	w.mu.Lock()
	w.queue = nil
	w.mu.Unlock()
	// The handlers stop by its end, and it is closed when they have.
	err := w.session.Close(w.values)
	w.jobs.Wait()
	switch {
	case w.thrown != nil:
		return nil
	case w.left:
		w.events.emit(Event{Kind: EventLeft, Place: w.place, Count: early})
		if early > 0 && w.heirs() && w.g.options.LeaveTimeout > 0 {
			return errors.Join(&LeftEarlyError{Partitions: early}, stopError(err))
		}
		return stopError(err)
	case lost == nil:
		return errors.Join(context.Cause(w.ctx), err)
	}
	return lost
}

// stopError is what is left of the error of closing a session that was not
// needed any more. What the store did not hear of runs out by itself.
func stopError(err error) error {
	if errors.Is(err, tenure.ErrStopTimeout) || errors.Is(err, tenure.ErrClosed) {
		return err
	}
	return nil
}

var errLeft = errors.New("the worker has left")

// remaining returns how many partitions are held.
func (w *worker) remaining() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.held)
}

// heirs reports whether there are other workers that should have partitions.
func (w *worker) heirs() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for session, m := range w.view.in {
		if m.active() && session != w.session.ID() {
			return true
		}
	}
	return false
}

// tick does what is due, and returns true if there is more to do at once.
func (w *worker) tick() bool {
	if w.seat != nil && w.seat.Context().Err() != nil && w.ctx.Err() == nil {
		// Somebody has taken the place away, by hand perhaps. All begins anew.
		w.stop(context.Cause(w.seat.Context()))
		return false
	}
	if now := time.Now(); !now.Before(w.due) {
		w.poll()
		w.due = now.Add(w.pause())
		if w.seat == nil && !w.leaves() {
			w.join()
		}
		w.audit()
	}
	more := w.reconcile()
	w.hurry()
	return more && w.ctx.Err() == nil
}

func (w *worker) jittered() time.Duration {
	return w.period - w.period/10 + rand.N(w.period/5+1)
}

// wait waits until the next look at the group is due, or partitions are to be
// handed over, or something has happened.
func (w *worker) wait() {
	due, leave := w.due, w.run.leave
	if w.isLeaving() {
		leave = nil
		if deal := w.departure.deal; !deal.IsZero() && deal.Before(due) {
			due = deal
		}
	}
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.kick:
	case <-leave:
	case <-w.ctx.Done():
	}
}

// poke has the worker see to its partitions at once.
func (w *worker) poke() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

func (w *worker) isLeaving() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leaving
}

// trouble tells of an error that is not the end of anything.
func (w *worker) trouble(err error) {
	if err != nil && w.ctx.Err() == nil {
		w.events.emit(Event{Kind: EventError, Place: w.seatPlace(), Err: err})
	}
}

// hurry has the requests for partitions found early, while others are to have
// some: without it they are found by the next heartbeat.
func (w *worker) hurry() {
	if w.surplus() == 0 || time.Since(w.renewed) < w.period/2 {
		return
	}
	w.renewed = time.Now()
	w.jobs.Go(func() {
		ctx, stop := context.WithTimeout(w.ctx, w.client.Options().RequestTimeout)
		defer stop()
		_ = w.session.Renew(ctx) // the heartbeat comes anyway
	})
}

// surplus returns how many partitions are held that others are to have.
func (w *worker) surplus() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for id, p := range w.held {
		if p.stopping.Load() {
			continue
		}
		if w.view.plannedElsewhere(id, w.place) {
			n++
		}
	}
	return n
}

func (w *worker) stats() Stats {
	surplus := w.surplus()
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.view
	me, joined := v.in[w.session.ID()]
	s := Stats{
		Joined: joined, Place: -1, Epoch: v.roll.Epoch, Members: v.active, Partitions: len(v.ids),
		Unassigned: len(v.plan.Unassigned()), Held: len(w.held), Surplus: surplus,
		Claiming: len(w.claiming), MovingIn: len(w.moves), Coordinator: w.coordinator != nil,
	}
	if joined {
		s.Place, s.Planned = me.Place, len(v.plan.Of(me.Place))
	}
	return s
}
