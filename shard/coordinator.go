// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure"
)

// coordinator is the one worker that writes the membership. It holds two locks under
// its session, and writes only under their leases: a coordinator that was replaced can
// write nothing. The ownership of partitions does not rest on it.
type coordinator struct {
	w     *worker
	lead  *tenure.Lease
	ctx   context.Context
	stop  context.CancelCauseFunc
	looks chan chan struct{} // what is sent is closed after one more poll
	ended chan struct{}

	// Of its goroutine.
	lease      *tenure.Lease // of the membership
	membership membership
	state      coordinatorState
	spec       spec
	waiting    []member // the workers that were not on the membership at the last poll
	waited     int      // polls
	looked     int      // polls of all places; and what they have shown
	vacant     []bool
	changed    time.Time // when it wrote the membership

	closed map[string]bool // the ids of sessions that have ended for good

	told atomic.Pointer[coordinatorState] // what the record of the coordinator says
}

// settles is how many polls a coordinator waits at most while more and more workers
// come, so that they come into one plan.
const settles = 5

// run is the term of a coordinator.
func (c *coordinator) run() {
	defer close(c.ended)
	w := c.w
	unhook := context.AfterFunc(c.lead.Context(), func() { c.stop(context.Cause(c.lead.Context())) })
	err := c.begin()
	var looked chan struct{}
	for err == nil && c.ctx.Err() == nil {
		if err := c.look(); err != nil {
			w.trouble(err)
		}
		if looked != nil {
			close(looked)
		}
		timer := time.NewTimer(c.pause())
		looked = nil
		select {
		case looked = <-c.looks:
		case <-timer.C:
		case <-c.ctx.Done():
		}
		timer.Stop()
	}
	unhook()
	c.end(err)
}

// pause returns how long it waits until it looks again.
func (c *coordinator) pause() time.Duration {
	if c.w.isLeaving() && time.Since(c.changed) < hurries*c.w.period {
		return c.w.jittered() / hurrying
	}
	return c.w.jittered()
}

// begin takes the membership's lock, and reads the previous coordinator's membership.
func (c *coordinator) begin() (err error) {
	w := c.w
	o := &tenure.AcquireOptions{StoreTimeout: -1, AdditionalWait: w.client.Options().LeaseDuration}
	for {
		c.lease, err = w.session.Acquire(c.ctx, MembershipName(w.g.name), o)
		held := (*tenure.HeldError)(nil)
		if err == nil {
			break
		}
		if c.ctx.Err() != nil || !errors.As(err, &held) {
			return err
		}
		w.trouble(notOurs(MembershipName(w.g.name), held.Owner, held.Token)) // a previous coordinator would have given it up
	}
	for {
		if err = c.read(); err == nil || errors.Is(err, tenure.ErrUnreadable) || c.ctx.Err() != nil {
			return err
		}
		w.trouble(err)
		sleep(c.ctx, w.jittered())
	}
}

func (c *coordinator) read() error {
	w := c.w
	st, err := w.client.Status(c.ctx, MembershipName(w.g.name))
	if err != nil {
		return err
	}
	r, _, err := parseMembership(st.Data)
	if err != nil {
		return err
	}
	s, stored, err := readSpec(c.ctx, w.client, w.g.name)
	if err == nil && !stored {
		s, err = changeSpec(c.ctx, w.client, w.g.name, func(s spec, stored bool) spec {
			if stored {
				return s // another worker was quicker
			}
			return w.g.initial
		})
	}
	if err != nil {
		return err
	}
	st, err = w.client.Status(c.ctx, CoordinatorLockName(w.g.name))
	if err != nil {
		return err
	}
	c.membership, c.spec, c.state, c.changed = r, s, parseCoordinatorState(st.Data), time.Now()
	if c.state.Epoch == r.Epoch {
		o := c.state
		c.told.Store(&o)
		return nil
	}
	// The previous coordinator has written the membership, but not announced it.
	return c.tell(coordinatorState{Epoch: r.Epoch, Places: c.state.Places})
}

// tell writes the coordinator's state.
func (c *coordinator) tell(o coordinatorState) error {
	if err := c.lead.SetData(c.ctx, o.bytes()); err != nil {
		return err
	}
	c.state = o
	c.told.Store(&o)
	return nil
}

