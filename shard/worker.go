// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/shard/internal/plan"
)

// view is the latest membership that a worker knows, with its plan. It does not change.
type view struct {
	membership membership
	spec       spec
	ids        []string
	base       []string
	index      map[string]int // nil if the names are numbers
	plan       *plan.Plan
	in         map[string]member // by their sessions
	// active is how many members are to have partitions.
	active int
}

// newView makes a view, with the help of a former one, which may be nil.
func newView(r membership, s spec, former *view) *view {
	v := &view{membership: r, spec: s, in: r.sessions()}
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
// has no owner, and false if there is no such partition.
func (v *view) owner(id string) (int, bool) {
	i, ok := v.find(id)
	if !ok {
		return plan.None, false
	}
	return v.plan.Owner(i), true
}

// worker is one session's life in the group. One goroutine polls and decides; others
// claim, ask and run the handlers.
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
	told     bool   // that it has joined
	sifted   uint64 // the epoch of the membership in which it has its own place alone
	polls    int
	silent   time.Time
	renewed  time.Time
	due      time.Time // when it looks at the group
	stuck    int
	left     bool
	suspects map[string]time.Time
	audited  int                  // where in the partitions the audit is
	vouched  map[string]time.Time // sessions on the membership: when it, or a poll, said that they live
	lead     string               // the session of the coordinator
	stranger uint64               // the token of a foreign lock in its place, once it is reported

	departure *departure // nil until it is to leave

	mu          sync.Mutex // guards the fields below; never held across I/O
	view        *view
	held        map[string]*Partition
	queue       []claim
	claiming    map[string]bool // queued, or under way
	claimers    int
	moves       map[string]*move
	known       map[string]observation
	cooling     map[string]time.Time
	leaving     bool
	coordinator *coordinator
	standOff    time.Time // until then it does not stand for coordinator
}

// observation is the last poll of a partition that the plan gives to this worker.
type observation struct {
	session string    // of its living holder, "" if it has none
	lone    bool      // its holder has no session
	owner   string    // of the holder
	until   time.Time // it is not looked at before
	// unanswered: the worker has waited for it in vain.
	unanswered bool
}

// outdated says that an observation of a partition is out of date for the worker with
// that session, which goes by the plan of now, and went by the one before.
func (k observation) outdated(id, session string, before, now *view) bool {
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
		suspects: map[string]time.Time{}, vouched: map[string]time.Time{}, view: newView(membership{}, spec{Names: []string{}}, nil),
		held: map[string]*Partition{}, claiming: map[string]bool{}, moves: map[string]*move{},
		known: map[string]observation{}, cooling: map[string]time.Time{},
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
		if early > 0 && w.hasSuccessors() && w.g.options.LeaveTimeout > 0 {
			return errors.Join(&LeftEarlyError{Partitions: early}, stopError(err))
		}
		return stopError(err)
	case lost == nil:
		return errors.Join(context.Cause(w.ctx), err)
	}
	return lost
}

// stopError is the relevant part of the error of closing a session. Leases that the store
// did not release expire.
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

// hasSuccessors reports whether there are other workers that should have partitions.
func (w *worker) hasSuccessors() bool {
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
		// The place was taken away, by hand perhaps. The worker starts again.
		w.stop(context.Cause(w.seat.Context()))
		return false
	}
	if now := time.Now(); !now.Before(w.due) {
		w.poll()
		w.due = now.Add(w.pause())
		if w.seat == nil && !w.leaves() {
			w.join()
		}
		w.keepOnePlace()
		w.audit()
	}
	more := w.reconcile()
	w.hurry()
	return more && w.ctx.Err() == nil
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (w *worker) jittered() time.Duration {
	return w.period - w.period/10 + rand.N(w.period/5+1)
}

