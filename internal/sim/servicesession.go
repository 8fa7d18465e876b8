// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// A session of a client is a visit as well: of a record of its own, which it opens, renews and closes
// by the same calls. It stands beside the first lock. Visits of locks may be under it.

// opensSession has a client open a session now and then, if it has none.
func (h *host) opensSession() bool {
	w := h.w
	if h.up && w.now >= h.paused && h.serviceSession == nil {
		s := &visit{standing: w.locks[0].standing(h, h.name+"/session")}
		s.under = s
		h.serviceSession = s
		s.sent, s.sentAt = s.clock(), w.now
		s.calls("open", s.limit(), func(cn *conn) { cn.p.opensFor(cn) }, func(r reply) {
			if r.status != okay {
				s.over("not opened")
				return
			}
			s.stage, s.rec, s.confirmed = visitGranted, r.rec, r.rec.Beat
			s.beat()
		})
	}
	return true
}

func (v *visit) isSession() bool { return v.under == v }

// opensFor opens a session for a client.
func (p *process) opensFor(cn *conn) {
	rec := driver.Record{Owner: cn.v.on.name, Drift: cn.v.on.bound}
	is := protocol.NewRemoteSessionOpener(p.t, p.w.env(p.host), rec, 3*p.t.RequestTimeout)
	p.serving(cn, opening, "open", is).step()
}

// goesOn renews a lease, or attaches the lock to the session of the client.
func (v *visit) goesOn() {
	s := v.under
	if s == nil || v.isSession() || !s.believes() || v.l.one(4) {
		v.beat()
		return
	}
	if v.renews() {
		v.of = v.makesBeat()
		v.of.Of = &protocol.OfSession{ID: driver.SessionID(s.rec.Key)}
		v.way = v.of
		v.try()
	}
}

// ends returns until when the client may act under the lock: while it is being attached, until the
// earlier of both deadlines.
func (v *visit) ends() time.Duration {
	switch {
	case v.isSession() || v.way.Next == "":
		return v.deadline
	case v.joins || v.deadline == 0:
		return v.under.deadline
	}
	return min(v.deadline, v.under.deadline)
}

// lapses ends a visit whose deadline has passed, or that was never confirmed. A lock that may be attached, or may
// become so, is released: otherwise the session would keep it.
func (v *visit) lapses(why string) {
	if v.isSession() || v.way.Next == "" {
		v.over(why)
		return
	}
	v.l.note("%s is %s", v, why)
	v.why = why
	v.judgeEnd()
	v.stage, v.until, v.awaits = visitReleases, v.clock()+v.rec.Lease, false
	v.part()
}

// endsLocks ends the visits under a session. Those that were not being attached go on.
func (v *visit) endsLocks(why string) {
	for _, o := range slices.Clone(v.on.visits) {
		switch {
		case o.under != v:
		case o.way.Next == "":
			o.under = nil
		default:
			o.over(why)
		}
	}
}

// hears has locks under a session stop that its record asks for.
func (v *visit) hears() {
	for _, q := range v.requests {
		if o := v.asks(q); o != nil && o.stage >= visitHolds {
			o.heeds(&q)
		}
	}
}

// answers returns the requests of a session for locks that are not under it.
func (v *visit) answers() (ids []string) {
	for _, q := range v.requests {
		if v.asks(q) == nil {
			ids = append(ids, q.ID)
		}
	}
	return ids
}

// asks returns the visit for which a request in the session's record is, or nil.
func (v *visit) asks(q driver.Request) *visit {
	i := slices.IndexFunc(v.on.visits, func(o *visit) bool {
		return o.under == v && o.way.Next != "" && o.rec.Key == q.Lock && o.token() == q.Token
	})
	if i < 0 {
		return nil
	}
	return v.on.visits[i]
}

// attaches carries out an attachment. It looks at the session first.
func (p *process) attaches(cn *conn, d protocol.RemoteHeartbeat, beat string) {
	is := protocol.NewSessionLook(p.t, p.w.env(p.host), d.Of.ID, beat, 3*p.t.RequestTimeout)
	m := p.serving(cn, relaying, "look", is)
	p.machines = append(p.machines, m)
	m.of = d
	cn.gone = m.forget
	m.step()
}

// looked attaches the lock, or answers that it is lost with the session, once.
func (m *machine) looked(is *protocol.SessionLook) {
	answer, rec, _ := is.Answer()
	if answer == protocol.NoAnswer || m.left {
		return
	}
	m.left = true
	switch d, of := m.of, *m.of.Of; answer {
	case protocol.Done:
		of.Owner, d.Of = rec.Owner, &of
		m.p.relays(m.conn, d)
	case protocol.HolderChanged:
		if !m.l.sessionEnded(of.ID) {
			m.l.fail("%s tells %s that its session has ended, but it has not", m.p.name, m.conn.v)
		}
		m.conn.answer(reply{status: isLost})
	default:
		m.conn.answer(reply{status: unknown})
	}
}

// asksOf adds to a release what the record of the session asks of the holder.
func (l *lock) asksOf(d protocol.RemoteHeartbeat) *protocol.OfSession {
	if d.Of == nil || !d.Of.Detaches {
		return d.Of
	}
	of := *d.Of
	of.Asked = protocol.SessionRequest(l.storeOf(driver.SessionKey(of.ID)).rec, d.Key, d.Token)
	return &of
}
