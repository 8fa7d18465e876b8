// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
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
	visitHolds                 // a heartbeat was confirmed
	visitReleases              // it releases, and never acts on the lock again
	visitOver
)

// visit is what a client does about a lock, from an acquire to the end of the tenure. It
// follows the rules of clients as a client library does, and has no machine of the core.
type visit struct {
	c     *client
	l     *lock
	id    string
	epoch int // of its client
	life  int // of the lock's record
	stage stage
	op    int   // answers to earlier ones are not heard
	conn  *conn // of its latest call

	tok       uint64
	rec       driver.Record // as it was granted
	confirmed string        // the beat that was confirmed last, at first that of the grant
	next      string        // of the heartbeat under way, empty if there is none
	first     time.Duration // by its clock: before the first sending of that
	firstAt   time.Duration // the same in real time
	period    time.Duration
	deadline  time.Duration
	tries     int

	asked *driver.Request // what it was told to do
	quiet bool            // its work has outlasted the time to stop: no more heartbeats
	done  bool            // the work has returned

	// Of its release:
	until   time.Duration // when it is given up, by its clock
	follows string        // the beat that it follows
	data    []byte
	failed  bool
	awaits  bool // the heartbeat under way is to be answered first

	claims func() // applies its claim again
	judgedVisit
}

func (v *visit) String() string { return v.id }

// visit begins with an acquire.
func (c *client) visit(l *lock) {
	c.count++
	v := &visit{c: c, l: l, id: fmt.Sprintf("%s/%s%d", c.name, l.key, c.count), epoch: c.epoch, life: l.life}
	c.visits = append(c.visits, v)
	l.visits = append(l.visits, v)
	v.acquire()
}

// after has do called when d has passed, unless the client has crashed.
func (v *visit) after(d time.Duration, do func()) { v.c.later(v.epoch, d, do) }

// at has do called when the client's clock shows an instant.
func (v *visit) at(instant time.Duration, do func()) {
	v.after(v.c.hold.when(instant, v.l.now)-v.l.now, do)
}

func (v *visit) clock() time.Duration { return v.c.hold.at(v.l.now) }

// replica returns which one the next call goes to: mostly the one before it.
func (v *visit) replica() *process {
	if v.l.one(4) {
		v.c.at = v.l.src.Intn(v.l.cfg.Replicas)
	}
	return v.l.replicas()[v.c.at]
}

func (v *visit) anyReplica() *process {
	return v.l.replicas()[v.l.src.Intn(v.l.cfg.Replicas)]
}

// limit is how long the client waits for the answer to one try: seldom for longer than it
// should, but where nothing fails, however slow the store is.
func (v *visit) limit() time.Duration {
	switch l := v.l; {
	case !l.fails(Messages):
		return 3 * l.slowest().RequestTimeout
	case l.one(8):
		return l.t.Lease / 2
	default:
		return l.t.Lease / 10
	}
}

// begin begins something that is called for until it is answered, however often that
// takes. It returns what says that this is still what the visit is about.
func (v *visit) begin() func() bool {
	v.op++
	op := v.op
	return func() bool { return v.op == op && v.stage < visitOver }
}

// acquire asks for the lock, with a wait or without. It is not repeated: the client comes
// again.
func (v *visit) acquire() {
	l := v.l
	wait := time.Duration(0)
	if l.final && !l.cfg.Trying || !l.final && !l.one(4) {
		wait = l.upTo(2 * l.t.Lease)
	}
	mine := v.begin()
	v.conn = v.calls("acquire", wait+v.limit(), func(cn *conn) { cn.p.admits(cn, wait) }, func(r reply) {
		switch {
		case !mine():
		case r.status == okay:
			v.gets(r)
		default:
			v.over("not granted")
		}
	})
	if !l.final && l.one(3) {
		v.after(l.upTo(2*l.t.Lease), func() {
			if mine() && v.stage == visitCalls {
				v.conn.hangUp()
				v.over("given up")
			}
		})
	}
}

// gets takes a grant, and nothing counts from that. Some clients are slow to show life,
// and some never do.
func (v *visit) gets(r reply) {
	l := v.l
	v.stage, v.rec, v.tok, v.confirmed, v.period = visitGranted, r.rec, r.rec.Token, r.rec.Beat, r.period
	l.note("%s is granted token %d", v, v.tok)
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
	v.after(delay, v.beat)
}

// beat makes the next beat, and begins to send it.
func (v *visit) beat() {
	if v.next != "" || v.quiet || v.stage < visitGranted || v.stage > visitHolds || v.expires() {
		return
	}
	term, _, _ := strings.Cut(v.confirmed, "-")
	v.l.count++
	v.next, v.first, v.firstAt, v.tries = fmt.Sprintf("%s-%013d", term, v.l.count), v.clock(), v.l.now, 0
	v.l.made[v.next] = made{v, v.first}
	v.try(v.begin())
}