// end gives the two locks back.
func (c *coordinator) end(err error) {
	w := c.w
	var both sync.WaitGroup // where the session is closed, one waits for the other
	for _, l := range []*tenure.Lease{c.lease, c.lead} {
		if l != nil {
			both.Go(func() { _ = l.Release(w.values) }) // else it ends with the session
		}
	}
	both.Wait()
	w.mu.Lock()
	w.coordinator = nil
	if err != nil || errors.Is(context.Cause(c.lead.Context()), tenure.ErrSteppedDown) {
		w.standOff = time.Now().Add(3 * standOffs * w.period) // others first
	}
	w.mu.Unlock()
	cause := context.Cause(c.ctx)
	if err == nil || c.ctx.Err() != nil {
		err = cause
	}
	if errors.Is(err, errResigned) {
		err = nil
	}
	if w.ctx.Err() == nil {
		w.events.emit(Event{Kind: EventResigned, Place: w.seatPlace(), Err: err})
	}
}

var errResigned = errors.New("resigned")

// resign ends the term of this worker as coordinator, if it is, and waits until
// another one can begin.
func (w *worker) resign() {
	w.mu.Lock()
	c := w.coordinator
	w.mu.Unlock()
	if c == nil {
		return
	}
	c.stop(errResigned)
	<-c.ended
}

// lookNow triggers a poll, and waits for it until ctx ends: the coordinator may still wait
// for the lock of the membership.
func (c *coordinator) lookNow(ctx context.Context) {
	looked := make(chan struct{})
	select {
	case c.looks <- looked:
	case <-c.ended:
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-looked:
	case <-c.ended:
	case <-ctx.Done():
	}
}

// look looks at all places, frees those of the dead, and writes a new membership if that
// is needed.
func (c *coordinator) look() error {
	w := c.w
	list, errs := c.places()
	for _, err := range errs {
		if err != nil && !errors.Is(err, tenure.ErrUnreadable) {
			return err // an incomplete poll shows nothing
		}
	}
	next := membership{Format: membershipFormat, Epoch: c.membership.Epoch + 1, Revision: c.spec.Revision}
	if s, ok, err := parseSpec(list[0].Data); ok && err == nil && errs[0] == nil {
		c.spec, next.Revision = s, s.Revision
	} else if err != nil {
		w.trouble(err)
	}
	freed := c.free(list[1:], errs[1:])
	for place, st := range list[1:] {
		if m, in := c.member(place, st, errs[place+1], freed[place]); in {
			next.Members = append(next.Members, m)
		}
	}
	next.Members = fillUp(next.Members, c.membership.Members)
	if err := c.makePlaces(next); err != nil {
		return err
	}
	if next.same(c.membership) || !c.settled(next) {
		return nil
	}
	return c.publish(next)
}

const (
	// Vacant places are read once in several polls, except the lowest ones: a joining worker
	// takes one of these, and then all places are read. A worker in a higher place alone is
	// only there if an operator has freed the places below by hand. So the coordinator rarely
	// reads them when the membership has stood for a while.
	vacantEach = 5
	restsEach  = 20
	lowest     = 2
)

// places reads the group's spec, and all places that a worker may have.
func (c *coordinator) places() ([]tenure.Status, []error) {
	w := c.w
	all := 1 + c.state.Places
	list, errs := make([]tenure.Status, all), make([]error, all)
	hurry := w.isLeaving() || slices.ContainsFunc(c.membership.Members, func(m member) bool { return m.Leaving })
	look := func(at []int) {
		names := make([]string, len(at))
		for j, i := range at {
			if names[j] = SpecName(w.g.name); i > 0 {
				names[j] = MemberName(w.g.name, i-1)
			}
		}
		some, bad := w.client.Statuses(c.ctx, names, &tenure.ReadOptions{Eventual: !hurry})
		for j, i := range at {
			list[i], errs[i] = some[j], bad[j]
		}
	}
	var now, later []int
	vacant := 0
	each := vacantEach
	if time.Since(c.changed) > restsEach*w.period {
		each = restsEach
	}
	full := hurry || c.looked%each == 0 || len(c.vacant) != all
	c.looked++
	for i := range all {
		if !full && c.vacant[i] {
			if vacant++; vacant > lowest {
				later = append(later, i)
				continue
			}
		}
		now = append(now, i)
	}
	look(now)
	for _, i := range now {
		if len(later) > 0 && c.vacant[i] && list[i].State == tenure.StateHeld {
			look(later) // there are new ones, perhaps more of them
			break
		}
	}
	c.vacant = make([]bool, all)
	for i := range list {
		c.vacant[i] = i > 0 && errs[i] == nil && list[i].State != tenure.StateHeld
	}
	return list, errs
}