// wait waits until the next poll of the group is due, or partitions are to be handed
// over, or something has happened.
func (w *worker) wait() {
	due, leave := w.due, w.run.leave.Done()
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

// poke makes the worker check its partitions at once.
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

// trouble reports an error that ends nothing.
func (w *worker) trouble(err error) {
	if err != nil && w.ctx.Err() == nil {
		w.events.emit(Event{Kind: EventError, Place: w.seatPlace(), Err: err})
	}
}

// hurry finds requests for partitions early, while the worker has a surplus: otherwise
// the next heartbeat finds them.
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
		Joined: joined, Place: -1, Epoch: v.membership.Epoch, Members: v.active, Partitions: len(v.ids),
		Unassigned: len(v.plan.Unassigned()), Held: len(w.held), Surplus: surplus,
		Claiming: len(w.claiming), MovingIn: len(w.moves), Coordinator: w.coordinator != nil,
	}
	if joined {
		s.Place, s.Planned = me.Place, len(v.plan.Of(me.Place))
	}
	return s
}

// poll reads the coordinator's lock, and the membership if there is a new one.
func (w *worker) poll() {
	w.polls++
	st, err := w.coordinatorState()
	if err != nil {
		w.trouble(err)
		return
	}
	o := parseCoordinatorState(st.Data)
	w.lead = st.Session
	w.mu.Lock()
	v := w.view
	// A claim of its own that came late: to stand is what has the session give it up.
	orphaned := st.State == tenure.StateHeld && st.Session == w.session.ID() && w.coordinator == nil
	w.mu.Unlock()
	if o.Epoch != v.membership.Epoch && o.Epoch > 0 {
		w.readMembership(v)
	}
	w.mu.Lock()
	_, in := w.view.in[w.session.ID()]
	w.mu.Unlock()
	if !in && w.seat != nil && w.place >= o.Places {
		w.stop(errPlaceGone) // and starts again
		return
	}
	if st.Held && st.Session == "" && st.Token != w.stranger {
		w.stranger = st.Token
		w.trouble(notOurs(st.Name, st.Owner, st.Token))
	}
	if st.Held && !orphaned || st.State == tenure.StateReserved && st.FreeIn > 0 && st.ReservedFor != w.client.Options().Owner {
		w.silent = time.Time{}
		w.standBy()
	} else {
		w.stand(st, v.active == 0)
	}
}

// errPlaceGone is why a worker starts again that no membership has. There were more places
// when it began to take its own, and the coordinator did not see it before it stopped looking
// there.
var errPlaceGone = errors.New("the worker's place is not one of the group's places any more")

// ownEach is the number of polls after which a coordinator reads its own record, which an
// operator may have changed.
const ownEach = 5

// coordinatorState reads the coordinator's lock: by a cheap read, unless it shows that
// something is to be done, or the worker leaves and must not miss a plan. The
// coordinator knows what it has written.
func (w *worker) coordinatorState() (tenure.Status, error) {
	name := CoordinatorLockName(w.g.name)
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
	epoch, mine := w.view.membership.Epoch, w.coordinator != nil
	w.mu.Unlock()
	if err == nil && st.Held && (st.Session == w.session.ID()) == mine && parseCoordinatorState(st.Data).Epoch == epoch {
		return st, nil
	}
	return w.client.Status(w.ctx, name)
}

func (w *worker) readMembership(v *view) {
	st, err := w.client.Status(w.ctx, MembershipName(w.g.name))
	if err != nil {
		w.trouble(err)
		return
	}
	r, ok, err := parseMembership(st.Data)
	if !ok || err != nil || r.Epoch == v.membership.Epoch {
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
		return // changed since; the membership that says so comes next
	}
	w.adopt(w.g.options.Plans.view(r, s, v))
}

