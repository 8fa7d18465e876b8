// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Want says what an acquire wants.
type Want struct {
	Key, Owner, Host, Label string
	// Data replaces the data in the record; nil keeps it.
	Data []byte
	// Try gives up instead of waiting.
	Try bool
	// ReadFirst says that the store charges for a claim that it refuses. A try that knows
	// nothing of the lock then reads before it claims. Under a session it has no
	// effect: there a lock is mostly known to be free.
	ReadFirst bool
	// Holds says that this process itself has the lock. If it does not, a record that
	// shows Owner most likely shows an ended term.
	Holds bool
	// Priority goes into the record. A holder with a lower one is asked to hand
	// over to Owner.
	Priority int
	// UnlessAlive gives up when the first observed holder shows life. A release counts as
	// a sign of life.
	UnlessAlive bool
	// ViewFresh says that the view is fresh, because others of this process wait for the key or
	// observe it. The first move then need not be a claim.
	ViewFresh bool
	// Observed is the record for which the caller decided to try: the try gives up if it finds
	// another term, or another state of that term. Nil accepts any.
	Observed *driver.Record
	// Patience is how long the store may fail to give any answer; 0: for ever.
	Patience time.Duration
	// Notify is the holder's address for notifications, empty if it takes none.
	Notify string
	// Drift bounds the rate error of the clock by which the holder counts, if that is another
	// process. It goes into the record. This process's own bound is for another clock, and replaces
	// it only if higher, since then the operator expects worse clocks. The contender itself waits
	// by its own bound.
	Drift float64
	// Under is the session that is to keep the lock alive, nil if the lock is to
	// have its own lease. It is open when the acquire begins. When the lock is granted,
	// the caller checks that it is still open: see [SessionHolder.Open].
	Under *SessionHolder
}

// Refusal says why an acquire ended without the lock.
type Refusal struct {
	// Held is true if the record shows a holder, and the acquire must not wait. Record
	// is that record, and FreeIn the longest that it can stay held without a sign of life.
	Held   bool
	Record driver.Record
	FreeIn time.Duration
	// Err is the store's error, if that was the reason.
	Err error
	// Ended is true if the session that was to keep the lock alive has ended.
	Ended bool
}

// Acquirer is the machine of one acquire: it claims a free lock, watches a
// held one for signs of life, and takes it over at the instant at which its
// holder's lease has certainly expired.
//
// A version grants a lock only to the acquire that wrote it. If an acquire ends
// without the lock while the outcome of one of its writes is unknown, it cleans up after
// itself: for one lease, or, under a session, until the outcome is known.
type Acquirer struct {
	retrier retrier
	want    Want
	view    *View

	begun bool          // the first move is made
	since time.Duration // when it began; never: not yet

	// Whether a reply to one of its calls has counted: about the lock, about its session.
	lockRead, sessionRead bool

	// For UnlessAlive: the first holder that a strong reply has shown since the acquire
	// began, and the first sign of life of its session.
	first, firstOfSession lifeSign

	id       string      // the beginning of all of its beats: see Env.beatOf
	attempt  attempt     // the latest claim or takeover
	unknown  attempts    // attempts that may have been applied, or may yet be
	mustRead bool        // the next call is a strong read of the lock
	stray    *strayGrant // an unusable grant of this acquire
	inquiry  inquiry     // whether the session of the lock holds it

	grant   *Grant // unused if the acquire was given up before
	refusal *Refusal
	cleanup *cleanup // nil: it was not given up
}

// strayGrant is a grant that an acquire found too late: the lease was over, or the acquire was
// given up. The acquire must replace or release the record.
type strayGrant struct {
	rec    driver.Record
	before []*driver.Term
}

// inquiry says when to ask the session of a lock again whether it holds the lock. term is when
// the lock's term was first observed.
type inquiry struct{ term, again time.Duration }

// cleanup is the state of an acquire that was given up while it had writes of unknown
// outcome.
type cleanup struct {
	until time.Duration // a write applied after that expires by itself
	next  time.Duration // the next read
	reads int
}

// NewAcquirer returns the machine of one acquire. All acquires of the process for the
// key share the view.
func NewAcquirer(t Timing, env Env, want Want, view *View) *Acquirer {
	c := &Acquirer{
		retrier: retrier{t: t, env: env, patience: want.Patience}, want: want, view: view,
		begun: want.ViewFresh, since: never,
	}
	if want.Under != nil {
		want.Under.acquires[c] = struct{}{}
	}
	return c
}

