// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// stage is how far a visit has come. It only rises.
type stage int

const (
	visitCalls    stage = iota // it acquires
	visitGranted               // it has a grant, which is no lease
	visitHolds                 // a heartbeat was confirmed, or its grant counts
	visitReleases              // it releases, and never acts on the lock again
	visitOver
)

// visit is a client's use of a lock, from an acquire to the end of the term.
type visit struct {
	standing
	stage stage
	op    int   // answers to calls about earlier things are not heard
	conn  *conn // of its latest call

	sent   time.Duration // by its clock: before its acquire
	sentAt time.Duration // the same in real time

	rec       driver.Record            // as it was granted
	confirmed string                   // the beat that was confirmed last, at first that of the grant
	next      string                   // of the heartbeat under way, or empty
	of        protocol.RemoteHeartbeat // that is sent
	first     time.Duration            // by its clock: before the first sending of that
	firstAt   time.Duration            // the same in real time
	deadline  time.Duration
	tries     int

	under *visit                   // its session, or nil
	way   protocol.RemoteHeartbeat // by which it was attached to that, from the first sending on
	joins bool                     // that was confirmed

	asked *driver.Request // the request that it got

	requests []driver.Request // of a session: those in its record
	quiet    bool             // its work has outlasted the time to stop: no more heartbeats

	// Of its release:
	until  time.Duration // when it is given up, by its clock
	data   []byte
	failed bool
	awaits bool // the heartbeat under way is to be answered first

	// What the world remembers of it:
	most time.Duration // the latest deadline that an applied write gives it
	slow bool          // to show life
	why  string        // it is over
}

// at calls do when the client's clock shows an instant.
func (v *visit) at(instant time.Duration, do func()) {
	v.after(v.on.hold.when(instant, v.l.now)-v.l.now, do)
}

// replica returns the replica for the next call: mostly the same as before.
func (v *visit) replica() *process {
	if v.l.one(4) {
		v.on.at = v.l.src.IntN(v.l.cfg.Replicas)
	}
	return v.l.replicas()[v.on.at]
}

// limit is how long the client waits for the answer to one try: seldom for longer than it
// should, but where nothing fails, however slow the store is.
func (v *visit) limit() time.Duration {
	switch l := v.l; {
	case !l.fails(Messages):
		return 3 * l.most.RequestTimeout
	case l.one(8):
		return l.t.Lease / 2
	default:
		return l.t.Lease / 10
	}
}

// acquire asks for the lock, with a wait or without. It is not repeated: the client comes
// again.
func (v *visit) acquire() {
	l := v.l
	wait := time.Duration(0)
	if l.final && !l.cfg.Trying || !l.final && !l.one(4) {
		wait = l.upTo(2 * l.t.Lease)
	}
	v.sent, v.sentAt = v.clock(), l.now
	v.calls("acquire", wait+v.limit(), func(cn *conn) { cn.p.admits(cn, wait) }, func(r reply) {
		if r.status == okay {
			v.gets(r)
		} else {
			v.over("not granted")
		}
	})
	if !l.final && l.one(3) {
		v.after(l.upTo(2*l.t.Lease), func() {
			if v.stage == visitCalls {
				v.conn.hangUp()
				v.over("given up")
			}
		})
	}
}

// gets takes a grant. If it says that it may be counted, and is soon enough, the client holds the lock;
// otherwise no lease counts from it. Some clients are slow to show life, some never do, and some do not
// know that a grant may be counted.
func (v *visit) gets(r reply) {
	l := v.l
	v.stage, v.rec, v.confirmed = visitGranted, r.rec, r.rec.Beat
	if v.rec.Drift < v.on.bound && !l.cfg.Harm {
		l.fail("%s is granted for a clock that errs by %v, but its clock may err by %v", v, v.rec.Drift, v.on.bound)
	}
	l.note("%s is granted token %d", v, v.token())
	delay := time.Duration(0)
	switch {
	case l.final:
	case l.one(8):
		v.over("gone with its grant")
		return
	case l.one(4):
		v.slow = true
		delay = l.upTo(l.t.Lease / 2)
	}
	if s := v.on.serviceSession; s != nil && s.believes() && l.one(2) {
		v.under = s
	}
	if r.usable > 0 && v.clock()-v.sent < v.rec.Lease/10 && !l.one(4) {
		v.counts(r)
		return
	}
	v.after(delay, v.goesOn)
}

