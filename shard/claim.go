// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/shard/internal/plan"
)

// claim is a partition to claim.
type claim struct {
	id      string
	adopted bool // the plan gives it to another worker
}

const (
	// maxLooks is how many partitions a worker polls before it polls the rest of the group
	// again.
	maxLooks = 2000
	// maxStuck is the number of consecutive rounds in which a full worker may lack an
	// assigned partition before it releases an unassigned one.
	maxStuck = 3
)

// reconcile starts steps towards the plan, and returns true if there is more to do at
// once.
func (w *worker) reconcile() bool {
	if w.seat == nil {
		return false
	}
	w.dropRemoved()
	missing := w.missing()
	look, more := w.toLook(missing)
	if len(look) > 0 {
		w.look(look)
	}
	w.move(missing)
	w.makeRoom(len(missing))
	return more
}

// dropRemoved ends the work on partitions that were removed from the group.
func (w *worker) dropRemoved() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.view.membership.Epoch == 0 {
		return
	}
	for id, p := range w.held {
		if _, ok := w.view.find(id); !ok && !p.stopping.Swap(true) {
			p.stop(errRemoved)
		}
	}
}

// missing returns the partitions that the plan gives this worker and that it does not
// claim or ask for yet.
func (w *worker) missing() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.view
	me, ok := v.in[w.session.ID()]
	if !ok || !me.active() || w.leaving {
		return nil
	}
	now := time.Now()
	var missing []string
	for _, i := range v.plan.Of(me.Place) {
		id := v.ids[i]
		if w.held[id] != nil || w.claiming[id] || w.moves[id] != nil {
			continue
		}
		if until, cools := w.cooling[id]; cools {
			if now.Before(until) {
				continue
			}
			delete(w.cooling, id)
		}
		missing = append(missing, id)
	}
	rand.Shuffle(len(missing), func(i, j int) { missing[i], missing[j] = missing[j], missing[i] })
	return missing
}

// room returns how many more partitions the worker may have. The caller holds mu.
func (w *worker) room() int {
	if w.g.options.Max == 0 {
		return MaxPartitions
	}
	return max(0, w.g.options.Max-len(w.held)-len(w.claiming)-len(w.moves))
}

// toLook returns those of the missing whose owners are not known, and whether
// there are more of them.
func (w *worker) toLook(missing []string) (look []string, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, room := time.Now(), w.room()
	for _, id := range missing {
		k, known := w.known[id]
		if known && now.Before(k.until) {
			continue
		}
		if _, in := w.view.in[k.session]; known && k.session != "" && in {
			continue // it is asked for when its turn comes
		}
		if len(look) == min(maxLooks, room) {
			return look, len(look) == maxLooks
		}
		look = append(look, id)
	}
	return look, false
}

// looksAtOnce is how many partitions are polled in one call.
const looksAtOnce = 200

// look polls partitions, and claims the free ones.
func (w *worker) look(ids []string) {
	for len(ids) > 0 && w.ctx.Err() == nil {
		n := min(len(ids), looksAtOnce)
		var free []claim
		for i, st := range w.statuses(lockNames(w.g.name, ids[:n])) {
			if w.note(ids[i], st) {
				free = append(free, claim{id: ids[i]})
			}
		}
		w.claim(free)
		ids = ids[n:]
	}
}

// looked is what a read of a lock has shown.
type looked struct {
	tenure.Status
	err error
}

// statuses polls locks by cheap reads: they lead to a claim, which the store applies only
// if the record is unchanged, or to another poll. A leaving worker has no time for that,
// and reads strongly.
func (w *worker) statuses(names []string) []looked {
	return w.read(names, &tenure.ReadOptions{Eventual: !w.isLeaving()})
}

func (w *worker) read(names []string, o *tenure.ReadOptions) []looked {
	list, errs := w.client.Statuses(w.ctx, names, o)
	out := make([]looked, len(list))
	for i := range list {
		out[i] = looked{list[i], errs[i]}
	}
	w.trouble(cmp.Or(errs...))
	return out
}

// free says that no owner has the lock, or can have it any more.
func (l looked) free(owner string) bool {
	switch {
	case l.err != nil:
		return false
	case l.State == tenure.StateReserved:
		return l.ReservedFor == owner || l.FreeIn == 0
	}
	return !l.Held
}

// note records an observation of a partition, and reports whether it can be claimed.
func (w *worker) note(id string, st looked) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if st.free(w.client.Options().Owner) {
		delete(w.known, id)
		return true
	}
	if w.orphaned(id, st) {
		delete(w.known, id)
		return true
	}
	k := observation{session: st.Session, owner: st.Owner, until: time.Now().Add(w.jittered())}
	switch {
	case st.err != nil, st.State == tenure.StateReserved, st.Session == w.session.ID():
		// Later: the store fails, or the partition is reserved for another owner, or this
		// worker got it after the poll.
		k = observation{until: k.until}
	default:
		k.lone = st.Session == ""
	}
	w.known[id] = k
	return false
}

