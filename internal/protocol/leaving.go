// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"time"

	"github.com/tenurelock/tenure/driver"
)

// term says whether rec shows this holder's tenure, with the beat that was confirmed
// last. Then no other holder has written the record: another process has written a
// request into it. Only the beat tells for certain, because owners may share a name,
// and tokens begin again when a record was deleted.
func (h *Holder) term(rec driver.Record) bool {
	return rec.State == h.rec.State && rec.Token == h.rec.Token && rec.Beat == h.rec.Beat && rec.Beat != ""
}

// adopt goes on from a record of this tenure that another process has written. That
// write is no sign of life of this holder: the lease still counts from the last
// confirmed write, not from now. All attempts until now replace another version, so
// none of them can be applied any more.
func (h *Holder) adopt(now time.Duration, rec driver.Record, a *Action) {
	h.rec, h.unknown, h.dataRisked = rec, h.unknown[:0], 0
	h.retry = now
	if n := h.adopted; n > 0 { // one is a request; several in a row are a process that writes again and again
		if rec.State == driver.Alive {
			// Or many processes ask for locks of one session. They back off further and
			// further; the heartbeat must get through between them.
			n = min(n, maxYield)
		}
		h.retry += h.t.backoff(h.env, n)
	}
	h.adopted++
	h.heed(now, a)
}

// maxYield bounds how far a session's holder backs off from other writers of its
// record: to a 250th of the lease.
const maxYield = 2

// heed ends the right to act if the record carries a request. If the right has ended
// already, the request counts for the release alone.
func (h *Holder) heed(now time.Duration, a *Action) {
	if h.asked != nil || len(h.rec.Requests) == 0 || h.rec.State == driver.Alive {
		return
	}
	q := h.rec.Requests[0]
	if !h.honours(q) {
		return // perhaps of a later version of Tenure; it stays in the record
	}
	h.asked = &q
	h.end(now, Asked, a)
}

// HandOver ends the right to act as a request in the record would. When the work has
// returned, the lock is reserved for q.To, or free if that is empty. The request's ID
// and kind are filled in. If the right to act has ended before, that first cause
// stays. Even then an empty q.To, before the work is done, cancels a reservation: of
// a request that was found, and of one that is found later.
func (h *Holder) HandOver(now time.Duration, q driver.Request) Action {
	var a Action
	h.pass(now, &a)
	unkept := q.To == "" && q.ToLabel == "" && !h.done()
	switch {
	case h.cause != None && unkept && h.asked == nil:
		h.unkept = true
	case h.cause == None, unkept:
		if q.ID, q.Kind = h.env.Fresh(), driver.HandOver; q.To == "" && q.ToLabel == "" {
			q.Kind = driver.StepDown
		}
		h.asked = &q
		h.end(now, Asked, &a)
	}
	a.Call = h.call(now)
	return a
}

// honours says whether the request ends the tenure.
func (h *Holder) honours(q driver.Request) bool {
	return honoured(q.Kind) && !(h.unkept && q.Kind == driver.HandOver)
}

// honoured says whether holders end their tenure for a request of that kind.
func honoured(k driver.RequestKind) bool { return k == driver.StepDown || k == driver.HandOver }

// left returns the record as the holder leaves it: free, or reserved for whom it was
// asked to hand over to.
func (h *Holder) left(version string) driver.Record {
	end := h.why()
	if h.rec.State == driver.Alive {
		return closed(h.rec, version, end)
	}
	if end == driver.EndSteppedDown && h.asked.Kind == driver.HandOver {
		return reserved(h.rec, version, heir{h.asked.To, h.asked.ToLabel}, h.t.Reservation(), driver.EndHandedOver, h.asked)
	}
	if end == driver.EndFailed {
		return freed(h.rec, version, end, h.failed)
	}
	return freed(h.rec, version, end, h.asked)
}

