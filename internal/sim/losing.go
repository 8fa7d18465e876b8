// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// engine may lose what it has answered, as package driver describes it: it is a primary,
// and the servers that it has replaced.
type engine struct {
	primary *server
	at      *server    // that carries out the call which is judged now; else the primary
	copies  [2]*server // what a replica has got of the writes, and what is on the primary's disk
	goesOn  time.Duration
}

// server is a state of all records.
type server struct {
	stores     map[string]*store
	life, open string
	base       uint64            // of the tokens of the open life
	sessions   map[string]string // by key: the life in which a session was opened
	waits      time.Duration     // of the store
	stops      time.Duration     // when it refuses what comes; 0: it is the primary
	answer     answer            // to the latest write
}

// answer says why a server did not carry out a write.
type answer int

const (
	plain         answer = iota // for no reason of its lives
	ofClosedLife                // the life is closed
	ofFormerLife                // the session was opened in another life
	ofAnotherLife               // the caller has read the record in another life
	raisesInstead               // the token of the record was below the base
)

// firstLife is open, as that of a new store is.
const firstLife = "e0"

// newEngine begins with an empty engine. An old primary goes on for a lease at most, and the
// store waits for just as long as it must.
func (w *World) newEngine() {
	lease := w.t.Lease
	if w.cfg.Mixed {
		lease *= 2
	}
	goesOn := [...]time.Duration{0, w.t.Lease / 2, w.t.Lease}[w.src.IntN(3)]
	w.cfg.Length = max(w.cfg.Length, 16*w.t.Lease) // time for some lives
	w.t.Waits = lease + time.Duration((1+w.cfg.Skew)*float64(goesOn)) + 1
	v := &server{stores: w.stores, life: firstLife, open: firstLife, sessions: map[string]string{}, waits: w.t.Waits}
	w.engine = &engine{primary: v, at: v, copies: [2]*server{v.copy(), v.copy()}, goesOn: goesOn}
}

// copy returns a server with the same records.
func (v *server) copy() *server {
	c := *v
	c.stores, c.sessions, c.stops = map[string]*store{}, maps.Clone(v.sessions), 0
	for key, s := range v.stores {
		is := *s
		is.older = slices.Clip(is.older)
		c.stores[key] = &is
	}
	return &c
}

// loses has a copy catch up with the primary now and then, or take its place: after a promotion,
// or a restart. After a restart a replica may have what the primary has lost.
func (w *World) loses() bool {
	e := w.engine
	if w.final {
		return false
	}
	i := w.src.IntN(len(e.copies))
	replaces := w.one(2)
	if !replaces || w.one(4) {
		e.copies[i] = e.primary.copy()
	}
	if !replaces {
		return true
	}
	next := e.copies[i].copy()
	next.life = fmt.Sprintf("e%d", w.number())
	w.tally.Of[Failover]++
	w.note("life %s begins, replica: %v", next.life, i == 0)
	if i == 0 {
		e.copies[1] = next.copy()
		e.primary.stops = w.now + e.goesOn
		w.divides(e.primary)
	}
	e.primary = next
	w.turnTo(next)
	return true
}

// divides leaves half of the processes, about, with a primary that is cut off from the others.
func (w *World) divides(old *server) {
	for _, h := range w.hosts {
		if w.one(2) {
			h.old, h.leaves = old, old.stops+w.t.Lease/8
			if w.one(2) {
				h.leaves = w.now + w.upTo(w.engine.goesOn)
			}
			w.note("%s reaches the old primary until %v", h.name, h.leaves)
		}
	}
}

// turnTo has the world look at the records of one server.
func (w *World) turnTo(v *server) {
	w.engine.at, w.stores = v, v.stores
	for _, l := range w.locks {
		l.store = w.storeOf(l.key)
	}
}

// reaches returns the server to which a process sends its next call.
func (h *host) reaches() *server {
	switch w := h.w; {
	case w.engine == nil:
		return nil
	case h.old == nil || w.now >= h.leaves || w.one(8):
		return w.engine.primary
	}
	return h.old
}

// arrivesAt has the world look at the records of the server to which a call was sent, if that
// still carries it out. A late one may come to its successor instead.
func (w *World) arrivesAt(v *server, late bool) bool {
	if v == nil {
		return true
	}
	if w.final || late && w.one(2) {
		v = w.engine.primary
	}
	if v.stops > 0 && w.now >= v.stops {
		return false
	}
	w.turnTo(v)
	return true
}

