// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package schedules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/driver"
)

// shown reports whether any write since an instant shows life: of the lock's record, or
// of the record of a session under which the lock was held meanwhile.
func (a *act) shown(from time.Time) bool {
	led := a.w.ledger
	sessions := []string{led.at(a.Lock, from).Session}
	life := led.since(from, a.Lock, func(w written) bool {
		sessions = append(sessions, w.Next.Session)
		return w.alive()
	})
	return life || slices.ContainsFunc(sessions, func(id string) bool {
		return id != "" && led.since(from, driver.SessionKey(id), written.alive)
	})
}

// remembers reports whether the client may have seen the lock before an instant. For
// such a client any change since then is a sign of life, whenever it was made. A
// process that was paused may get answers to calls from before the pause.
func (a *act) remembers(began time.Time) bool {
	paused := false
	a.p.set(func() { paused = a.p.wasPaused })
	if paused {
		return true
	}
	a.line.mu.Lock()
	defer a.line.mu.Unlock()
	for _, s := range a.line.seen {
		if s.at.Before(began) && (s.key == a.Lock || s.rec.State.OfSession()) {
			return true
		}
	}
	return false
}

// ever reports whether f was true of the lock's record at some instant since
// from. An absent one is the zero record.
func (a *act) ever(from time.Time, f func(driver.Record) bool) bool {
	led := a.w.ledger
	return f(led.at(a.Lock, from)) || led.since(from, a.Lock, func(w written) bool { return f(w.Next) })
}

// judgeHeld judges an answer that says who has the lock.
func (a *act) judgeHeld(err error) {
	var held *tenure.HeldError
	if !errors.As(err, &held) || a.w.plan.SameOwner {
		return
	}
	a.judgeTold(held.Owner, held.Token, func(driver.Record) bool { return true })
}

// judgeTold judges that a record of the lock for which f is true once named an owner
// under a token.
func (a *act) judgeTold(owner string, token uint64, f func(driver.Record) bool) {
	was := a.w.ledger.since(a.w.begun, a.Lock, func(w written) bool {
		return w.Next.Token == token && w.Next.Owner == owner && f(w.Next)
	})
	if !was {
		a.w.referee.wrong("#%d learns that %q has %s under token %d, which was never so", a.N, owner, a.Lock, token)
	}
}

// unlessAlive takes the lock unless its holder lives, and judges whether the
// answer was true.
func (a *act) unlessAlive(ctx context.Context, c locker) string {
	o := a.options(c)
	o.UnlessAlive, o.AdditionalWait = true, 0
	began := time.Now()
	l, err := c.Acquire(ctx, a.Lock, o)
	switch {
	case err == nil:
		a.judgeTaken(began, l)
		return "taken: " + a.have(ctx)(l, nil)
	case errors.Is(err, tenure.ErrHeld) && ctx.Err() == nil: // else the error says who was waited for
		a.w.happened("unless alive: held")
		a.judgeHeld(err)
		if !a.remembers(began) && !a.shown(began) {
			a.w.referee.wrong("#%d gives up on %s, whose holder has shown no life: %v", a.N, a.Lock, err)
		}
	}
	return a.told(err)
}