// Granted returns the lease, once the acquire has it.
func (c *Acquirer) Granted() (Grant, bool) {
	if c.grant == nil || c.cleanup != nil {
		return Grant{}, false
	}
	return *c.grant, true
}

// StrayGrant returns an unused grant that the acquire found while it cleaned up. Perhaps
// no other grant shows the terms before it.
func (c *Acquirer) StrayGrant() (Grant, bool) {
	if c.grant == nil || c.cleanup == nil {
		return Grant{}, false
	}
	return *c.grant, true
}

// Refused returns why the acquire ended without the lock, nil if it has not.
func (c *Acquirer) Refused() *Refusal { return c.refusal }

// Over says that the machine sends nothing more.
func (c *Acquirer) Over() bool { return c.retrier.Over() }

// Err returns the last error of the store, nil after an answer.
func (c *Acquirer) Err() error { return c.retrier.failed }

// Silence returns how long the store has given no answer.
func (c *Acquirer) Silence(now time.Duration) time.Duration {
	if !c.retrier.mute {
		return 0
	}
	return now - c.retrier.silent
}

// Next returns the instant at which Step has something to do, and false if it
// has nothing to do until another event.
func (c *Acquirer) Next() (time.Duration, bool) {
	if !c.retrier.idle() {
		return 0, false
	}
	m := c.plan()
	return c.retrier.next(m.kind, m.at)
}

// Step lets time pass.
func (c *Acquirer) Step(now time.Duration) Action {
	u := c.want.Under
	if u != nil && c.grant == nil && (u.Cause() != None || u.Holder.Over()) {
		c.refuse(now, Refusal{Ended: true}) // the session cannot keep a lock alive any more
	}
	a := Action{Call: c.act(now)}
	if _, granted := c.Granted(); u != nil && !granted && c.Over() {
		delete(u.acquires, c)
	}
	if u != nil && u.outlived && !u.Holder.Over() {
		a.Wake = append(a.Wake, u)
	}
	return a
}

// Hint says that the record may have changed. The next read is due at once. A hint proves
// nothing about the record, because anyone who can read the store can forge the message
// behind it.
func (c *Acquirer) Hint(now time.Duration) Action {
	c.view.Hint()
	return c.Step(now)
}

// GiveUp ends the acquire from outside. If a write of its own is under way or
// of unknown outcome, the machine goes on until that is cleaned up.
func (c *Acquirer) GiveUp(now time.Duration) Action {
	c.giveUp(now)
	return c.Step(now)
}

func (c *Acquirer) giveUp(now time.Duration) {
	if c.cleanup == nil && c.grant == nil {
		c.cleanup = &cleanup{until: now + c.retrier.t.Lease}
	}
}

func (c *Acquirer) refuse(now time.Duration, r Refusal) {
	if c.cleanup == nil {
		c.refusal = &r
	}
	c.giveUp(now)
}

// act makes the next call if it is due.
func (c *Acquirer) act(now time.Duration) *Call {
	if !c.retrier.idle() {
		return nil
	}
	c.begin(now)
	if c.cleanup == nil && c.begun && !c.mustRead && c.stray == nil {
		c.judge(now)
	}
	if c.cleanup != nil && len(c.unknown) == 0 && c.stray == nil {
		c.retrier.finish(Abandoned, driver.Record{}, nil)
		return nil
	}
	m := c.plan()
	if !c.retrier.due(now, m.kind, m.at) {
		return nil
	}
	r := c.call(now, m)
	c.view.of(r, c.want.Key).sends(now, r)
	return c.retrier.send(now, m.at, r)
}

// begin decides how the acquire begins: with a claim or, if the store would most likely refuse
// that, with a read, which costs a fifth on DynamoDB. The read is strong: an eventual one may show
// a holder that has gone.
func (c *Acquirer) begin(now time.Duration) {
	if c.since == never {
		c.since = now
	}
	switch dead, _ := c.view.DeadAt(); {
	case c.begun:
	case c.view.UnderSession() && now >= dead:
		c.begun = true // a claim would be refused; a takeover costs one write
	case c.want.Try && c.cleanup == nil && (c.livesFor(now) || c.blind()):
		c.begun, c.mustRead = true, true
	}
}