// try sends the heartbeat under way, the same call as often as it takes.
func (v *visit) try(mine func() bool) {
	d := protocol.Dispatch{Key: v.l.key, Token: v.tok, After: v.confirmed, Next: v.next}
	v.tries++
	v.conn = v.calls("heartbeat", v.limit(), func(cn *conn) { cn.p.relays(cn, d) }, func(r reply) {
		if mine() {
			v.heard(r, mine)
		}
	})
}

// heard takes an answer to the heartbeat under way, or that there was none.
func (v *visit) heard(r reply, mine func() bool) {
	switch r.status {
	case isLost:
		v.loses()
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
		v.over("never confirmed")
	default:
		v.again(mine, func() { v.try(mine) })
	}
}

// again has a call repeated after a while, which grows.
func (v *visit) again(mine func() bool, try func()) {
	most := min(v.l.t.Lease/300<<min(v.tries, 5), v.l.t.Lease/15)
	v.after(most/2+v.l.upTo(most/2), func() {
		if mine() {
			try()
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
	v.confirmed, v.next, v.period = v.next, "", r.period
	v.deadline = max(v.deadline, from+r.usable)
	if v.stage == visitGranted {
		if v.expires() {
			return
		}
		v.begins()
	}
	if v.stage != visitHolds {
		return // it releases
	}
	if r.asked != nil {
		v.heeds(r.asked)
	}
	v.at(from+v.period, v.beat)
}

// begins begins the work, with the first confirmed heartbeat.
func (v *visit) begins() {
	l := v.l
	v.stage, v.since = visitHolds, l.now
	l.note("%s holds, until %v", v, v.deadline-v.clock())
	v.grant = l.believes(v, v.rec)
	l.tally.Taken++
	v.after(l.upTo(l.t.Lease/4), v.work)
	v.watch()
	if !l.final {
		v.after(l.upTo(time.Duration(3+5*(l.src.Intn(4)/3))*l.t.Lease), v.finish)
	}
}

// watch is the timer that cancels the work at the deadline.
func (v *visit) watch() {
	if v.stage == visitHolds && !v.expires() && v.clock() < v.deadline {
		v.at(v.deadline, v.watch)
	}
}

// look is a step of the clock.
func (v *visit) look() { v.expires() }

// expires says that the deadline has passed, which is final. A client may free the lock
// then, if its work has returned.
func (v *visit) expires() bool {
	if v.stage < visitGranted || v.stage > visitHolds || v.clock() < v.deadline || v.deadline == 0 {
		return false
	}
	v.expired = true
	v.over("expired")
	return true
}

func (v *visit) loses() {
	v.gone = true
	v.over("lost")
}

// believes says whether the client may act now: whether its check passes.
func (v *visit) believes() bool {
	return v.stage == visitHolds && v.clock() < v.deadline
}

// work writes to the resource now and then, for as long as the check passes.
func (v *visit) work() {
	l := v.l
	if !v.believes() {
		return
	}
	grant := v.grant
	late := l.upTo(l.cfg.Latency)
	if l.fails(Messages) && l.one(4) {
		late = l.upTo(4 * l.t.Lease)
	}
	l.after(late, func() {
		if v.life == l.life {
			l.arrives(v, grant, v.tok)
		}
	})
	v.after(l.t.Lease/16+l.upTo(l.t.Lease), v.work)
}

// heeds tells the work to stop. Heartbeats go on meanwhile, for a lease at most.
func (v *visit) heeds(q *driver.Request) {
	l := v.l
	if v.asked != nil {
		return
	}
	l.note("%s is asked to %s", v, q.Kind)
	l.tally.Heeded++
	v.asked = q
	v.at(v.clock()+l.t.Lease, func() { v.quiet = true })
	v.after(v.drain(), v.finish)
}

func (v *visit) drain() time.Duration {
	l := v.l
	switch {
	case l.final:
		return l.cfg.Drain
	case l.one(6):
		return l.upTo(6 * l.t.Lease)
	}
	v.prompt = true
	return l.upTo(l.t.Lease)
}

// finish is that the work has returned.
func (v *visit) finish() {
	if v.stage != visitHolds || v.done || v.l.final && v.asked == nil {
		return
	}
	v.done = true
	v.release()
}

// over ends the visit.
func (v *visit) over(why string) {
	if v.stage == visitOver {
		return
	}
	v.l.note("%s is over: %s", v, why)
	v.stage, v.why = visitOver, why
	if v.conn != nil {
		v.conn.hangUp()
	}
	v.c.leave(v)
	v.l.ended(v)
}