// judgeTaken judges a lease that was taken unless its holder lives: no answer
// that the client got before has shown life.
func (a *act) judgeTaken(began time.Time, l *tenure.Lease) {
	beats := map[string]string{}
	var first *seen
	for _, s := range a.line.since(began) {
		if !s.strong || !s.found {
			continue
		}
		switch {
		case s.key == a.Lock && first == nil:
			if s.rec.State != driver.Held || s.rec.Token >= l.Token() {
				return // it was free at first
			}
			if s.rec.Owner == l.Owner() {
				return // the client's own: the answer went to its holder, not to an acquire that waits
			}
			first = &s
			beats[s.key] = s.rec.Beat
		case first == nil:
		case s.key == a.Lock && (s.rec.Token >= l.Token() || s.rec.State == driver.Held && s.rec.Owner == l.Owner()):
			if p := s.rec.Prev; p != nil && p.Token == first.rec.Token && releasedBy(p.End) {
				a.w.referee.wrong("#%d takes %s, whose holder has released it since: %s", a.N, a.Lock, p.End)
			}
			return // its own
		case s.key == a.Lock && s.rec.State == driver.Reserved && s.rec.Owner == l.Owner():
			return // handed over to it
		case s.key == a.Lock && s.rec.Token == first.rec.Token && s.rec.State == driver.Released &&
			(s.rec.End == driver.EndReleasedDead || s.rec.End == driver.EndAbandoned):
			return // an operator has released what the dead one held; or no work was done under it
		case s.key == a.Lock && (s.rec.Token != first.rec.Token || s.rec.State != driver.Held || s.rec.Beat != beats[s.key]):
			a.w.referee.wrong("#%d takes %s, whose holder has shown life: %s", a.N, a.Lock, s.rec.State)
			return
		case s.key == driver.SessionKey(first.rec.Session) && s.rec.State == driver.Closed && s.rec.End != driver.EndExpired:
			if beats[s.key] == "" {
				return // it was free at first
			}
			a.w.referee.wrong("#%d takes %s, whose holder's session was closed in order", a.N, a.Lock)
			return
		case s.key == driver.SessionKey(first.rec.Session) && s.rec.State == driver.Alive:
			if before, ok := beats[s.key]; ok && before != s.rec.Beat {
				a.w.referee.wrong("#%d takes %s, whose holder's session has shown life", a.N, a.Lock)
				return
			}
			beats[s.key] = s.rec.Beat
		}
	}
	if first != nil {
		a.w.happened("unless alive: taken over")
	}
}

// releasedBy reports whether a term with this end was ended by its holder, after its work.
func releasedBy(end driver.EndReason) bool {
	return end == driver.EndReleased || end == driver.EndFailed || end == driver.EndSteppedDown
}

// ask asks a holder, and judges the answer.
func (a *act) ask() string {
	c := a.line.client
	ctx, stop := context.WithTimeout(a.ctx, a.within(4*a.lease())+1)
	defer stop()
	began := time.Now()
	before := a.w.ledger.at(a.Lock, began)
	var err error
	switch a.Op.name {
	case "step down":
		err = c.StepDown(ctx, a.Lock, &tenure.StepDownOptions{Reason: "for a test"})
	case "transfer":
		to := a.w.owner(a.r.IntN(len(a.w.processes)))
		err = c.StepDown(ctx, a.Lock, &tenure.StepDownOptions{To: to, Reason: "for a test"})
	case "revoke":
		err = admin.Revoke(ctx, c.Client, a.Lock, "for a test")
	default:
		err = admin.ReleaseDead(ctx, c.Client, a.Lock, "for a test")
	}
	switch {
	case err == nil:
		a.w.happened(a.Op.name + ": done")
		a.judgeDone(began, before)
	case errors.Is(err, tenure.ErrAlive):
		if a.Op.name == "release dead" && !a.remembers(began) && !a.shown(began) {
			a.w.referee.wrong("#%d learns that the holder of %s is alive, which has shown no life", a.N, a.Lock)
		}
	case errors.Is(err, tenure.ErrNotHeld):
		other := func(rec driver.Record) bool { return rec.State != driver.Held || rec.Token != before.Token }
		if !a.ever(began, other) && !a.endedSession(before) {
			a.w.referee.wrong("#%d learns that %s is not held, which it was all the time", a.N, a.Lock)
		}
	}
	return a.told(err)
}

// endedSession reports whether a record was under a session that is not alive.
func (a *act) endedSession(rec driver.Record) bool {
	if rec.Session == "" {
		return false
	}
	return a.w.ledger.record(driver.SessionKey(rec.Session)).State != driver.Alive
}

// judgeDone judges a request that is said to be done: the term that was asked
// has ended, and what an operator frees was free.
func (a *act) judgeDone(began time.Time, before driver.Record) {
	for _, h := range a.w.referee.good(a.Lock) {
		if h.Token() == before.Token && before.State == driver.Held {
			a.w.referee.wrong("#%d says that %s is done, and %v is good", a.N, a.Op.name, h)
		}
	}
	free := func(rec driver.Record) bool {
		return rec.State == driver.Released || rec.State == "" || rec.State == driver.Reserved && rec.Owner == ""
	}
	if a.Op.name == "revoke" && !a.ever(began, free) {
		a.w.referee.wrong("#%d says that %s was taken from its holder, and it was never free", a.N, a.Lock)
	}
	if a.Op.name == "release dead" && !a.ever(began, free) && !a.endedSession(before) {
		a.w.referee.wrong("#%d says that %s was released, and it was never free", a.N, a.Lock)
	}
}