// counts counts the grant, from before its acquire was sent.
func (v *visit) counts(r reply) {
	v.judgeCounted()
	if v.deadline = v.sent + r.usable; v.expires() {
		return
	}
	v.l.tally.Of[Counted]++
	v.begins()
	v.at(v.sent+r.period, v.goesOn)
}

// beat makes the next beat, and begins to send it.
func (v *visit) beat() {
	if v.renews() {
		v.of = v.makesBeat()
		if v.isSession() {
			v.of.Of = &protocol.OfSession{Answered: v.answers()}
		}
		v.try()
	}
}

// renews says whether the next beat is due to be sent.
func (v *visit) renews() bool {
	busy := v.next != "" || v.joins || v.quiet
	return !busy && v.stage >= visitGranted && v.stage <= visitHolds && !v.expires()
}

func (v *visit) makesBeat() protocol.RemoteHeartbeat {
	term, _, _ := strings.Cut(v.confirmed, "-")
	v.next, v.first, v.firstAt, v.tries = fmt.Sprintf("%s-%013d", term, v.l.number()), v.clock(), v.l.now, 0
	b := v.l.beat(v.next)
	b.of, b.sent = v, v.first
	v.op++
	return protocol.RemoteHeartbeat{Key: v.rec.Key, Token: v.token(), After: v.confirmed, Next: v.next}
}

// try sends the heartbeat or the release under way, the same call as often as it takes.
func (v *visit) try() {
	d, what, heard := v.of, "heartbeat", v.heard
	do := func(cn *conn) { cn.p.relays(cn, d) }
	switch {
	case d.Releases():
		what, heard = "release", v.partsHeard
	case d.Next == v.way.Next:
		beat := v.under.confirmed
		what, do = "attach", func(cn *conn) { cn.p.attaches(cn, d, beat) }
	}
	v.tries++
	v.calls(what, v.limit(), do, heard)
}

// heard takes the answer to the heartbeat under way, or its absence.
func (v *visit) heard(r reply) {
	switch r.status {
	case isLost:
		v.over("lost")
	case okay:
		v.confirms(r)
	}
	switch {
	case v.stage == visitOver:
	case v.awaits: // to release, with what is known now
		v.awaits = false
		v.part()
	case r.status == okay, v.expires():
	case v.stage == visitGranted && v.clock() >= v.first+v.rec.Lease:
		v.lapses("never confirmed")
	default:
		v.again()
	}
}

// again repeats a call after a growing pause.
func (v *visit) again() {
	most, op := min(v.l.t.Lease/300<<min(v.tries, 5), v.l.t.Lease/15), v.op
	v.after(most/2+v.l.upTo(most/2), func() {
		if v.op == op && v.stage < visitOver {
			v.try()
		}
	})
}

// confirms counts a heartbeat, from before its first sending.
func (v *visit) confirms(r reply) {
	if v.stage == visitHolds && v.expires() {
		return
	}
	v.judgeConfirmed(r)
	from := v.first
	v.confirmed, v.next = v.next, ""
	if v.joins = v.confirmed == v.way.Next; v.joins {
		v.l.tally.Of[Attached]++
	} else {
		v.deadline = max(v.deadline, from+r.usable)
	}
	if v.stage == visitGranted {
		if v.isSession() && v.clock() >= v.sent+r.usable {
			v.over("confirmed too late") // its opening may have been carried out again
			return
		}
		if v.expires() {
			return
		}
		v.begins()
	}
	if v.stage != visitHolds {
		return // it releases
	}
	switch v.requests = r.requests; {
	case v.isSession():
		v.hears() // it is itself asked for nothing
	case r.asked != nil:
		v.heeds(r.asked)
	}
	v.at(from+r.period, v.goesOn)
}

// begins begins the work, with the first confirmed heartbeat or a grant that counts.
func (v *visit) begins() {
	l := v.l
	v.stage = visitHolds
	l.note("%s holds, until %v", v, v.ends()-v.clock())
	if v.isSession() {
		v.watch()
		v.after(l.upTo(8*l.t.Lease), v.finish)
		return
	}
	v.grant = l.believes(v, v.rec)
	if v.way.Next != "" {
		v.under.hears()
	}
	l.tally.Of[Taken]++
	v.after(l.upTo(l.t.Lease/4), v.work)
	v.watch()
	if !l.final {
		v.after(l.upTo(time.Duration(3+5*(l.src.IntN(4)/3))*l.t.Lease), v.finish)
	}
}

// watch is the timer that cancels the work at the deadline.
func (v *visit) watch() {
	if v.stage == visitHolds && !v.expires() && v.clock() < v.ends() {
		v.at(v.ends(), v.watch)
	}
}

