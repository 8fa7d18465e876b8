// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"reflect"
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// tenure is what the world knows of one, from what really happened.
type tenure struct {
	owner  string
	end    driver.EndReason // empty while it goes on
	asked  *driver.Request  // what ended it, or what it did not answer
	prompt bool             // its work returns within a lease of being told
}

// ending returns how the sender of a release or a quit leaves, by what it has
// been through.
func ending(m *machine, r *protocol.Request) (driver.EndReason, *driver.Request) {
	var asked *driver.Request
	if len(r.Prev.Requests) > 0 {
		asked = &r.Prev.Requests[0]
	}
	switch {
	case m.h == nil: // nobody ever believed in it
		return driver.EndAbandoned, nil
	case m.h.Cause() == protocol.Stalled:
		return driver.EndStalled, asked
	case m.h.Quiet():
		return driver.EndStopTimeout, asked
	case m.h.Expired():
		return driver.EndExpired, asked
	case asked == nil:
		return driver.EndReleased, nil
	case asked.Kind == driver.HandOver:
		return driver.EndHandedOver, asked
	}
	return driver.EndSteppedDown, asked
}

// wrote judges what a write has made of the record.
func (w *World) wrote(m *machine, r *protocol.Request, was driver.Record, found bool) {
	is := w.store.rec
	if len(is.Requests) > 0 && is.State != driver.Held {
		w.fail("%s leaves requests in a record that is %s", m, is.State)
	}
	if found && was.State == driver.Released && r.Kind != protocol.Claim {
		w.fail("%v of %s changes a released record", r.Kind, m)
	}
	// What each write may change, beside the version.
	same := was
	same.Version = is.Version
	switch r.Kind {
	case protocol.Ask:
		same.Requests = is.Requests
		w.only(m, r, same)
		w.asked(m, was)
	case protocol.Quit:
		same.End = is.End
		w.only(m, r, same)
		if how := w.written[r.Next.Version].end; is.End != how {
			w.fail("%s says why it is quiet: %q, want %q", m, is.End, how)
		}
	case protocol.Heartbeat:
		same.Beat, same.Data = is.Beat, is.Data
		w.only(m, r, same)
	case protocol.Claim, protocol.Takeover:
		w.began(m, r, was, found)
	case protocol.Release:
		w.released(m, r, was)
	case protocol.Free:
		w.freed(m, r, was)
	}
	if is.Beat != was.Beat {
		w.beats[is.Token]++
		w.stored[is.Beat] = w.now
	}
	w.beatOf[is.Version] = is.Beat
}

func (w *World) only(m *machine, r *protocol.Request, same driver.Record) {
	if !reflect.DeepEqual(same, w.store.rec) {
		w.fail("%v of %s changes more than it may: %+v, want %+v", r.Kind, m, w.store.rec, same)
	}
}

// began judges the begin of a term, and what it remembers of the one before.
func (w *World) began(m *machine, r *protocol.Request, was driver.Record, found bool) {
	is := w.store.rec
	if is.Owner != m.p.name || is.State != driver.Held || is.End != "" || is.Asked != nil || len(is.Requests) > 0 {
		w.fail("%s begins with %+v", m, is)
	}
	w.tenures[is.Token] = &tenure{owner: m.p.name}
	if !found {
		return
	}
	before := w.tenures[was.Token]
	switch was.State {
	case driver.Held:
		before.end = driver.EndExpired
		if was.End != "" {
			before.end = was.End
		}
		if before.asked = nil; len(was.Requests) > 0 {
			before.asked = &was.Requests[0]
		}
	case driver.Reserved:
		if was.Owner != m.p.name {
			w.stood(m, r, was)
		}
	}
	w.remembers(m, is.Prev, was.Token)
}

// stood says that r was sent when the record had stood its time, by the clock
// of a correct observer.
func (w *World) stood(m *machine, r *protocol.Request, was driver.Record) {
	least := time.Duration(float64(was.Lease)/(1+w.cfg.Skew)) - time.Microsecond
	if stood := w.written[r.Next.Version].at - w.stored[was.Beat]; stood < least {
		w.fail("%v of %s is early: %s for %q, token %d, has stood for %v", r.Kind, m, was.State, was.Owner, was.Token, stood)
	}
}

// remembers compares how a record shows the end of a tenure with what was.
func (w *World) remembers(m *machine, t *driver.Tenure, token uint64) {
	want := w.tenures[token]
	switch {
	case t == nil:
		w.fail("%s writes nothing of token %d, which has ended: %s", m, token, want.end)
	case t.Owner != want.owner || t.Token != token || t.End != want.end:
		w.fail("%s writes that %s with token %d has ended: %q; it was %s with token %d: %q", m, t.Owner, t.Token, t.End, want.owner, token, want.end)
	case (t.Asked == nil) != (want.asked == nil), t.Asked != nil && *t.Asked != *want.asked:
		w.fail("%s writes that token %d was asked %+v, it was %+v", m, token, t.Asked, want.asked)
	}
}

// released judges how a holder leaves its record.
func (w *World) released(m *machine, r *protocol.Request, was driver.Record) {
	is, t := w.store.rec, w.tenures[was.Token]
	by := w.written[r.Next.Version]
	t.end, t.asked = by.end, by.asked
	kept := t.end == driver.EndHandedOver
	switch {
	case is.Token != was.Token || was.State != driver.Held:
		w.fail("%s releases token %d from %s, token %d", m, is.Token, was.State, was.Token)
	case kept && (is.State != driver.Reserved || is.Owner != t.asked.To || is.Lease != w.t.Reservation()):
		w.fail("%s was to hand over to %q, and leaves %+v", m, t.asked.To, is)
	case kept:
		w.remembers(m, is.Prev, is.Token)
	case is.State != driver.Released:
		w.fail("%s has ended: %q, and leaves %+v", m, t.end, is)
	default:
		w.remembers(m, is.Tenure(""), is.Token)
	}
}

// freed judges an operator's write.
func (w *World) freed(m *machine, r *protocol.Request, was driver.Record) {
	is, t := w.store.rec, w.tenures[was.Token]
	want := w.written[r.Next.Version].want
	if is.Token != was.Token {
		w.fail("%s changes the token", m)
	}
	if is.State == driver.Reserved {
		if was.State != driver.Held || is.Owner != "" || is.Lease < was.Lease || m.want.Kind != driver.Revoke {
			w.fail("%s makes %+v of %s", m, is, was.State)
		}
		t.end, t.asked = driver.EndRevoked, &want
		w.remembers(m, is.Prev, is.Token)
		return
	}
	w.stood(m, r, was)
	for _, p := range w.procs {
		if i := slices.IndexFunc(p.machines, func(h *machine) bool { return h.believes() && h.h.Record().Token == was.Token }); i >= 0 {
			w.fail("%s frees the lock while %s holds it", m, p.machines[i])
		}
	}
	if was.State == driver.Held {
		t.end, t.asked = driver.EndFreed, &want
	}
	w.remembers(m, is.Tenure(""), is.Token)
}
