// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"time"

	"github.com/tenurelock/tenure/driver"
)

// What a record shows after the end of a term.

// SessionRemains says that the work has returned, and that only the session must still be closed,
// which frees the lock.
func (h *Holder) SessionRemains() bool { return h.done() && h.out == nil && h.freedByClosing() }

// freedByClosing says that closing the session frees the lock and says how its term ended, so
// that the lock needs no write of its own: one write closes a session with very many
// locks. If another lock's work is overdue, a lock does not wait for the closing.
func (h *Holder) freedByClosing() bool {
	s := h.under
	return s != nil && s.Cause() != None && !h.mustWriteEnd() && h.why() == s.why()
}

// mustWriteEnd says that the lock's own record must show more than its release.
func (h *Holder) mustWriteEnd() bool { return h.data > h.dataKept || h.reason != nil }

// End returns how the term of a lock ends, as its record shows it, and the reason if
// the work has failed.
func (h *Holder) End() (end driver.EndReason, failed *driver.Request) {
	switch end = h.why(); {
	case end == driver.EndFailed:
		return end, h.reason
	case end == driver.EndSteppedDown && h.reason.Kind == driver.HandOver:
		return driver.EndHandedOver, nil
	}
	return end, nil
}

// why returns how the term ends, as the record will show it.
func (h *Holder) why() driver.EndReason {
	_, unwanted := h.work.(unused)
	switch {
	case unwanted:
		return driver.EndAbandoned
	case h.Cause() == Stalled:
		return driver.EndStalled
	case h.Quiet():
		return driver.EndStopTimeout
	case h.Expired():
		return driver.EndExpired
	}
	return endFor(h.reason)
}

// honoured says whether holders end their term for a request of that kind.
func honoured(k driver.RequestKind) bool { return k == driver.StepDown || k == driver.HandOver }

// endFor returns how a term ends if its work has returned in time: for a request, a
// failure, or no reason.
func endFor(reason *driver.Request) driver.EndReason {
	switch {
	case reason == nil:
		return driver.EndReleased
	case reason.Kind == driver.Fail:
		return driver.EndFailed
	}
	// A request outweighs failed work: the requester looks for its request, and the next
	// owner waits for the lock.
	return driver.EndSteppedDown
}

// leftFor returns rec as its holder leaves it: free, or reserved for the given time for
// the owner or label that a request names. It shows a failure only if the failure ended
// the term.
func leftFor(
	rec driver.Record, version string, end driver.EndReason, reason *driver.Request, wait time.Duration,
) driver.Record {
	switch {
	case rec.State == driver.Alive:
		return closed(rec, version, end)
	case end == driver.EndSteppedDown && reason.Kind == driver.HandOver:
		return reserved(rec, version, reservation{reason.To, reason.ToLabel}, wait, driver.EndHandedOver, reason)
	case end != driver.EndFailed && reason != nil && reason.Kind == driver.Fail:
		reason = nil
	}
	return freed(rec, version, end, reason)
}

// freed returns rec as the record of a free lock: without requests, with how the term
// ended, and at whose request. It drops heartbeat period and drift: no contender waits
// for the lease of a free lock.
func freed(rec driver.Record, version string, end driver.EndReason, asked *driver.Request) driver.Record {
	next := rec
	next.Version, next.State, next.Requests, next.Session, next.Notify = version, driver.Released, nil, "", ""
	next.Heartbeat, next.Drift, next.Priority = 0, 0, 0
	if rec.State != driver.Reserved {
		next.End, next.Asked = end, asked
		return next
	}
	// A reservation that was not used: the record shows the term before it.
	if t := rec.Term(end); t != nil {
		next.Owner, next.Host, next.Label = t.Owner, t.Host, t.Label
		next.Since, next.Until, next.End, next.Asked = t.Since, t.Until, t.End, t.Asked
		next.Prev = nil
	}
	return next
}

// reservation says for which process a lock is reserved: for an owner; if that is empty, for
// every process with the label; if both are empty, for none.
type reservation struct{ owner, label string }

// reservationOf returns the reservation that a reserved record shows.
func reservationOf(rec driver.Record) reservation {
	if rec.Owner != "" {
		return reservation{owner: rec.Owner}
	}
	return reservation{label: rec.Label}
}

// forNobody says that the lock is blocked until a former holder has stopped.
func (e reservation) forNobody() bool { return e.owner == "" && e.label == "" }

// isFor says whether the lock is reserved for a process with that owner name and label.
func (e reservation) isFor(owner, label string) bool {
	if e.owner != "" {
		return owner == e.owner
	}
	return e.label != "" && label == e.label
}

// ReservedFor says whether the record is reserved for that owner name or label, so that
// the process may take the lock at once.
func ReservedFor(rec driver.Record, owner, label string) bool {
	return rec.State == driver.Reserved && reservationOf(rec).isFor(owner, label)
}

// ReservedForNobody says that the record is reserved until a former holder has certainly
// stopped. No process may take the lock before.
func ReservedForNobody(rec driver.Record) bool {
	return rec.State == driver.Reserved && reservationOf(rec).forNobody()
}

// InClosedLife says that rec is what a [driver.Guarded] store shows in a closed life: the engine may
// have lost who holds the lock.
func InClosedLife(rec driver.Record) bool {
	return ReservedForNobody(rec) && rec.Life != "" && rec.Version == rec.Life
}

// reserved returns rec after its holder's term, with the lock reserved for the given
// time. Programs that know no labels wait out a reservation for a label, as one for
// nobody.
func reserved(
	rec driver.Record, version string, to reservation, wait time.Duration, end driver.EndReason, asked *driver.Request,
) driver.Record {
	next := rec.Clone()
	ended := rec
	ended.Requests, ended.End, ended.Asked = nil, end, asked
	next.Prev = ended.Term(end)
	next.Version, next.Beat, next.State, next.Session = version, version, driver.Reserved, ""
	next.Owner, next.Host, next.Label, next.Notify, next.Priority = to.owner, "", to.label, "", 0
	if next.Lease, next.Heartbeat = wait, 0; !to.forNobody() {
		next.Drift = 0 // otherwise lease and drift bound stay the former holder's
	}
	next.Requests, next.End, next.Asked = nil, "", nil
	next.Since, next.Until = time.Time{}, time.Time{}
	return next
}

// closed returns the record of a closed session, with no lock held under it.
func closed(rec driver.Record, version string, end driver.EndReason) driver.Record {
	next := rec.Clone()
	next.Version, next.State, next.Requests, next.Notify = version, driver.Closed, nil, ""
	next.End = end
	return next
}

// Ended returns the record of a session that has certainly died.
func Ended(rec driver.Record, version string) driver.Record {
	return closed(rec, version, driver.EndExpired)
}

// inAnotherLife says that a reply to a session's write names another life of the engine than that
// in which the session was opened, so that the session has ended: see [driver.Guarded]. The store
// shows that, too, unless a duplicate of the claim has opened the session a second time.
func (h *Holder) inAnotherLife(w attempt, r Result) bool {
	return r.Found && h.rec.State == driver.Alive && r.Record.Life != h.rec.Life && w.kind != Release
}

// supersede ends the machine when another record has taken the place of its own.
func (h *Holder) supersede(now time.Duration, r Result, a *Action) {
	h.lastErr = nil
	h.end(now, Superseded, a)
	h.finish(superseded{&r.Record}, a)
}