// blind says that a read goes first, because this process knows nothing of the lock and
// the store charges for a claim that it refuses.
func (c *Acquirer) blind() bool {
	_, known := c.view.Known()
	return c.want.ReadFirst && c.want.Under == nil && !known
}

// livesFor says that, as far as this process knows, another holder has the lock and
// has shown life within its lease.
func (c *Acquirer) livesFor(now time.Duration) bool {
	rec, _ := c.view.Record()
	dead, held := c.view.DeadAt()
	if u := c.view.under(); u != nil {
		_, seen := u.DeadAt()
		held = held && seen
	}
	another := rec.Owner != c.want.Owner || c.want.Holds
	return held && another && now < dead && Readable(rec)
}

// plan returns the next move.
func (c *Acquirer) plan() move {
	rec, found := c.view.Record()
	_, known := c.view.Known()
	switch {
	case c.cleanup != nil && c.stray != nil:
		return move{kind: Release}
	case c.cleanup != nil:
		return move{kind: Read, at: c.cleanup.next}
	case c.mustRead, c.wroteBy(rec):
		return move{kind: Read}
	case c.stray != nil:
		return move{kind: Takeover}
	case !c.begun, !known, !found, rec.State == driver.Released:
		return move{kind: Claim}
	case c.orphan(rec) && c.view.sent >= c.since:
		return move{kind: Release}
	case c.orphan(rec):
		return move{kind: Read}
	case c.reservedForMe(rec):
		return move{kind: Takeover}
	}
	return c.planHeld(rec, c.view.under())
}

// planHeld returns the next move if another holder has the lock, under the session of u
// unless u is nil.
func (c *Acquirer) planHeld(rec driver.Record, u *View) move {
	switch {
	case c.view.over():
		return move{kind: Takeover}
	case u != nil && u.Dead():
		return move{kind: ForceRelease, session: true}
	case u != nil && (!u.isRead(c.view) || c.mustSee(u, c.sessionRead)):
		return move{kind: Read, session: true} // unread, or not read since the acquire began
	case u != nil && !u.holds():
		return c.view.settles(u)
	case c.mustSee(c.view, c.lockRead):
		return move{kind: Read}
	}
	t := c.retrier.t
	next := move{kind: Read, poll: true, at: c.view.NextPoll(t.Refresh, t.Lease)}
	if u != nil {
		if at := u.NextPoll(t.Refresh, t.Lease); at <= next.at {
			next = move{kind: Read, session: true, poll: true, at: at}
		}
		if at, ok := c.inquires(rec, u); ok && at <= next.at {
			next = move{kind: Request, session: true, ask: driver.Confirm, at: at}
		}
	}
	if at, ok := c.wishes(rec, u); ok && at < next.at {
		next = move{kind: Request, session: u != nil, ask: driver.HandOver, at: at}
	}
	return next
}

// mustSee says that the record cannot yet end the acquire: no strong reply to a call sent since
// the acquire began has shown the record. own says that the acquire's own call got such a
// reply.
func (c *Acquirer) mustSee(s *View, own bool) bool {
	seen := s.sent > c.since || s.sent == c.since && own
	return (c.want.Try || c.want.UnlessAlive) && !seen
}

// wroteBy says that another machine that shares the view has read what this acquire
// wrote. The acquire must read the record itself. Under a session nothing else ends the
// wait: the session keeps that record alive, so that it does not expire.
func (c *Acquirer) wroteBy(rec driver.Record) bool {
	_, own := c.unknown.wrote(rec)
	return own && c.stray == nil && rec.State == driver.Held
}

// orphan says that the lock is held in the name of the acquire's own session, and
// nothing under the session knows of it: a late duplicate of a claim was applied, or
// a release was not. The session's heartbeats would keep it held for as long as the
// session lives, and a caller that only tries never asks about it. So the acquire
// releases it, as an [OrphanReleaser] does, and then claims it.
//
// This never releases a lock that a lease holds. No machine of the session can get the orphan
// later: a version grants a lock only to the acquire that wrote it, and the session knows that
// acquire until it knows the lock. The release replaces only the version that was read.
func (c *Acquirer) orphan(rec driver.Record) bool {
	u := c.want.Under
	return u != nil && rec.State == driver.Held && rec.Session == u.id && Readable(rec) && !u.knows(rec)
}