// why returns how the tenure ends, as the record will show it.
func (h *Holder) why() driver.EndReason {
	switch {
	case h.unwanted:
		return driver.EndAbandoned
	case h.cause == Stalled:
		return driver.EndStalled
	case h.Quiet():
		return driver.EndStopTimeout
	case h.expired:
		return driver.EndExpired
	case h.asked != nil:
		// Also if the work has failed: the asker looks for its own request, and the
		// new owner of a hand-over waits for the lock.
		return driver.EndSteppedDown
	case h.failed != nil:
		return driver.EndFailed
	}
	return driver.EndReleased
}

// End returns how the tenure of a lock ends, as the record that left returns shows it, and
// why if the work has failed.
func (h *Holder) End() (end driver.EndReason, failed *driver.Request) {
	switch end = h.why(); {
	case end == driver.EndFailed:
		return end, h.failed
	case end == driver.EndSteppedDown && h.asked.Kind == driver.HandOver:
		return driver.EndHandedOver, nil
	}
	return end, nil
}

// freed returns rec as it is left when nobody holds the lock any more: without
// requests, with how the tenure ended, and by whose request. The heartbeat period and
// the drift go, because nobody waits for this record, and it must stay small beside
// the two tenures that it shows.
func freed(rec driver.Record, version string, end driver.EndReason, asked *driver.Request) driver.Record {
	next := rec
	next.Version, next.State, next.Requests, next.Session, next.Bell = version, driver.Released, nil, "", ""
	next.Heartbeat, next.Drift, next.Priority = 0, 0, 0
	if rec.State != driver.Reserved {
		next.End, next.Asked = end, asked
		return next
	}
	// A reservation that nobody took: the record shows the tenure before it.
	if t := rec.Tenure(end); t != nil {
		next.Owner, next.Host, next.Label = t.Owner, t.Host, t.Label
		next.Since, next.Until, next.End, next.Asked = t.Since, t.Until, t.End, t.Asked
		next.Prev = nil
	}
	return next
}

// heir is whom a lock is kept for: an owner; if owner is empty, whoever has the label;
// if both are empty, nobody.
type heir struct{ owner, label string }

// heirOf returns whom a record that is reserved is kept for.
func heirOf(rec driver.Record) heir {
	if rec.Owner != "" {
		return heir{owner: rec.Owner}
	}
	return heir{label: rec.Label}
}

// nobody says that the lock is kept until a former holder has stopped.
func (e heir) nobody() bool { return e.owner == "" && e.label == "" }

// is says whether a process of that name and label is the heir.
func (e heir) is(owner, label string) bool {
	if e.owner != "" {
		return owner == e.owner
	}
	return e.label != "" && label == e.label
}

// KeptFor says whether the record is reserved for an owner of that name or label, who
// may take the lock at once.
func KeptFor(rec driver.Record, owner, label string) bool {
	return rec.State == driver.Reserved && heirOf(rec).is(owner, label)
}

// KeptForNobody says that the record is reserved until a former holder has stopped for
// certain. Nobody may take the lock before.
func KeptForNobody(rec driver.Record) bool {
	return rec.State == driver.Reserved && heirOf(rec).nobody()
}

// reserved returns rec as it is left when its holder's tenure has ended and the
// lock is kept for an heir for the given time. Older processes know of no label, and
// read that it is kept for nobody: they wait until the time has passed.
func reserved(rec driver.Record, version string, to heir, wait time.Duration, end driver.EndReason, asked *driver.Request) driver.Record {
	next := rec.Clone()
	ended := rec
	ended.Requests, ended.End, ended.Asked = nil, end, asked
	next.Prev = ended.Tenure(end)
	next.Version, next.Beat, next.State, next.Session = version, version, driver.Reserved, ""
	next.Owner, next.Host, next.Label, next.Bell, next.Priority = to.owner, "", to.label, "", 0
	if next.Lease, next.Heartbeat = wait, 0; !to.nobody() {
		next.Drift = 0 // otherwise the lease is the former holder's, and counts with its bound
	}
	next.Requests, next.End, next.Asked = nil, "", nil
	next.Since, next.Until = time.Time{}, time.Time{}
	return next
}
