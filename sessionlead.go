// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// Everything under a session is stepped under one mutex, that of the lease of its
// own record: the machine of a lock reads the session's.

// admit notes an acquire under the session, unless that has ended. The caller
// holds the contest.
func (s *Session) admit(a *acquire) error {
	if !s.isOpen() {
		return s.ended()
	}
	a.want.Under = s.l.h
	s.acquires[a] = struct{}{}
	return nil
}

// newLease returns the lease that was granted under the session, and false if
// that has ended meanwhile, so that nobody may have it.
func (s *Session) newLease(g protocol.Grant, o AcquireOptions) (_ *Lease, open bool) {
	l := s.c.leaseOf(g, o)
	l.under, l.mu = s, s.l.mu
	ctx := s.l.ctx
	if !s.isOpen() {
		ctx = context.Background() // that of the session may be busy with ending all others
	}
	began := l.prepare(ctx)
	s.l.mu.Lock()
	l.h = protocol.NewTied(s.c.timing, s.c.env, g, s.l.h)
	open = s.l.h.Open(s.c.clock.Holder())
	s.leases[l], s.named[l.key] = struct{}{}, l
	s.working++
	s.l.mu.Unlock()
	l.do(l.h.Step)
	return l, l.standing() && began && open
}

// isOpen says that locks may be taken under the session.
func (s *Session) isOpen() bool {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	return s.l.h.Open(s.c.clock.Holder())
}

// back notes that the work under the lease has returned. The caller holds the
// lease.
func (l *Lease) back() {
	if l.under != nil && !l.returned {
		l.returned = true
		l.under.working--
	}
}

// drop forgets a lease that is over. Its work may go on: that of a lock whose
// holder let it lapse. The caller holds it.
func (s *Session) drop(l *Lease) {
	delete(s.leases, l)
	if s.named[l.key] == l {
		delete(s.named, l.key)
	}
}

// lead has the locks follow what the session's own machine has found. The caller
// holds the session's lease.
func (s *Session) lead(now time.Duration, notes []protocol.Note) {
	for _, n := range notes {
		if n != protocol.NoteEnded && n != protocol.NoteQuiet && n != protocol.NoteOver {
			continue
		}
		s.behind = slices.AppendSeq(s.behind[:0], maps.Keys(s.leases))
		s.c.beats.set(&s.follow, now)
		s.c.looks.set(&s.ending, 0)
		break
	}
	if s.deliver(now) {
		s.c.looks.set(&s.inbox, 0) // an acquire may know of it
	}
	s.closeIdle(now)
}

// followAtOnce is how many locks follow their session before a heartbeat, or who
// releases one, has its turn.
const followAtOnce = 64

// followOn has some of the locks follow.
func (s *Session) followOn() {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	now := s.c.clock.Holder()
	rest := s.behind[:max(0, len(s.behind)-followAtOnce)]
	for _, l := range s.behind[len(rest):] {
		l.apply(now, l.h.Step(now))
	}
	clear(s.behind[len(rest):])
	if s.behind = rest; len(rest) > 0 {
		s.c.beats.set(&s.follow, now)
	}
}

// closeIdle closes the session when it has ended and no work goes on under it.
// The caller holds the session's lease.
func (s *Session) closeIdle(now time.Duration) {
	if s.closing || s.working > 0 || s.l.h.Cause() == protocol.None {
		return
	}
	s.closing = true
	s.l.apply(now, s.l.h.Done(now))
}

// deliver hands the requests in the session's record to the locks that they are
// for, and reports whether one is left that no lock knows of. The caller holds the
// session's lease.
func (s *Session) deliver(now time.Duration) (left bool) {
	for _, q := range s.l.h.Inbox() {
		l := s.named[q.Lock]
		mine := l != nil && (q.Token == 0 || q.Token == l.token)
		switch {
		case q.Kind != driver.Confirm && q.Kind != driver.StepDown && q.Kind != driver.HandOver:
			s.l.h.Answered(q.ID) // of a later version, perhaps
		case !mine:
			left = true
		default:
			if q.Kind != driver.Confirm {
				l.apply(now, l.h.Ask(now, q))
			}
			s.l.h.Answered(q.ID)
		}
	}
	return left
}