// turnBack has the world look at the records of the primary again.
func (w *World) turnBack() {
	if w.engine != nil {
		w.turnTo(w.engine.primary)
	}
}

// do carries out a call, unless the lives forbid it, or shows what may be shown.
func (v *server) do(r *protocol.Call, back int) (rec, former driver.Record, err error) {
	s, call := v.stores[r.Key], *r
	call.Next.Life, call.Next.Opens = "", driver.Opening{}
	v.answer = plain
	if !r.Kind.Reads() {
		if shown, refused := v.guards(s, r); refused {
			return rec, former, &driver.ConflictError{Key: r.Key, Current: shown, Absent: shown.Key == ""}
		}
	}
	rec, former, err = s.do(&call, back)
	if conflict, conflicted := errors.AsType[*driver.ConflictError](err); conflicted && !conflict.Absent {
		conflict.Current.Life = v.life
	}
	if r.Kind.Reads() {
		if rec = v.show(r.Key, rec); rec.Key != "" {
			err = nil
		}
		return rec, former, err
	}
	if rec.Life = v.life; err == nil && r.Kind == protocol.Claim && rec.State == driver.Alive {
		v.sessions[r.Key] = v.life
	}
	return rec, former, err
}

// show returns what is shown of a record. An empty key stands for no record.
func (v *server) show(key string, rec driver.Record) driver.Record {
	free := rec.Key == "" || rec.State == driver.Released || rec.State == driver.Reserved
	switch {
	case free && v.life != v.open && !strings.HasPrefix(key, driver.OwnPrefix):
		return driver.InClosedLife(rec, key, v.life, v.waits)
	case rec.Key != "":
		rec.Life = v.life
	}
	return rec
}

// guards opens the life if a write allows it, and says whether the write is refused because of
// the lives, and what is shown then.
func (v *server) guards(s *store, r *protocol.Call) (shown driver.Record, refused bool) {
	next, rec := r.Next, driver.Record{}
	if next.Opens.Life == v.life && v.open != v.life {
		v.open, v.base = v.life, next.Opens.NextBase(v.base)
	}
	if s.found {
		rec = s.rec.Clone()
	}
	free := !s.found || rec.State == driver.Released
	raises, matches := next.State == driver.Held, free
	if r.Kind != protocol.Claim {
		fromShown := r.Prev.Version == v.life && r.Prev.Token == rec.Token && (free || rec.State == driver.Reserved)
		raises = next.Token > r.Prev.Token
		matches = fromShown || s.found && rec.Version == r.Prev.Version && rec.Token == r.Prev.Token
	}
	switch {
	case next.State == driver.Alive && rec.State == driver.Alive && v.sessions[r.Key] != v.life:
		v.answer = ofFormerLife
		rec.State, rec.Life, rec.End, rec.Requests = driver.Closed, v.life, driver.EndExpired, nil
		return rec, true
	case r.Prev.Life != "" && r.Prev.Life != v.life:
		v.answer = ofAnotherLife
		return v.show(r.Key, rec), true
	case raises && v.open != v.life:
		v.answer = ofClosedLife
		return v.show(r.Key, rec), true
	case raises && matches && rec.Token < v.base:
		v.answer = raisesInstead
		raised := driver.RaisedAtOpening(rec, next, v.life, v.base)
		raised.Life = ""
		s.put(raised)
		raised.Life = v.life
		return raised, true
	}
	return driver.Record{}, false
}

// cutOff says that the server which carries a call out was replaced.
func (e *engine) cutOff() bool { return e != nil && e.at != e.primary }

// opened says that the present life of that server was opened.
func (e *engine) opened() bool { return e != nil && e.at.life != firstLife && e.at.open == e.at.life }

// ofFormerLife says that a session was opened in another life than that of the server which
// carries a call out.
func (e *engine) ofFormerLife(session string) bool {
	return e != nil && e.at.sessions[session] != e.at.life
}

// guarded judges and counts what the lives have made of a call. was is the state of the key
// before.
func (l *lock) guarded(m *machine, r *protocol.Call, was store, res protocol.Result) {
	if l.engine == nil {
		return
	}
	v := l.engine.at
	applied := res.Outcome == protocol.Applied
	switch {
	case r.Kind.Reads():
	case v.answer == ofFormerLife:
		l.tally.Of[SessionEnded]++
	case v.answer == ofClosedLife:
		l.tally.Of[Closed]++
		l.judgeRefusedTakeover(m, r)
	case v.answer == raisesInstead:
		l.tally.Of[Raised]++
		l.raised(m, r, was)
	case applied && r.Kind == protocol.Heartbeat && m.role == waiting && v.life != v.open && m.believes():
		l.tally.Of[Survived]++
	}
}