// orphaned says that a partition is held in the name of the worker's own session, but
// that the worker does not have it: a claim of the session was applied late. To claim
// it is what has the session give it up; no other process would, because the session
// lives. The caller holds mu.
func (w *worker) orphaned(id string, st looked) bool {
	return st.err == nil && st.State == tenure.StateHeld && st.Session == w.session.ID() &&
		w.held[id] == nil && !w.claiming[id] && w.moves[id] == nil
}

// again schedules another poll of a partition.
func (w *worker) again(id string, after time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known[id] = observation{until: time.Now().Add(after)}
}

// claim claims partitions, some at a time.
func (w *worker) claim(claims []claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil || w.leaving {
		return
	}
	for _, c := range claims {
		if w.room() == 0 {
			break
		}
		if w.held[c.id] != nil || w.claiming[c.id] || w.moves[c.id] != nil {
			continue
		}
		w.claiming[c.id] = true
		w.queue = append(w.queue, c)
	}
	w.claimMore()
}

// claimMore starts as many claims as the pace allows. The caller holds mu.
func (w *worker) claimMore() {
	for w.claimers < min(w.pace.atOnce, len(w.queue)) {
		w.claimers++
		w.jobs.Go(w.claimQueued)
	}
}

// pace is the number of claims that a worker may have in flight beside its heartbeat.
// Many workers that fill a group together can overload a store: then all heartbeats are
// late, sessions are lost, and it all starts again. So there are few at first, more as
// long as they are quick, and half as many when one takes an eighth of a heartbeat
// period.
type pace struct {
	atOnce, most int
	slow         time.Duration // a claim that takes longer is slow
	careful      bool          // one was slow
	quick        int           // since the last change
}

// firstClaims is the number of claims in flight before the first reply.
const firstClaims = 2

func newPace(most int, heartbeat time.Duration) pace {
	return pace{atOnce: min(firstClaims, most), most: most, slow: heartbeat / 8}
}

// took notes how long a claim took.
func (p *pace) took(d time.Duration) {
	if d > p.slow {
		p.atOnce, p.careful, p.quick = max(1, p.atOnce/2), true, 0
		return
	}
	if p.quick++; p.careful && p.quick < p.atOnce {
		return
	}
	p.atOnce, p.quick = min(p.most, p.atOnce+1), 0
}

// claimQueued claims what is queued, one after the other.
func (w *worker) claimQueued() {
	for {
		w.mu.Lock()
		if len(w.queue) == 0 || w.claimers > w.pace.atOnce {
			w.claimers--
			w.mu.Unlock()
			return
		}
		c := w.queue[0]
		w.queue = w.queue[1:]
		i, wanted := w.wants(c)
		w.mu.Unlock()
		begun := time.Now()
		if wanted {
			w.tryClaim(c, i)
		}
		w.mu.Lock()
		delete(w.claiming, c.id)
		w.pace.took(time.Since(begun))
		w.claimMore()
		w.mu.Unlock()
	}
}

// wants says that a partition is still to be claimed, and returns its index. The caller
// holds mu.
func (w *worker) wants(c claim) (int, bool) {
	i, ok := w.view.find(c.id)
	if !ok || w.leaving || w.ctx.Err() != nil {
		return 0, false
	}
	me, in := w.view.in[w.session.ID()]
	return i, in && (c.adopted || w.view.plan.Owner(i) == me.Place)
}

func (w *worker) tryClaim(c claim, index int) {
	l, err := w.session.TryAcquire(w.ctx, LockName(w.g.name, c.id), nil)
	var held *tenure.HeldError
	switch {
	case err == nil:
		kind := EventAssigned
		if c.adopted {
			kind = EventAdopted
		}
		w.begin(c.id, index, l, Event{Kind: kind})
	case errors.As(err, &held) && !held.Own:
		w.again(c.id, 0) // another worker was quicker
	default:
		w.again(c.id, w.jittered())
		if held == nil {
			w.trouble(err)
		}
	}
}

// makeRoom releases a few surplus partitions when the worker is full and lacks planned
// ones: their owners may be waiting for it in the same way.
func (w *worker) makeRoom(missing int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if missing == 0 || w.room() > 0 || len(w.moves)+len(w.claiming) > 0 {
		w.stuck = 0
		return
	}
	if w.stuck++; w.stuck < maxStuck {
		return
	}
	w.stuck = 0
	left := min(missing, w.g.options.Budget)
	for id, p := range w.held {
		if left == 0 {
			return
		}
		if i, ok := w.view.find(id); ok && w.view.plan.Owner(i) != w.place && !p.stopping.Swap(true) {
			p.stop(errMadeWay)
			left--
		}
	}
}

// auditEach is how many polls there are for each audit.
const auditEach = 4

