// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// applySession has the store carry out a call about a session's record, and
// judges what it did.
func (l *lock) applySession(m *machine, r *protocol.Call, behind int) (rec, former driver.Record, err error) {
	s := l.sessions[r.Key]
	if s == nil {
		s = &store{key: r.Key}
		l.sessions[r.Key] = s
	}
	was, found, back := s.rec, s.found, s.deleted
	rec, former, err = s.do(r, behind)
	if r.Kind.Reads() || err != nil {
		return rec, former, err
	}
	l.counted(r)
	l.note("store: %v of %s: %s %s %s", r.Kind, m, r.Key, s.rec.State, s.rec.Version)
	is := s.rec
	own := l.written[r.Next.Version].by == m && (m.o != nil)
	switch {
	case r.Kind == protocol.Delete:
		if found && was.State != driver.Closed {
			l.fail("%s deletes session %s, which is %s", m, r.Key, was.State)
		}
		if found {
			l.tally.Swept++
		}
		return rec, former, nil
	case found && was.State == driver.Closed:
		l.fail("%v of %s changes a closed session", r.Kind, m)
	case r.Kind == protocol.Claim && (found || back):
		l.fail("%s opens session %s a second time", m, r.Key)
	case is.Beat != was.Beat && !own:
		l.fail("%v of %s changes the beat of session %s", r.Kind, m, r.Key)
	case r.Kind == protocol.Release && m.epoch == m.p.epoch && m.works():
		l.fail("%s closes its session while work goes on", m)
	case r.Kind == protocol.Free:
		least := time.Duration(float64(was.Lease)/(1+l.cfg.Skew)) - time.Microsecond
		if stood := l.written[r.Next.Version].at - l.stored[was.Beat]; stood < least {
			l.fail("%s closes session %s, whose beat has stood for %v", m, r.Key, stood)
		}
		l.tally.Closed++
	}
	l.onlySession(m, r, was, is)
	if is.State == driver.Closed {
		s.closed, s.since = is.End, l.now
	}
	if is.Beat != was.Beat {
		s.beats++
		for _, other := range l.locks {
			other.stored[is.Beat] = l.now
		}
		m.applied[is.Token] = max(m.applied[is.Token], l.written[r.Next.Version].hold)
	}
	return rec, former, err
}

// onlySession judges what a write may change of a session's record, beside the
// version: a request is added at the end, and only a heartbeat takes some out.
func (l *lock) onlySession(m *machine, r *protocol.Call, was, is driver.Record) {
	same := was
	same.Version = is.Version
	switch r.Kind {
	case protocol.Ask:
		last := len(is.Requests) - 1
		q := is.Requests[last]
		same.Requests = append(slices.Clip(slices.Clone(was.Requests)), q)
		l.askedSession(m, q, was)
	case protocol.Heartbeat:
		same.Beat, same.Data, same.Requests = is.Beat, is.Data, is.Requests
		for _, q := range is.Requests {
			if !slices.Contains(was.Requests, q) {
				l.fail("%s writes a request into its own session: %+v", m, q)
			}
		}
	case protocol.Quit:
		same.End = is.End
	case protocol.Release, protocol.Free:
		same.State, same.End, same.Until, same.Requests = driver.Closed, is.End, is.Until, nil
	default:
		return
	}
	if len(same.Requests) == 0 && len(is.Requests) == 0 {
		same.Requests = is.Requests
	}
	if !reflect.DeepEqual(same, is) {
		l.fail("%v of %s changes more than it may: %+v, want %+v", r.Kind, m, is, same)
	}
}

// askedSession judges a request that was written into a session's record.
func (l *lock) askedSession(m *machine, q driver.Request, was driver.Record) {
	switch {
	case q.Kind == driver.Confirm:
		if m.k != nil || q.By != m.owner() || q.Lock != l.key {
			l.fail("%s asks session %s: %+v", m, was.Key, q)
		}
		return
	case q.Lock != l.key || q.Token == 0:
		l.fail("%s asks session %s for %q under token %d", m, was.Key, q.Lock, q.Token)
	case slices.ContainsFunc(was.Requests, func(o driver.Request) bool {
		return o.Kind != driver.Confirm && o.Lock == q.Lock && o.Token == q.Token
	}):
		l.fail("%s asks session %s a second time for token %d", m, was.Key, q.Token)
	}
	if rec := l.store.rec; rec.Token == q.Token && rec.Session == driver.SessionID(was.Key) && m.life == l.life {
		l.askedOf(m, q, rec)
		l.tied = append(l.tied, tiedAsk{q.Token, l.now})
	} else {
		l.laid[q.ID] = l.now // it came too late, or was for a deleted record
	}
	l.tally.Carried++
}

// sweep has a process clear a session now and then.
func (h *host) sweep() {
	w := h.w
	if w.final {
		return
	}
	if ids := w.opened(); h.up && w.now >= h.paused && len(ids) > 0 {
		h.reap(ids[w.src.Intn(len(ids))])
	}
	w.after(w.t.Lease/4+w.upTo(2*w.t.Lease), h.sweep)
}

// opened returns the ids of all sessions that have a record, oldest first.
func (w *World) opened() []string {
	var ids []string
	for key, s := range w.sessions {
		if s.found {
			ids = append(ids, strings.TrimPrefix(key, driver.SessionPrefix))
		}
	}
	slices.Sort(ids)
	return ids
}

// reap begins to clear a session.
func (h *host) reap(id string) {
	w, p := h.w, h.procs[0]
	h.reaps++
	m := &machine{p: p, epoch: h.epoch, id: fmt.Sprintf("%s/reaper%d", h.name, h.reaps), judged: newJudged(), begun: w.now}
	m.g = protocol.NewReaper(h.t, w.env(h), id, h.sessionSight(id))
	w.note("%s is to clear session %s", m, id)
	m.took(m.g.Step(h.cont.at(w.now)))
}