// expires says that the deadline has passed, which is final. A client may free the lock
// then, if its work has returned.
func (v *visit) expires() bool {
	if v.stage < visitGranted || v.stage > visitHolds || v.clock() < v.ends() || v.ends() == 0 {
		return false
	}
	v.lapses("expired")
	return true
}

// believes says whether the client may act now: whether its check passes.
func (v *visit) believes() bool {
	return v.stage == visitHolds && v.clock() < v.ends()
}

// work writes to the resource now and then, for as long as the check passes.
func (v *visit) work() {
	if !v.believes() {
		return
	}
	v.l.writes(v, v.grant, v.token(), v.life)
	v.after(v.l.t.Lease/16+v.l.upTo(v.l.t.Lease), v.work)
}

// heeds makes the work stop. Heartbeats go on meanwhile, for a lease at most.
func (v *visit) heeds(q *driver.Request) {
	if v.asked != nil {
		return
	}
	v.l.note("%s is asked to %s", v, q.Kind)
	v.l.tally.Of[Heeded]++
	v.asked = q
	v.at(v.clock()+v.l.t.Lease, func() {
		if v.quiet = true; v.under != nil && v.stage < visitOver {
			v.under.quiet = true
		}
	})
	v.after(v.l.drain(v.token()), v.finish)
}

// finish releases the lock after the work has returned. A heartbeat that is under way
// is awaited, or its beat remembered: perhaps that is in the record.
func (v *visit) finish() {
	if v.stage != visitHolds || v.l.final && v.asked == nil {
		return
	}
	v.stage = visitReleases
	v.until = v.clock() + v.rec.Lease
	if v.isSession() {
		v.endsLocks("closed with its session")
	} else if v.l.one(2) {
		v.data = fmt.Appendf(nil, "%d.%d", v.token(), 1)
	}
	v.failed = v.l.cfg.Fails && !v.l.final && v.l.one(2)
	if v.awaits = v.next != "" && v.l.one(2); !v.awaits {
		v.part()
	}
}

// part sends the release with the newest beat, and then with the last confirmed one.
func (v *visit) part() {
	v.tries = 0
	v.op++
	v.of = protocol.RemoteHeartbeat{Key: v.rec.Key, Token: v.token(), After: cmp.Or(v.next, v.confirmed), Data: v.data}
	if v.way.Next != "" {
		v.of.After, v.of.Next = v.way.After, v.way.Next
		v.of.Of = &protocol.OfSession{ID: v.way.Of.ID, Detaches: true}
	}
	v.try()
}

// partsHeard takes an answer to a release. A release with an unknown outcome is repeated:
// perhaps it was applied.
func (v *visit) partsHeard(r reply) {
	switch {
	case r.status == okay:
		if v.data != nil && v.l.life == v.life {
			v.l.kept = max(v.l.kept, serial(v.token(), 1))
		}
		v.over("released")
	case r.status == isLost && v.of.Of == nil && v.of.After != v.confirmed:
		v.of.After = v.confirmed
		v.op++
		v.try()
	case r.status == isLost:
		v.over("lost when it released")
	case v.of.Of == nil && v.clock() >= v.until: // under a session it goes on until that ends, which would keep the lock
		v.over("perhaps released")
	default:
		v.again()
	}
}

// over ends the visit.
func (v *visit) over(why string) {
	if v.stage == visitOver {
		return
	}
	v.l.note("%s is over: %s", v, why)
	v.stage, v.why = visitOver, why
	v.conn.hangUp()
	if v.isSession() {
		v.on.serviceSession = nil
		v.endsLocks("its session is over")
	}
	this := func(other *visit) bool { return other == v }
	v.on.visits, v.l.visits = slices.DeleteFunc(v.on.visits, this), slices.DeleteFunc(v.l.visits, this)
	v.judgeEnd()
}

// repeats says that a write was sent before, because a call of a client was carried out
// twice: only such writes share a version. Both write the same beat over the same one; at
// most one of them is applied: see carried.
func (m *machine) repeats(by write, r *protocol.Call) bool {
	if m.role != relaying || by.by.role != relaying || r.Kind != protocol.Heartbeat || r.Next.Version != r.Next.Beat {
		return false
	}
	return reflect.DeepEqual(m.of, by.by.of) && r.Next.Beat == m.of.Next
}