// wrote says whether this acquire wrote the record: by an attempt of unknown outcome,
// or by the write that granted the lock.
func (c *Acquirer) wrote(rec driver.Record) bool {
	if g, granted := c.Granted(); granted {
		return g.Record.Token == rec.Token
	}
	_, own := c.unknown.wrote(rec)
	return own || c.writes(c.retrier.out) && c.attempt.wrote(rec)
}

// writes says whether a call is the latest claim or takeover of this acquire.
func (c *Acquirer) writes(r *Call) bool { return r != nil && (r.Kind == Claim || r.Kind == Takeover) }

// reservedForMe says that the lock is reserved for this acquire, by its owner or its label.
func (c *Acquirer) reservedForMe(rec driver.Record) bool {
	return ReservedFor(rec, c.want.Owner, c.want.Label)
}

// inquiryLeases is how many leases pass before a session is asked again whether it holds
// a lock.
const inquiryLeases = 4

// inquires returns when the acquire may ask the session whether it holds the lock
// ([driver.Confirm]), and false if the session's record already has the question or lacks room
// for it, or its lease ends first.
func (c *Acquirer) inquires(rec driver.Record, u *View) (time.Duration, bool) {
	for _, q := range u.rec.Requests {
		if q.Kind == driver.Confirm && q.Lock == rec.Key && q.Token == rec.Token {
			return 0, false
		}
	}
	at := c.view.termSince + c.retrier.t.Lease
	if c.inquiry.term == c.view.termSince {
		at = max(at, c.inquiry.again)
	}
	dead, _ := u.DeadAt()
	return at, at < dead && len(u.rec.Requests) < driver.MaxRequests
}

// wishes returns when to ask the holder to hand over to this acquire, which has a higher
// priority, and false if the acquire must not ask.
func (c *Acquirer) wishes(rec driver.Record, u *View) (time.Duration, bool) {
	if c.want.Try || c.want.UnlessAlive || rec.Priority >= c.want.Priority {
		return 0, false
	}
	at, ok := c.view.asks(rec, c.retrier.t.Lease)
	if u == nil || !ok {
		return at, ok
	}
	dead, _ := u.DeadAt()
	return at, at < dead && waitingFor(u.rec, rec) == nil && len(u.rec.Requests) < driver.MaxRequests
}

// call returns the call of a move that is made now.
func (c *Acquirer) call(now time.Duration, m move) *Call {
	rec, _ := c.view.Record()
	r := &Call{Kind: m.kind, Key: c.want.Key}
	view := c.view
	if m.session {
		view = c.view.under()
		r.Key = driver.SessionKey(rec.Session)
	}
	switch m.kind {
	case Read:
		if m.poll {
			r.Consistency = view.PollConsistency(now)
		}
	case Claim, Takeover:
		c.take(now, r, rec)
	case Request:
		r.Prev, r.Next = view.rec, asking(view.rec, c.retrier.env.Fresh(), c.request(now, m, rec))
	case ForceRelease:
		r.Prev, r.Next = view.rec, closed(view.rec, c.retrier.env.Fresh(), driver.EndExpired)
	case Release:
		if r.Prev = rec; c.stray != nil {
			r.Prev = c.stray.rec
		}
		r.Next = freed(r.Prev, c.retrier.env.Fresh(), driver.EndAbandoned, nil)
	}
	return r
}

// take fills in a claim or a takeover, and remembers it.
func (c *Acquirer) take(now time.Duration, r *Call, rec driver.Record) {
	c.begun = true
	var before []*driver.Term
	if r.Kind == Claim {
		r.Next = c.held(0)
	} else {
		if r.Prev = rec; c.stray != nil {
			r.Prev = c.stray.rec
		}
		r.Next = c.held(r.Prev.Token + 1)
		r.Next.Prev = c.view.ending(r.Prev)
		if r.Next.Data == nil {
			r.Next.Data = r.Prev.Data
		}
		if prev := r.Prev.Prev; prev != nil && r.Prev.State == driver.Held {
			before = []*driver.Term{prev}
			if c.stray != nil {
				before = append(before, c.stray.before...)
			}
		}
	}
	c.attempt = attempt{
		kind: r.Kind, version: r.Next.Version, token: r.Next.Token, sent: now, countsFrom: c.retrier.env.lease(now),
		before: before, replacesStray: c.stray != nil,
	}
}

