// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// elsewhere is what the world knows of clients that hold a lock, to judge them.
type elsewhere struct {
	visits []*visit        // that are not over
	made   map[string]made // the beats of clients
	unused []offered       // grants that show no life yet
}

// made is a beat that a client has made.
type made struct {
	v     *visit
	first time.Duration // by the client's clock: before it was sent for the first time
}

// offered is a grant for a client.
type offered struct {
	m   *machine
	rec driver.Record
	at  time.Duration
}

// laid is a request in the record of a lock.
type laid struct {
	id       string
	at       time.Duration
	honoured bool // by a holder
}

// judgedVisit is what the world remembers of a visit.
type judgedVisit struct {
	grant   int           // its number among the grants of the lock
	unfit   bool          // its check has failed once
	most    time.Duration // the latest deadline that an applied write gives it
	since   time.Duration // when its work began
	slow    bool          // to show life
	gone    bool          // it was told that it is lost
	expired bool
	prompt  bool // its work returns within a lease of being told
	why     string
}

// repeats says that a write is one that was sent before, because a call of a client was
// carried out once more: the only writes that have a version in common. It writes the same
// beat over the same one; at most one of them is applied: see carried.
func (m *machine) repeats(by write, r *protocol.Call) bool {
	if m.r == nil || by.by.r == nil || r.Kind != protocol.Heartbeat || r.Next.Version != r.Next.Beat {
		return false
	}
	is, was := m.of, by.by.of
	return is.Key == was.Key && is.Token == was.Token && is.After == was.After && is.Next == was.Next && r.Next.Beat == is.Next
}

// carried judges a heartbeat of a client that a replica has written.
func (l *lock) carried(m *machine, r *protocol.Call, was driver.Record) {
	if m.r == nil || r.Kind != protocol.Heartbeat {
		return
	}
	is := l.store.rec
	if by := l.beatenBy[is.Beat]; by != nil {
		l.fail("%s writes beat %s, and the write of %s was applied before", m, is.Beat, by)
	}
	l.beatenBy[is.Beat] = m
	if was.Token != m.of.Token {
		l.fail("%s renews token %d, and its client has token %d", m, was.Token, m.of.Token)
	}
	by := l.made[is.Beat]
	window := protocol.Timing{Lease: is.Lease, Drift: is.Drift}.Window()
	by.v.most = max(by.v.most, by.first+window)
}

// judgeConfirmed judges what a client is told of its heartbeat.
func (v *visit) judgeConfirmed(r reply) {
	l := v.l
	if l.cfg.Harm || l.life != v.life {
		return
	}
	if l.beatenBy[v.next] == nil {
		l.fail("%s is told that %s is confirmed, and nobody has written that", v, v.next)
	}
	q := l.askedIn[v.tok]
	if q.honoured && q.at < v.firstAt && (r.asked == nil || r.asked.ID != q.id) {
		l.fail("%s was asked before it made its heartbeat, and is not told: %+v", v, r.asked)
	}
}

// judgeLost judges that no client is told of the end of a tenure that goes on. What a claim
// writes that comes once more when an operator has deleted the record is not that tenure.
func (l *lock) judgeLost(cn *conn, d protocol.Dispatch) {
	rec := l.store.rec
	if cn.v.life == l.life && !d.Releases() && rec.State == driver.Held && rec.Token == d.Token && (rec.Beat == d.After || rec.Beat == d.Next) {
		l.fail("%s says to %s that token %d is lost, and it is not", cn.p.name, cn.v, d.Token)
	}
}

// judgeCall judges that a replica acquires for nobody that it knows to have gone.
func (l *lock) judgeCall(m *machine, r *protocol.Call) {
	if m.conn != nil && m.conn.ended && (r.Kind == protocol.Claim || r.Kind == protocol.Takeover) && !l.cfg.Harm {
		l.fail("%s takes the lock for a call that has ended", m)
	}
}