// read goes through the requests for locks that are not held, as far as the
// session knows. One that it keeps is read again after the next heartbeat.
func (s *Session) read() {
	c := s.c
	c.seeing.Lock()
	defer c.seeing.Unlock()
	s.l.mu.Lock()
	now := c.clock.Holder()
	s.deliver(now)
	var ghosts []driver.Request
	kept := map[string]time.Duration{}
	for _, q := range s.l.h.Inbox() {
		since, seen := s.kept[q.ID]
		if !seen {
			since = now
		}
		switch {
		case q.Kind == driver.Confirm:
			ghosts = append(ghosts, q)
		case s.acquiring(q.Lock) && now < since+c.timing.Lease:
			kept[q.ID] = since // it may have been granted, and not know it yet
			continue
		}
		s.l.h.Answered(q.ID)
	}
	s.kept = kept
	s.l.mu.Unlock()
	for _, q := range ghosts {
		s.disclaim(q)
	}
}

// acquiring says whether somebody acquires the lock under the session. The caller
// holds the contests.
func (s *Session) acquiring(key string) bool {
	for a := range s.acquires {
		if a.k.key == key && a.con != nil {
			return true
		}
	}
	return false
}

// fail fails who waits for a lock under the session when it has ended, and tells
// this process that it is closed.
func (s *Session) fail() {
	c := s.c
	c.seeing.Lock()
	defer c.seeing.Unlock()
	err := s.ended()
	for a := range s.acquires {
		a.settle(nil, err)
		a.giveUp()
	}
	s.l.mu.Lock()
	freed, _ := s.l.h.Over()
	rec := s.l.h.Record()
	s.l.mu.Unlock()
	if freed != protocol.Released || rec.State != driver.Closed {
		return
	}
	now := c.clock.Contender()
	c.seen.of(s.id).Saw(now, now, driver.Strong, rec, true)
	c.reapLater(s.id)
}

// disclaiming releases a lock that is held in the session's name, and that the
// session knows nothing of.
type disclaiming struct {
	entry
	s *Session
	m *protocol.Disclaimer
	k claimed
}

// disclaim begins that, if it is so. The caller holds the contests.
func (s *Session) disclaim(q driver.Request) {
	k := claimed{q.Lock, q.Token}
	if s.disclaiming[k] != nil {
		return
	}
	d := &disclaiming{s: s, k: k, m: protocol.NewDisclaimer(s.c.timing, s.c.env, s.id, q.Lock, q.Token, s.mine)}
	d.run = func(time.Duration) { d.do((*protocol.Disclaimer).Step) }
	s.disclaiming[k] = d
	d.act((*protocol.Disclaimer).Step)
}

// mine says whether somebody under the session holds the lock as the record shows
// it, or has written it. The caller holds the contests and the session's lease.
func (s *Session) mine(rec driver.Record) bool {
	if l := s.named[rec.Key]; l != nil && l.token == rec.Token {
		return true
	}
	for a := range s.acquires {
		if a.k.key == rec.Key && a.con != nil && a.con.Wrote(rec) {
			return true
		}
	}
	return false
}

func (d *disclaiming) do(step func(*protocol.Disclaimer, time.Duration) protocol.Action) {
	d.s.c.seeing.Lock()
	defer d.s.c.seeing.Unlock()
	d.act(step)
}

// act makes one step. The caller holds the contests.
func (d *disclaiming) act(step func(*protocol.Disclaimer, time.Duration) protocol.Action) {
	s, c := d.s, d.s.c
	s.l.mu.Lock()
	act := step(d.m, c.clock.Contender())
	_, over := s.l.h.Over()
	s.l.mu.Unlock()
	if act.Request != nil {
		c.send(unhurried, act.Request, func(res protocol.Result) {
			d.do(func(m *protocol.Disclaimer, now time.Duration) protocol.Action { return m.Reply(now, res) })
		})
	}
	at, due := d.m.Next()
	switch {
	case d.m.Over() || over: // with the session all that is held in its name is free
		delete(s.disclaiming, d.k)
		c.looks.drop(&d.entry)
	case due:
		c.looks.set(&d.entry, at)
	default:
		c.looks.drop(&d.entry)
	}
}

// checkUnder is Check of a lock under a session, when one of the two has ended.
func (l *Lease) checkUnder() error {
	limit := l.limit.Load()
	if limit == unlimited {
		s := l.under.l
		due := s.limit.Load()
		if due > 0 && int64(l.c.clock.Holder()) < due || s.checkEnded(due) == nil {
			return nil
		}
		l.limit.CompareAndSwap(unlimited, s.limit.Load())
		limit = l.limit.Load()
	}
	return wrap("check", l.key, l.endedError(limit))
}

// bound returns the instant or the code that counts for the lease.
func (l *Lease) bound() int64 {
	limit := l.limit.Load()
	if limit == unlimited {
		limit = l.under.l.limit.Load()
	}
	return limit
}