// held returns the record of a new holder.
func (c *Acquirer) held(token uint64) driver.Record {
	if c.id == "" {
		c.id = c.retrier.env.part()
	}
	version := c.retrier.env.beatOf(c.id)
	rec := driver.Record{
		Key: c.want.Key, Version: version, Beat: version, Owner: c.want.Owner, Token: token,
		Lease: c.retrier.t.Lease, Drift: max(c.want.Drift, c.retrier.t.Drift),
		State: driver.Held, Priority: c.want.Priority,
		Host: c.want.Host, Label: c.want.Label, Data: c.want.Data, Notify: c.want.Notify,
	}
	switch {
	case c.want.Under != nil:
		rec.Session = c.want.Under.id
	case !c.retrier.t.Manual:
		rec.Heartbeat = c.retrier.t.Heartbeat
	}
	return rec
}

// request returns the request to be written. For a lock under a session it goes into the session's
// record, where the next heartbeat finds it.
func (c *Acquirer) request(now time.Duration, m move, rec driver.Record) driver.Request {
	if m.ask == driver.Confirm {
		c.inquiry = inquiry{c.view.termSince, now + inquiryLeases*c.retrier.t.Lease}
		return driver.Request{
			ID: c.retrier.env.Fresh(), Kind: driver.Confirm, By: c.want.Owner, Lock: rec.Key, Token: rec.Token,
			Reason: "somebody waits for it",
		}
	}
	q := Preferring(c.want.Owner, c.want.Priority, rec)
	if q.ID = c.retrier.env.Fresh(); m.session {
		q.Lock = rec.Key
	}
	c.view.NoteRequest(now)
	return q
}

// Preferring returns the request by which an owner with that priority asks the holder in rec to
// hand over.
func Preferring(owner string, priority int, rec driver.Record) driver.Request {
	return driver.Request{
		Kind: driver.HandOver, Token: rec.Token, By: owner, To: owner,
		Reason: fmt.Sprintf("preferred: priority %d before %d", priority, rec.Priority),
	}
}

// judge ends the acquire if the view leaves nothing to wait for.
func (c *Acquirer) judge(now time.Duration) {
	rec, found := c.view.Record()
	u := c.view.under()
	dead, held := c.view.DeadAt()
	refusal := Refusal{Held: true, Record: rec, FreeIn: max(0, dead-now)}
	switch {
	case found && !Readable(rec):
		c.refuse(now, Refusal{Record: rec, Err: driver.ErrUnreadable})
	case c.wroteBy(rec): // it wrote that, as its own read will show
	case c.changed(rec):
		c.refuse(now, refusal)
	case c.reservedForMe(rec), c.orphan(rec): // reserved for it, or an orphan
	case u != nil && u.found && u.rec.Lease <= 0:
		c.refuse(now, Refusal{Record: u.rec, Err: driver.ErrUnreadable})
	case c.want.UnlessAlive && c.sawLife(rec, u), c.want.Try && held && now < dead && c.sees(u):
		c.refuse(now, refusal)
	}
}

// changed says that the caller saw another state when it decided to try.
func (c *Acquirer) changed(rec driver.Record) bool {
	of := c.want.Observed
	return of != nil && (rec.Token != of.Token || rec.State != of.State)
}

// sees says that strong replies to calls sent since the acquire began have shown the lock and
// its session.
func (c *Acquirer) sees(u *View) bool {
	return !c.mustSee(c.view, c.lockRead) && (u == nil || u.isRead(c.view) && !c.mustSee(u, c.sessionRead))
}

// sawLife says whether the first holder has shown life since it was observed, a release
// included. It compares the first state of the lock, and of its session, with the present one.
// Only strong replies count, to calls that any machine of the process sent since the acquire began.
func (c *Acquirer) sawLife(rec driver.Record, u *View) bool {
	if c.mustSee(c.view, c.lockRead) {
		return false
	}
	is := lifeSignOf(rec)
	if c.remember(); c.first == (lifeSign{}) {
		if !c.view.holds() {
			return false
		}
		c.first = is
	}
	if is != c.first {
		return !(is.token == c.first.token && is.state == driver.Released && withoutWork(rec.End))
	}
	if u == nil || c.mustSee(u, c.sessionRead) {
		return false
	}
	if c.firstOfSession == (lifeSign{}) && u.shown.sent >= c.since {
		c.firstOfSession = u.shown.lifeSign
	}
	if c.firstOfSession == (lifeSign{}) || !u.found {
		return false
	}
	return closedInOrder(u.rec) || u.rec.State == driver.Alive && lifeSignOf(u.rec) != c.firstOfSession
}