// kept notes that the store has the data of a release.
func (v *visit) kept() {
	if l := v.l; v.data != nil && l.life == v.life && (v.tok > l.kept[0] || v.tok == l.kept[0] && l.kept[1] < 1) {
		l.kept = [2]uint64{v.tok, 1}
	}
}

func (v *visit) token() uint64 { return v.tok }

func (v *visit) acts(grant int) bool {
	return v.grant == grant && v.epoch == v.c.epoch && v.believes()
}

// lost leaves out replicas with leases of their own: what is long enough for the calls of
// one is too short for those of another.
func (v *visit) lost() (string, bool) { return v.why, v.asked == nil && !v.l.cfg.Mixed }

// checkVisits judges the clients, given who holds the lock so far.
func (l *lock) checkVisits(holder actor) actor {
	for _, v := range l.visits {
		if v.stage < visitHolds {
			continue
		}
		if v.deadline > v.most && !l.cfg.Harm {
			l.fail("%s has its deadline at %v, later than any applied write gives it", v, v.deadline)
		}
		if !v.believes() {
			v.unfit = true
			continue
		}
		if v.unfit {
			l.fail("%s passes its check again", v)
		}
		if holder != nil {
			l.fail("%s and %s both hold", holder, v)
		}
		holder = v
	}
	return holder
}

// ended forgets a visit that is over. Where nothing fails it has not lost its lock.
func (l *lock) ended(v *visit) {
	l.visits = slices.DeleteFunc(l.visits, func(other *visit) bool { return other == v })
	t := l.tenures[v.tok]
	excused := v.slow || v.quiet || l.cfg.Mixed || v.life != l.life || t != nil && t.end == driver.EndRevoked
	if (v.expired || v.gone) && !l.cfg.Faults && !excused {
		l.fail("%s is %s although nothing fails", v, v.why)
	}
}

// offered notes a grant for a client.
func (l *lock) offered(m *machine, rec driver.Record) {
	l.tally.Offered++
	if m.life == l.life {
		l.unused = append(l.unused, offered{m, rec, l.now})
	}
}

// checkOffers sees that a grant which shows no life is freed in time by the replica that
// has made it, if that lives and the store answers.
func (l *lock) checkOffers() {
	l.unused = slices.DeleteFunc(l.unused, func(o offered) bool {
		rec, m := l.store.rec, o.m
		switch {
		case m.life != l.life, rec.State != driver.Held, rec.Token != o.rec.Token, rec.Beat != o.rec.Beat:
			if m.life == l.life && rec.Token == o.rec.Token && rec.End == driver.EndAbandoned {
				l.tally.Unused++
			}
			return true
		case m.epoch != m.p.epoch, m.unsure, m.p.stood > o.at:
			return true // it need not, or not in time
		}
		t := m.p.t
		most := time.Duration(float64(t.FreeAfter())/(1-l.cfg.Skew)) + t.Lease/10 + 3*max(t.RequestTimeout, l.cfg.Latency)
		if unused := l.now - o.at; unused > most {
			l.fail("%s is unused for %v, and not free", m, unused)
		}
		return false
	})
}

// checkHeeds sees, where nothing fails, that a client is told in time of the request in
// the record, and releases the lock in time.
func (l *lock) checkHeeds(rec driver.Record) {
	i := slices.IndexFunc(l.visits, func(v *visit) bool { return v.tok == rec.Token && v.stage >= visitHolds && v.life == l.life })
	if i < 0 {
		return
	}
	v, t := l.visits[i], l.slowest()
	since := l.now - max(v.since, l.laid[rec.Requests[0].ID])
	most := time.Duration(float64(t.Heartbeat+4*t.RequestTimeout) / (1 - l.cfg.Skew))
	switch {
	case v.asked == nil && v.stage == visitHolds && since > most:
		l.fail("a request is laid for %v, and %s is not told", since, v)
	case v.prompt && since > 2*most+t.Lease:
		l.fail("a request is laid for %v, and %s has not released", since, v)
	}
}