// carried judges a heartbeat of a client that a replica has written.
func (l *lock) carried(m *machine, r *protocol.Call, was, is driver.Record) {
	if m.role != relaying || r.Kind != protocol.Heartbeat {
		return
	}
	b := l.beat(is.Beat)
	if b.by != nil && b.life == l.life {
		l.fail("%s writes beat %s, and the write of %s was applied before", m, is.Beat, b.by)
	}
	b.by, b.life = m, l.life
	if was.Token != m.of.Token {
		l.fail("%s renews token %d, but its client has token %d", m, was.Token, m.of.Token)
	}
	window := protocol.Timing{Lease: is.Lease, Drift: is.Drift}.Window()
	b.of.most = max(b.of.most, b.sent+window)
}

// judgeConfirmed judges the answer to a client's heartbeat.
func (v *visit) judgeConfirmed(r reply) {
	if v.l.cfg.Harm || v.l.life != v.life {
		return
	}
	if b := v.l.beat(v.next); b.by == nil || b.life != v.l.life {
		v.l.fail("%s is told that %s is confirmed, but nobody has written that", v, v.next)
	}
	if v.isSession() {
		return
	}
	q := v.l.terms[v.token()].request
	if q.honoured && q.at < v.firstAt && (r.asked == nil || r.asked.ID != q.id) {
		v.l.fail("%s was asked before its heartbeat, but is not told: %+v", v, r.asked)
	}
}

// judgeCounted judges that a client counts no grant that was written before it sent its acquire.
func (v *visit) judgeCounted() {
	by := v.l.written[v.rec.Beat]
	if by.at < v.sentAt && !v.l.cfg.Harm {
		v.l.fail("%s counts from %v what was written at %v", v, v.sentAt, by.at)
	}
	window := protocol.Timing{Lease: v.rec.Lease, Drift: v.rec.Drift}.Window()
	v.most = max(v.most, v.sent+window)
}

// judgeLost judges that no client is told that its term has ended while it goes on. A
// duplicate of its claim, applied after an operator has deleted the record, is not that
// term.
func (l *lock) judgeLost(cn *conn, d protocol.RemoteHeartbeat) {
	rec := l.storeOf(d.Key).rec
	goes := (rec.State == driver.Held || rec.State == driver.Alive) && rec.Token == d.Token && (rec.Beat == d.After || rec.Beat == d.Next)
	if goes && cn.v.life == l.life && !d.Releases() {
		l.fail("%s tells %s that token %d is lost, but it is not", cn.p.name, cn.v, d.Token)
	}
}

// judgeCall judges that a replica does not acquire for a client that it knows has gone.
func (l *lock) judgeCall(m *machine, r *protocol.Call) {
	if m.conn != nil && m.conn.ended && r.Key == l.key && (r.Kind == protocol.Claim || r.Kind == protocol.Takeover) && !l.cfg.Harm {
		l.fail("%s takes the lock for a call that has ended", m)
	}
}

func (v *visit) token() uint64 { return v.rec.Token }

// lost leaves out replicas with leases of their own: what is long enough for the calls of
// one is too short for those of another. A heartbeat of its session that was sent before the faults ended may be
// awaited long after.
func (v *visit) lost() (string, bool) {
	late := v.under != nil && max(v.under.sentAt, v.under.firstAt) < v.l.healed
	return v.why, v.asked == nil && !v.l.cfg.Mixed && !late
}

// judgeEnd judges that, where nothing fails, a client has not lost its lock.
func (v *visit) judgeEnd() {
	l, t := v.l, v.l.terms[v.token()]
	if v.isSession() {
		t = nil
	}
	excused := v.slow || v.quiet || l.cfg.Mixed || v.life != l.life || t != nil && t.end == driver.EndRevoked
	if (v.why == "expired" || v.why == "lost") && !l.cfg.Faults && !excused {
		l.fail("%s is %s although nothing fails", v, v.why)
	}
}

// offered sees that a grant which shows no life is freed in time by the replica that has made
// it, if that lives and the store answers.
func (l *lock) offered(m *machine, rec driver.Record) {
	t, made := m.p.t, l.now
	most := l.slow(t.FreeAfter()) + t.Lease/10 + 3*max(t.RequestTimeout, l.cfg.Latency)
	l.after(most+1, func() {
		is := l.store.rec
		excused := m.keeps || m.life != l.life || m.epoch != m.on.epoch || m.unsure || m.p.stood > made
		if !excused && is.State == driver.Held && is.Token == rec.Token && is.Beat == rec.Beat {
			l.fail("%s is unused for %v, and not free", m, most)
		}
	})
}