// raised judges a token that was raised instead of a takeover or a claim: that ends the former
// term.
func (l *lock) raised(m *machine, r *protocol.Call, was store) {
	is := l.store.rec
	l.note("store: %v of %s raises %s to %s", r.Kind, m, shown(was.rec), shown(is))
	stray := l.written[was.rec.Beat].by == m // its own claim was applied too late, and no work began
	if was.rec.State == driver.Held && was.rec.Session == "" && !stray {
		l.stood(m, r, was.rec, l.beat(was.rec.Beat).first)
	}
	if t := l.terms[was.rec.Token]; was.found && t != nil && t.end == "" {
		t.ends(driver.EndExpired, was.rec)
	}
	l.terms[is.Token] = &term{owner: is.Owner, end: is.End, asked: is.Asked}
}

// judgeRefusedTakeover judges that no process tries to take over a dead holder's lock in a closed
// life that it has not seen for long enough: it would try again and again.
func (l *lock) judgeRefusedTakeover(m *machine, r *protocol.Call) {
	dead := r.Kind == protocol.Takeover && r.Prev.State == driver.Held && r.Prev.Session == "" && r.Prev.Owner != m.owner()
	since, seen := m.on.named[r.Prev.Life]
	here := r.Prev.Life == l.engine.at.life && m.epoch == m.on.epoch
	if at := l.written[r.Next.Version].at; dead && here && (!seen || at-since < l.fast(l.t.Waits)-time.Microsecond) {
		l.fail("%s takes over in life %s, which it has seen for %v", m, r.Prev.Life, at-since)
	}
}

// grantedAt counts where a term began in which a process believes.
func (l *lock) grantedAt(token uint64) {
	if t := l.terms[token]; t != nil && t.cut {
		l.tally.Of[CutGrant]++
	} else if t != nil && t.opened {
		l.tally.Of[OpenedGrant]++
	}
}

// forgets begins with nothing seen of the engine's lives, as a new process does.
func (h *host) forgets() {
	h.lives, h.named = protocol.NewLives(h.w.t.Waits), map[string]time.Duration{}
}

// showsLife notes the life of the engine that a reply names.
func (m *machine) showsLife(life string) {
	h, now := m.on, m.l.now
	if h.lives.Saw(h.cont.at(now), life); life != "" && h.named[life] == 0 {
		h.named[life] = now
	}
}

// undisturbed judges that a holder goes on from an earlier beat of its own, if the engine has
// lost the later ones.
func (m *machine) undisturbed(r *protocol.Call, res protocol.Result) {
	l, is := m.l, res.Record
	if m.h == nil || m.under != nil || r.Kind != protocol.Heartbeat || res.Outcome != protocol.Conflicted || is.State != driver.Held {
		return
	}
	id, _, _ := strings.Cut(r.Prev.Beat, "-")
	switch {
	case is.Life == "" || is.Token != r.Prev.Token || !protocol.IsBeatOf(is.Beat, id):
	case m.h.Cause() == protocol.Superseded:
		l.fail("%s gives up at an earlier beat of its own: %s", m, shown(is))
	case l.beat(is.Beat).number < l.beat(r.Prev.Beat).number:
		l.tally.Of[SteppedBack]++
	}
}

// judgeData judges that a holder's next heartbeat has what was confirmed of its data.
func (l *lock) judgeData(m *machine, r *protocol.Call) {
	if r.Kind != protocol.Heartbeat || m.h == nil || m.kept == 0 {
		return
	}
	was, is := numberOf(r.Prev.Data), numberOf(r.Next.Data)
	if is < m.kept {
		l.fail("%s sends data %d after %d was confirmed", m, is, m.kept)
	} else if was < m.kept {
		l.tally.Of[DataAgain]++
	}
}

// numberOf returns the number of data in a record, among those of their holder.
func numberOf(data []byte) (n uint64) {
	var token uint64
	if _, err := fmt.Sscanf(string(data), "%d.%d", &token, &n); err != nil {
		return 0
	}
	return n
}