// audit polls a few partitions that other workers should have, so that no partition is
// left without an owner because its planned owner does not come. A partition that has had
// no owner for two leases is claimed.
func (w *worker) audit() {
	if w.seat == nil || w.g.options.Audit < 0 {
		return
	}
	more := 0
	if w.polls%auditEach == 0 {
		more = w.g.options.Audit
	}
	ids := w.sample(more)
	if len(ids) == 0 {
		return
	}
	now := time.Now()
	var free []claim
	for i, st := range w.owners(ids) {
		id := ids[i]
		since, suspect := w.suspects[id]
		switch {
		case !st.free(w.client.Options().Owner) && st.err == nil:
			delete(w.suspects, id)
		case st.err != nil:
		case !suspect:
			w.suspects[id] = now
		case now.Sub(since) >= 2*w.client.Options().LeaseDuration:
			delete(w.suspects, id)
			free = append(free, claim{id: id, adopted: true})
		}
	}
	w.claim(free)
}

// vouches is the number of leases for which an audit relies on the coordinator to know
// that a session has ended, before it reads the session itself.
const vouches = 4

// owners reads the locks of partitions. Most of them are held under sessions on the
// membership, which the coordinator follows. So those sessions are only read now and
// then, in case the coordinator is stuck. Other sessions are always read.
func (w *worker) owners(ids []string) []looked {
	out := w.read(lockNames(w.g.name, ids), &tenure.ReadOptions{Eventual: true, WithoutSessions: true})
	w.mu.Lock()
	in := w.view.in
	w.mu.Unlock()
	now := time.Now()
	asked := map[string]tenure.SessionStatus{}
	on := func(session string) bool { return in[session].Session == session }
	maps.DeleteFunc(w.vouched, func(session string, _ time.Time) bool { return !on(session) })
	for _, st := range out {
		if st.err != nil || st.State != tenure.StateHeld || st.Session == "" {
			continue
		}
		at, known := w.vouched[st.Session]
		if !known && on(st.Session) {
			w.vouched[st.Session] = now // by the membership
		} else if now.Sub(at) >= vouches*w.client.Options().LeaseDuration {
			asked[st.Session] = tenure.SessionStatus{}
		}
	}
	if len(asked) > 0 {
		sessions := slices.Collect(maps.Keys(asked))
		list, errs := w.sessionStatuses(sessions)
		if err := cmp.Or(errs...); err != nil {
			w.trouble(err)
			return nil // an incomplete poll shows nothing
		}
		for i, id := range sessions {
			if asked[id] = list[i]; list[i].Alive && on(id) {
				w.vouched[id] = now
			}
		}
	}
	for i := range out {
		st := &out[i]
		if st.err != nil || st.State != tenure.StateHeld || st.Session == "" {
			continue
		}
		session, known := asked[st.Session]
		st.Held = !known || session.Alive
	}
	return out
}

// maxSuspects bounds the partitions that a worker watches.
const maxSuspects = 64

// maxPassed is how many partitions an audit passes over for each that it looks at.
const maxPassed = 16

// sample returns the partitions to be audited: some more that others are to have, and
// those that were free when they were polled.
func (w *worker) sample(more int) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.view
	me, ok := v.in[w.session.ID()]
	if !ok || !me.active() || w.leaving || len(v.ids) == 0 || w.room() == 0 {
		clear(w.suspects)
		return nil
	}
	var ids []string
	mine := func(id string) bool {
		owner, ok := v.owner(id)
		return !ok || owner == me.Place || w.held[id] != nil || w.claiming[id] || time.Now().Before(w.cooling[id])
	}
	for id := range w.suspects {
		if mine(id) {
			delete(w.suspects, id)
			continue
		}
		ids = append(ids, id)
	}
	// One after the other, so that none is left out for long. Each worker begins elsewhere,
	// far from the others.
	if w.audited == 0 {
		w.audited = spread(me.Place, len(v.ids))
	}
	for range min(more*maxPassed, len(v.ids)) {
		if more == 0 || len(ids) >= maxSuspects {
			break
		}
		id := v.ids[w.audited%len(v.ids)]
		w.audited++
		if _, suspect := w.suspects[id]; !suspect && !mine(id) {
			ids = append(ids, id)
			more--
		}
	}
	return ids
}

// spread returns where of n things the one in a place begins, so that those in the places
// from 0 up to any other one begin about equally far from each other.
func spread(place, n int) int {
	return int(float64(bits.Reverse32(uint32(place))) / (1 << 32) * float64(n)) //nolint:gosec // there are few places
}

// mayHave says that the plan gives a partition to this worker, or to no worker. The
// caller holds mu.
func (w *worker) mayHave(id string) bool {
	owner, ok := w.view.owner(id)
	me, in := w.view.in[w.session.ID()]
	return ok && in && (owner == me.Place || owner == plan.None)
}

// bounded returns a worker's context with a time limit.
func (w *worker) bounded(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(w.ctx, d)
}