// remember notes the first holder that a strong reply to a call since the acquire began has shown.
// Other machines share the view: they may have observed the holder, and its end, while a call of
// this acquire was under way. A call sent just as the acquire began does not count: it may show
// an earlier state.
func (c *Acquirer) remember() {
	if c.view.shown.sent > c.since {
		c.notesHolder(c.view.shown.lifeSign)
	}
}

// notesHolder notes that holder, unless it is this acquire.
func (c *Acquirer) notesHolder(holder lifeSign) {
	if c.first == (lifeSign{}) && !IsBeatOf(holder.sign, c.id) {
		c.first = holder
	}
}

// released says that the first holder has released the lock since it was observed. This
// acquire's claim proves the release, because the claim took effect only after it. The release
// counts as a sign of life, as if it were read.
func (c *Acquirer) released(claimed driver.Record) bool {
	if !c.want.UnlessAlive || c.first == (lifeSign{}) {
		return false
	}
	prev := claimed.Prev
	return prev == nil || prev.Token != c.first.token || !withoutWork(prev.End)
}

// closedInOrder says whether rec is the record of a session that its own process has
// closed.
func closedInOrder(rec driver.Record) bool {
	return rec.State == driver.Closed && rec.End != driver.EndExpired && !withoutWork(rec.End)
}

// withoutWork says whether a term's end is no sign of life: another process knew that the
// holder was dead and released the lock, or no work was done under it.
func withoutWork(end driver.EndReason) bool {
	return end == driver.EndReleasedDead || end == driver.EndCrashed || end == driver.EndAbandoned
}

// Reply takes the result of the call under way.
func (c *Acquirer) Reply(now time.Duration, r Result) Action {
	out, answered := c.retrier.replied(now, r)
	view := c.view.of(out, c.want.Key)
	switch {
	case !answered:
		view.missed(out)
		c.fail(now, out, r)
	case view != c.view:
		view.Observe(c.retrier.sent, now, out.consistency(), r.Record, r.Found)
		c.sessionRead = c.sessionRead || view.sent == c.retrier.sent
	default:
		c.answer(now, out, r)
	}
	if out.Kind == Request && r.Outcome != Applied {
		c.notAsked(now, out, r.Outcome)
	}
	return c.Step(now)
}

// notAsked brings the next request forward if this one lost the race against a heartbeat or
// another request, or got no answer. If the request was written after all, the record shows it,
// and it is not repeated.
func (c *Acquirer) notAsked(now time.Duration, out *Call, o Outcome) {
	asked := out.Next.Requests[len(out.Next.Requests)-1]
	switch {
	case asked.Kind != driver.Confirm:
		if o == Conflicted {
			c.view.NoteRequest(never)
		}
	case o == Conflicted:
		c.inquiry = inquiry{}
	default:
		c.inquiry.again = now + c.retrier.t.Lease
	}
}

// fail takes a call without an answer.
func (c *Acquirer) fail(now time.Duration, out *Call, r Result) {
	if r.Outcome == Unknown && c.writes(out) {
		c.unknown = c.unknown.add(c.attempt)
	}
	switch {
	case c.cleanup != nil:
		if now >= c.cleanup.until && !c.keptBySession() || errors.Is(r.Err, driver.ErrPermanent) {
			c.unknown, c.stray = nil, nil // it cannot be cleaned up
		}
	case r.Outcome == Unknown && (c.writes(out) || out.Kind == Release):
		c.mustRead = true
	case c.writes(out) && c.stray == nil && errors.Is(r.Err, driver.ErrThrottled):
		// The store is overloaded. Reads have their own capacity, and mostly show that
		// another holder has the lock. Repeating the write would only add to the load that
		// delays the holder's heartbeats.
		c.mustRead = true
	}
	if c.retrier.spent(now) {
		c.refuse(now, Refusal{Err: r.Err})
	}
}