// adopt switches the worker to a new plan.
func (w *worker) adopt(v *view) {
	id := w.session.ID()
	w.mu.Lock()
	before := w.view
	w.view = v
	if w.leaving {
		w.poke() // what is next goes by the membership
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
	ev := Event{Kind: EventPlan, Place: w.place, Epoch: v.membership.Epoch}
	if in {
		ev.Count = len(v.plan.Of(me.Place))
	}
	if in && !w.told {
		w.told = true
		w.events.emit(Event{Kind: EventJoined, Place: me.Place, Epoch: v.membership.Epoch})
	}
	w.events.emit(ev)
	if was, now := len(before.plan.Unassigned()), len(v.plan.Unassigned()); was != now && in {
		w.events.emit(Event{Kind: EventUnassigned, Place: w.place, Epoch: v.membership.Epoch, Count: now})
	}
}

// join takes a place: the lowest vacant one, so that a restarted worker finds
// its former one, and the plan has no holes.
func (w *worker) join() {
	st, err := w.client.Status(w.ctx, CoordinatorLockName(w.g.name))
	if err != nil {
		w.trouble(err)
		return
	}
	names := make([]string, parseCoordinatorState(st.Data).Places)
	for i := range names {
		names[i] = MemberName(w.g.name, i)
	}
	var vacant []int
	for i, st := range w.statuses(names) {
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
		l, err := w.session.TryAcquire(w.ctx, MemberName(w.g.name, place), &tenure.AcquireOptions{Data: w.memberInfo(false).bytes()})
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

// keepOnePlace gives up the other places that a new membership has this worker's session in:
// claims of them came late. Nobody asks about them, and the plan gives each its share.
func (w *worker) keepOnePlace() {
	w.mu.Lock()
	r := w.view.membership
	w.mu.Unlock()
	if w.seat == nil || r.Epoch == w.sifted {
		return
	}
	for _, m := range r.Members {
		if m.Session != w.session.ID() || m.Place == w.place {
			continue
		}
		l, err := w.session.TryAcquire(w.ctx, MemberName(w.g.name, m.Place), nil)
		switch {
		case err == nil:
			w.jobs.Go(func() { _ = l.Release(w.values) }) // it ends with the session
		case !errors.Is(err, tenure.ErrHeld):
			w.trouble(err)
			return
		}
	}
	w.sifted = r.Epoch
}

// inOrder is how many vacant places a joiner tries lowest first. After that it
// picks at random, so that many joiners do not race for the same place.
const inOrder = 32

func (w *worker) memberInfo(leaving bool) memberInfo {
	o := w.g.options
	p := memberInfo{Weight: o.Weight, Zone: o.Zone, Max: o.Max, Address: o.Address, Leaving: leaving}
	if o.Prepare == nil && o.Max == 0 && len(w.client.Options().Owner) <= maxOwnerShown {
		p.Awaits = o.Budget // the worker that hands over to it needs its exact name
	}
	return p
}

// rank returns how many workers stand for coordinator before this one, when the
// one with the given session does no more; and false if it is not on the membership.
func (w *worker) rank(lead string) (int, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	me := w.session.ID()
	rank := 0
	for _, m := range w.view.membership.Members { // by their places
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

// standsOff returns how long that is. If the coordinator is dead, the first worker may
// see it a heartbeat period later. A worker that stood before the first would not know
// how long the others have been silent, and would wait for another lease; so would a
// worker before the second, if the first is dead: see standBy.
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

// stand makes this worker the coordinator, unless another comes first. The first worker
// in the membership stands at once: it knows the others' sessions already. So does a
// worker that knew of no other, and a leaving worker: if the others leave as well, only
// leaving workers can stand, and all wait for a membership that says so.
func (w *worker) stand(st tenure.Status, alone bool) {
	now := time.Now()
	if w.silent.IsZero() {
		w.silent = now
	}
	w.mu.Lock()
	busy, leaving := w.coordinator != nil || now.Before(w.standOff), w.leaving
	w.mu.Unlock()
	if busy || leaving && !w.hasSuccessors() {
		return
	}
	if rank, in := w.rank(st.Session); !alone && !leaving && (rank > 0 || !in) && now.Sub(w.silent) < w.standsOff(st, rank) {
		return
	}
	l, err := w.session.TryAcquire(w.ctx, CoordinatorLockName(w.g.name), nil)
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
	busy, members := w.coordinator != nil || w.leaving, w.view.membership.Members
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
	w.trouble(cmp.Or(errs...))
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

// Plans lets several workers of one process, such as a simulation, share the
// plans that they make of the same membership: see [Options.Plans]. The zero value is
// ready.
type Plans struct {
	mu    sync.Mutex
	views map[string]*view // by what they are made of
}

// keptPlans is how many plans are kept.
const keptPlans = 8

func (p *Plans) view(r membership, s spec, former *view) *view {
	if p == nil {
		return newView(r, s, former)
	}
	key := string(r.bytes()) + string(s.bytes())
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.views[key]
	if v == nil {
		if p.views == nil || len(p.views) >= keptPlans {
			p.views = map[string]*view{}
		}
		v = newView(r, s, former)
		p.views[key] = v
	}
	return v
}