// member returns the worker in a place.
func (c *coordinator) member(place int, st tenure.Status, err error, freed bool) (member, bool) {
	if err != nil { // unreadable: it stays what it was
		i, ok := slices.BinarySearchFunc(c.membership.Members, place, func(m member, place int) int { return m.Place - place })
		if !ok {
			return member{}, false
		}
		return c.membership.Members[i], true
	}
	// A dead one whose session could not be closed yet is in its place.
	if freed || st.State != tenure.StateHeld || st.Session == "" {
		return member{}, false
	}
	p, ok := parseMemberInfo(st.Data)
	if !ok {
		return member{}, false // a foreign lock
	}
	return member{Place: place, Session: st.Session, Owner: shownOwner(st.Owner), Weight: p.Weight, Zone: p.Zone, Max: p.Max, Leaving: p.Leaving, Awaits: p.Awaits}, true
}

// freeAtOnce is how many dead workers' sessions are closed at a time.
const freeAtOnce = 16

// free takes the places of dead workers, and gives them back: taking one closes
// the worker's session, so that its partitions can be claimed with one write
// each. Workers that have closed it themselves have left: their places are free, and
// must not be taken from a worker that comes back just now.
func (c *coordinator) free(list []tenure.Status, errs []error) (freed []bool) {
	w := c.w
	freed = make([]bool, len(list))
	closed := make([]bool, len(list))
	var wg sync.WaitGroup
	slots := make(chan struct{}, freeAtOnce)
	for place, st := range list {
		if errs[place] != nil || st.State != tenure.StateHeld || st.Held || st.Session == w.session.ID() {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if closed[place] = c.closed[st.Session] || c.left(st.Session); closed[place] {
				freed[place] = true
				return
			}
			l, err := w.session.TryAcquire(c.ctx, st.Name, nil)
			if err != nil {
				if !errors.Is(err, tenure.ErrHeld) {
					w.trouble(err)
				}
				return
			}
			freed[place] = true
			if st.Session != "" {
				w.events.emit(Event{Kind: EventMemberDead, Peer: st.Owner, Place: place})
			}
			if err := l.Release(context.WithoutCancel(c.ctx)); err != nil {
				w.trouble(err)
			}
		})
	}
	wg.Wait()
	c.closed = map[string]bool{}
	for place, st := range list {
		if closed[place] {
			c.closed[st.Session] = true
		}
	}
	return freed
}

// left says that a session was closed.
func (c *coordinator) left(session string) bool {
	st, err := c.w.client.SessionStatus(c.ctx, session, nil)
	return err == nil && !st.Alive && st.State != tenure.StateAlive
}

// fillUp adds the vacant places below the highest occupied one, with the weight and the
// zone of their last worker.
func fillUp(members, before []member) []member {
	if len(members) == 0 {
		return nil
	}
	was := map[int]member{}
	for _, m := range before {
		was[m.Place] = m
	}
	var full []member
	for _, m := range members {
		for place := len(full); place < m.Place; place++ {
			v := member{Place: place, Weight: 1}
			if last, ok := was[place]; ok {
				v.Weight, v.Zone = last.Weight, last.Zone
			}
			full = append(full, v)
		}
		full = append(full, m)
	}
	return full
}

// makePlaces keeps twice as many places as there are members.
func (c *coordinator) makePlaces(next membership) error {
	places := min(max(minPlaces, len(next.Members), 2*len(next.sessions())), maxPlaces)
	places = (places + minPlaces - 1) / minPlaces * minPlaces
	if places = min(places, maxPlaces); places == c.state.Places {
		return nil
	}
	return c.tell(coordinatorState{Epoch: c.state.Epoch, Places: places})
}

// settled says that a membership is to be written now: at once when a worker dies or
// leaves, or the partitions have changed; when workers come, or leaving ones are gone,
// after a poll that has shown no more of them.
func (c *coordinator) settled(next membership) bool {
	now := next.sessions()
	urgent := next.Revision != c.membership.Revision && c.membership.Epoch > 0
	for id, was := range c.membership.sessions() {
		m, in := now[id]
		urgent = urgent || !in && !was.Leaving || in && m != was
	}
	same := slices.Equal(c.waiting, next.Members)
	c.waiting = next.Members
	if c.waited++; urgent || same || c.waited > settles {
		c.waiting, c.waited = nil, 0
		return true
	}
	return false
}

// publish writes a membership, and then announces it.
func (c *coordinator) publish(next membership) error {
	if err := c.lease.SetData(c.ctx, next.bytes()); err != nil {
		return err
	}
	c.membership, c.changed = next, time.Now()
	return c.tell(coordinatorState{Epoch: next.Epoch, Places: c.state.Places})
}