// answer handles what the store returned about the record.
func (c *Acquirer) answer(now time.Duration, out *Call, r Result) {
	if out.Kind == Read && out.Consistency == driver.Strong {
		c.mustRead = false
	}
	if out.Kind == Release && c.stray != nil {
		c.givenBack(now, out, r)
		return
	}
	c.stray = nil
	c.remember()
	last, _ := c.view.Record()
	c.view.Observe(c.retrier.sent, now, out.consistency(), r.Record, r.Found)
	c.lockRead = c.lockRead || c.view.sent == c.retrier.sent
	if dead, held := c.view.DeadAt(); held && now < dead && !c.orphan(r.Record) {
		c.retrier.clearFailures(now)
	}
	if r.Found && holder(r.Record) && out.consistency() == driver.Strong {
		c.notesHolder(lifeSignOf(r.Record))
	}
	a, own := attempt{}, false
	switch {
	case !r.Found || r.Record.State != driver.Held:
	case c.writes(out):
		a, own = c.unknown.wrote(r.Record, c.attempt)
	default:
		a, own = c.unknown.wrote(r.Record)
	}
	if own {
		c.won(now, a, r, last)
	} else if c.cleanup != nil {
		c.looksAgain(now)
	}
}

// won handles the grant that an attempt has led to. last is the record as it was known
// before.
func (c *Acquirer) won(now time.Duration, a attempt, r Result, last driver.Record) {
	if a.kind == Claim && c.released(r.Record) {
		c.refuse(now, Refusal{Held: true, Record: last})
	}
	if u := c.want.Under; u != nil && r.Record.Life != u.rec.Life {
		u.outlived = true // the server that granted the lock does not keep it alive for the session
		c.refuse(now, Refusal{Ended: true})
	}
	g := &Grant{ID: c.id, Record: r.Record, Sent: a.countsFrom, Former: r.Former, Before: before(a, r.Former), by: c}
	switch {
	case c.cleanup != nil:
		c.grant, c.stray = g, &strayGrant{rec: r.Record}
	case c.want.Under == nil && now >= a.sent+c.retrier.t.Usable():
		// This acquire wrote the record, but its lease is over. No work began under it: the
		// acquire replaces it like a dead holder's record.
		c.stray = &strayGrant{r.Record, g.Before}
	default:
		if a.replacesStray {
			g.Former = driver.Record{} // its data came from this acquire
		}
		c.grant = g
		c.retrier.finish(Done, r.Record, nil)
	}
}

// givenBack takes the answer to the release of c.stray.
func (c *Acquirer) givenBack(now time.Duration, out *Call, r Result) {
	c.view.Observe(c.retrier.sent, now, out.consistency(), r.Record, r.Found)
	own, rec := c.stray.rec, r.Record
	same := r.Found && rec.State == driver.Held && rec.Token == own.Token && rec.Beat == own.Beat
	if r.Outcome == Conflicted && same {
		c.stray.rec = rec // a request was written into it
		return
	}
	// Released, or another holder's: the attempt has had its effect.
	c.unknown = c.unknown.without(own.Version).without(own.Beat)
	c.stray = nil
}

// looksAgain schedules the reads that find out whether an attempt of unknown outcome was
// applied after all: at growing intervals, and once more at the end.
func (c *Acquirer) looksAgain(now time.Duration) {
	k := c.cleanup
	if now >= k.until && !c.keptBySession() {
		c.unknown = nil // a write that is applied later expires by itself
		return
	}
	k.next = now + min(c.retrier.t.Refresh, c.retrier.t.Lease/16)<<min(k.reads, 5)
	if !c.keptBySession() {
		k.next = min(k.next, k.until)
	}
	k.reads++
}

// keptBySession says that a session would keep alive what this acquire has written. The acquire
// must then go on until the outcome is known.
func (c *Acquirer) keptBySession() bool {
	u := c.want.Under
	return u != nil && !u.Holder.Over() && !u.Quiet()
}

// before returns the terms before a grant's Prev that the history may lack: those that the
// attempt knew, or else the term that its reply has shown.
func before(a attempt, former driver.Record) []*driver.Term {
	if a.before == nil && former.Prev != nil && former.State != driver.Reserved && !inOrder(former.End) {
		return []*driver.Term{former.Prev}
	}
	return a.before
}