// good returns the good leases of a lock.
func (r *referee) good(lock string) []*holding {
	r.mu.Lock()
	all := slices.Clone(r.leases[lock])
	r.mu.Unlock()
	return slices.DeleteFunc(all, func(h *holding) bool { return !r.check(h) })
}

// watch reads, and judges what was read.
func (a *act) watch() string {
	c := a.line.client
	ctx, stop := context.WithTimeout(a.ctx, a.within(4*a.lease())+1)
	defer stop()
	began := time.Now()
	switch a.Op.name {
	case "sweep":
		swept, err := admin.Sweep(ctx, c.Client)
		if swept > 0 {
			a.w.happened("swept")
		}
		return fmt.Sprint(swept, " ", a.told(err))
	case "observe":
		changes := 0
		for leader, err := range c.Election(a.Lock, nil).Observe(ctx) {
			if err == nil && !leader.None() {
				a.judgeHolder(leader.Owner, leader.Token)
			}
			changes++
		}
		a.w.happened("observed")
		return fmt.Sprint(changes, " changes")
	case "leader":
		leader, err := c.Election(a.Lock, nil).Leader(ctx)
		if err == nil {
			a.judgeHolder(leader.Owner, leader.Token)
		}
		return a.told(err)
	case "status":
		s, err := c.Status(ctx, a.Lock)
		if err == nil {
			a.judgeStatus(began, s)
		}
		return a.told(err)
	case "statuses":
		all, errs := c.Statuses(ctx, a.w.plan.Locks, nil)
		for i, s := range all {
			if errs[i] == nil && s.Name == a.Lock {
				a.judgeStatus(began, s)
			}
		}
		return a.told(errors.Join(errs...))
	case "locks":
		n := 0
		for s, err := range c.Locks(ctx, nil) {
			if err != nil {
				return a.told(err)
			}
			if s.Token > 0 {
				n++
			}
		}
		return fmt.Sprint(n, " locks")
	default:
		list, err := c.History(ctx, a.Lock)
		if err == nil {
			a.judgeHistory(list)
		}
		return a.told(err)
	}
}

// judgeHolder judges that an owner has had the lock under a token.
func (a *act) judgeHolder(owner string, token uint64) {
	a.judgeTold(owner, token, func(rec driver.Record) bool { return rec.State == driver.Held })
}

// judgeStatus judges what was read of a lock: it was so while it was read.
func (a *act) judgeStatus(began time.Time, s tenure.Status) {
	so := a.ever(began, func(rec driver.Record) bool {
		return string(rec.State) == s.State && rec.Token == s.Token
	})
	if !so {
		a.w.referee.wrong("#%d reads that %s is %q under token %d, which it was not meanwhile", a.N, s.Name, s.State, s.Token)
	}
}

// judgeHistory judges a history: tokens fall, and each term was so.
func (a *act) judgeHistory(list []tenure.Term) {
	for i, t := range list {
		if i > 0 && t.Token >= list[i-1].Token {
			a.w.referee.wrong("#%d reads a history in which token %d comes after %d", a.N, t.Token, list[i-1].Token)
		}
		if t.Unknown {
			continue
		}
		a.judgeHolder(t.Owner, t.Token)
		if t.End != "" && t.End != tenure.EndExpired && t.End != tenure.EndHandedOver {
			said := a.w.ledger.since(a.w.begun, a.Lock, func(w written) bool {
				is, prev := w.Next, w.Next.Prev
				return is.Token == t.Token && string(is.End) == t.End ||
					prev != nil && prev.Token == t.Token && string(prev.End) == t.End
			})
			if !said {
				a.w.referee.wrong("#%d reads that token %d of %s ended as %s, which no process has written", a.N, t.Token, a.Lock, t.End)
			}
		}
	}
	a.w.happened("history read")
}
