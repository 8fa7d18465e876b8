// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Want is what a contender is after.
type Want struct {
	Key, Owner, Host, Label string
	// Data replaces the data in the record; nil keeps it.
	Data []byte
	// Try gives up instead of waiting.
	Try bool
	// LookFirst says that the store charges a claim that it refuses. Then a try that
	// knows nothing of the lock looks before it claims. It is for tries of locks that are
	// their own lease: those under a session are mostly known to be free.
	LookFirst bool
	// Holds says that this process has the lock itself. Without it, a record that
	// shows Owner is likely to be of a tenure that has ended.
	Holds bool
	// Priority goes into the record. A holder with a lower one is asked to hand
	// over to Owner.
	Priority int
	// UnlessAlive gives up at the first sign of life of whoever was seen to
	// hold the lock, a release included.
	UnlessAlive bool
	// Behind says that other contenders of this process already wait for the key, so
	// that the sight is fresh and the first move need not be a claim.
	Behind bool
	// Of is what a try was decided upon: it gives up where the record shows another term,
	// or another state of this one. Nil: it does not mind.
	Of *driver.Record
	// Patience is how long the store may fail to give any answer; 0: for ever.
	Patience time.Duration
	// Bell is the holder's in the record, empty if it has none.
	Bell string
	// Under is the session that is to keep the lock alive, nil if the lock is to
	// be its own lease. It is open when the acquire begins. When the lock is granted,
	// the caller checks that it is still open: see [Keeper.Open].
	Under *Keeper
}

// Refusal says why a contender ended without the lock.
type Refusal struct {
	// Held is true if the record shows a holder, and the contender was not to wait.
	// Record is that record, and FreeIn how long it can stay held at most without a
	// sign of life.
	Held   bool
	Record driver.Record
	FreeIn time.Duration
	// Err is the error of the store, where that was the reason.
	Err error
	// Ended is true if the session that was to keep the lock alive has ended.
	Ended bool
}

// Contender is the machine of one acquire: it claims a free lock, watches a
// held one for signs of life, and takes it over at the instant at which its
// holder's lease has certainly expired.
//
// A version counts only for the acquire that wrote it. An acquire that ends
// without the lock while the outcome of a write of its own is unknown cleans
// up behind itself, for one lease.
type Contender struct {
	t     Timing
	env   Env
	want  Want
	sight *Sight

	begun   bool // the first move is made
	started bool
	since   time.Duration // when it started
	// Of one that gives up at a sign of life: the first holder that a strong reply has shown to
	// it, and the first sign of life of its session.
	first, firstOfSession life
	looked, met           bool // a reply to a call of its own counts: about the lock, about its session
	out                   *Call
	sent                  time.Duration
	attempt               attempt  // of out, if it writes
	unknown               attempts // writes that may have been applied, or may still be
	resolve               bool     // a look must tell what became of them first
	own                   *driver.Record
	before                []*driver.Tenure // of own
	replacing             bool             // a grant of its own that came too late to be used
	id                    string           // the beginning of all of its beats: see Env.beatOf
	failures              int
	races                 int // claims in a row that were refused although the lock looks free
	unheard               int // claims in a row without an answer, or throttled, while the store answers looks
	beaten                int // requests to a session that lost the race to another write
	retry                 time.Duration
	silent                time.Duration // since when the store has given no answer
	mute                  bool
	lastErr               error

	grant   Grant
	granted bool
	left    *Grant // found while it cleaned up: nobody uses it
	refusal *Refusal
	ending  bool // given up, perhaps cleaning up
	cleanBy time.Duration
	cleaned int
}

// NewContender returns the machine of one acquire. The sight is shared with
// the other contenders of the process for the key.
func NewContender(t Timing, env Env, want Want, sight *Sight) *Contender {
	c := &Contender{t: t, env: env, want: want, sight: sight, begun: want.Behind}
	if want.Under != nil {
		want.Under.acquires[c] = struct{}{}
	}
	return c
}

// Granted returns the lease, once the contender has it.
func (c *Contender) Granted() (Grant, bool) {
	return c.grant, c.granted
}

// Left returns a grant that the contender found while it cleaned up, and that nobody
// uses. It may be the only one that knows of the tenures before it.
func (c *Contender) Left() (Grant, bool) {
	if c.left == nil {
		return Grant{}, false
	}
	return *c.left, true
}

// wrote says whether a write of this acquire has made the record what it is: one of
// unknown outcome, or the one that has granted it the lock.
func (c *Contender) wrote(rec driver.Record) bool {
	if c.granted {
		return c.grant.Record.Token == rec.Token
	}
	_, own := c.unknown.wrote(rec)
	return own || c.out != nil && (c.out.Kind == Claim || c.out.Kind == Takeover) && c.attempt.wrote(rec)
}

// Refused returns why the contender ended without the lock, nil if it has not.
func (c *Contender) Refused() *Refusal { return c.refusal }

// Over says that the contender sends nothing more.
func (c *Contender) Over() bool {
	return c.out == nil && (c.granted || c.ending && len(c.unknown) == 0 && c.own == nil)
}

// Err returns the last error of the store, nil after an answer.
func (c *Contender) Err() error { return c.lastErr }

// Silence returns for how long the store has given no answer.
func (c *Contender) Silence(now time.Duration) time.Duration {
	if !c.mute {
		return 0
	}
	return now - c.silent
}

// Next returns the instant at which Step has something to do, and false if it
// has nothing to do until another event.
func (c *Contender) Next() (time.Duration, bool) {
	if c.out != nil || c.Over() {
		return 0, false
	}
	_, at := c.plan()
	return at, true
}

// Step lets time pass.
func (c *Contender) Step(now time.Duration) Action { return c.move(now) }

// move makes the next move, and leaves the session when it is the last.
func (c *Contender) move(now time.Duration) Action {
	u := c.want.Under
	if u != nil && !c.granted && (u.Cause() != None || u.Holder.Over()) {
		c.refuse(now, Refusal{Ended: true}) // it cannot keep a lock alive any more
	}
	a := Action{Call: c.act(now)}
	if u != nil && !c.granted && c.Over() {
		delete(u.acquires, c)
	}
	return a
}

// Hint says that the record may have changed in a way that matters. The next look
// is due at once. Whoever can read the store can forge a message that leads to it, so it says
// nothing of the record.
func (c *Contender) Hint(now time.Duration) Action {
	c.sight.Hint()
	return c.move(now)
}

// GiveUp ends the acquire from outside. If a write of its own is under way or
// of unknown outcome, the machine goes on until that is cleaned up.
func (c *Contender) GiveUp(now time.Duration) Action {
	c.giveUp(now)
	return c.move(now)
}

func (c *Contender) giveUp(now time.Duration) {
	if c.ending || c.granted {
		return
	}
	c.ending, c.cleanBy = true, now+c.t.Lease
	c.retry = now
}

func (c *Contender) refuse(now time.Duration, r Refusal) {
	if c.refusal == nil && !c.ending {
		c.refusal = &r
	}
	c.giveUp(now)
}

// plan returns the next move and when it is due.
func (c *Contender) plan() (Kind, time.Duration) {
	rec, found := c.sight.Record()
	_, known := c.sight.Known()
	switch {
	case c.ending && c.own != nil:
		return Release, c.retry
	case c.ending, c.resolve, c.shown(rec):
		return Look, c.retry
	case c.own != nil:
		return Takeover, c.retry
	case !c.begun, !known, !found, rec.State == driver.Released:
		return Claim, c.retry
	case c.ghost(rec) && c.sight.sent >= c.since:
		return Release, c.retry
	case c.ghost(rec):
		return Look, c.retry
	case c.mine(rec):
		return Takeover, c.retry
	}
	if u := c.sight.under(); u != nil {
		return c.planTied(u)
	}
	switch {
	case c.sight.Dead():
		return Takeover, c.retry
	case c.mustSee(c.sight):
		return Look, c.retry
	}
	look := c.sight.NextLook()
	if wish, ok := c.wish(rec); ok && wish < look {
		return Ask, max(wish, c.retry)
	}
	return Look, max(look, c.retry)
}

// mustSee says that the record has to be read before the acquire may be refused for what it shows:
// no strong reply to a call since the acquire began has shown it.
func (c *Contender) mustSee(s *Sight) bool {
	seen := s.sent > c.since || s.sent == c.since && (c.looked && s == c.sight || c.met && s != c.sight)
	return (c.want.Try || c.want.UnlessAlive) && !seen
}

// shown says that another machine that shares the sight has seen what this acquire
// wrote. The acquire recognises it by a look of its own. Under a session nothing else
// would end the wait, because the session keeps alive what its acquires have written.
func (c *Contender) shown(rec driver.Record) bool {
	_, own := c.unknown.wrote(rec)
	return own && c.own == nil && rec.State == driver.Held
}

// ghost says that the lock is held in the name of the contender's own session, and
// nothing under the session knows of it: a late duplicate of a claim was applied, or
// a release was not. The session's heartbeats would keep it held for as long as the
// session lives, and those who only try never ask about it. So the contender releases
// it, as a [Disclaimer] does, and then claims it.
//
// It is never a lock that is held. What the session does not know of at this instant
// no machine of it can come to hold: a version counts only for the acquire that wrote
// it, and that is known to the session until its lock is. The release replaces just
// the version that was seen.
func (c *Contender) ghost(rec driver.Record) bool {
	u := c.want.Under
	return u != nil && rec.State == driver.Held && rec.Session == u.id && Readable(rec) && !u.mine(rec)
}

// mine says that the lock is reserved for this contender, by its owner or its label.
func (c *Contender) mine(rec driver.Record) bool {
	return KeptFor(rec, c.want.Owner, c.want.Label)
}

// act returns the call of the next move if it is due.
func (c *Contender) act(now time.Duration) *Call {
	if c.out != nil || c.Over() {
		return nil
	}
	if !c.started {
		c.started, c.since = true, now
	}
	if dead, _ := c.sight.DeadAt(); c.sight.Tied() && now >= dead {
		c.begun = true // a claim is of no use: each of a dead session's locks costs one write
	}
	if !c.begun && c.want.Try && !c.ending && (c.livesFor(now) || c.blind()) {
		// The claim would most likely be refused. A look costs a fifth of it. It is
		// strong, because a cheap one may show a holder that has gone.
		c.begun, c.resolve = true, true
	}
	if !c.ending && c.begun && !c.resolve && c.own == nil {
		if c.judge(now); c.ending {
			return c.act(now)
		}
	}
	kind, at := c.plan()
	rec, _ := c.sight.Record()
	resolves := c.ending || c.resolve || c.shown(rec) || c.ghost(rec) || c.mustSee(c.sight)
	if now < at {
		return nil
	}
	r := &Call{Kind: kind, Key: c.want.Key}
	switch kind {
	case Peek, Close, Inquire:
		c.askSession(r, c.sight.under(), now)
	case Look:
		if !resolves {
			r.Consistency = c.sight.How(now)
		}
	case Claim:
		c.begun = true
		r.Next = c.held(0)
	case Takeover:
		r.Prev = rec
		if c.replacing = c.own != nil; c.replacing {
			r.Prev = *c.own
		}
		r.Next = c.held(r.Prev.Token + 1)
		r.Next.Prev = c.sight.ending(r.Prev)
		if r.Next.Data == nil {
			r.Next.Data = r.Prev.Data
		}
	case Ask:
		c.prefer(r, rec, now)
	case Release:
		if r.Prev = rec; c.own != nil {
			r.Prev = *c.own
		}
		r.Next = freed(r.Prev, c.env.Fresh(), driver.EndAbandoned, nil)
	}
	c.out, c.sent = r, now
	c.sightOf(r).sends(now, r)
	if kind == Claim || kind == Takeover {
		c.attempt = attempt{kind: kind, version: r.Next.Version, token: r.Next.Token, sent: now, counts: c.env.lease(now)}
		if prev := r.Prev.Prev; kind == Takeover && prev != nil && r.Prev.State == driver.Held {
			c.attempt.before = []*driver.Tenure{prev}
			if c.replacing {
				c.attempt.before = append(c.attempt.before, c.before...)
			}
		}
	}
	return r
}

// blind says that a look goes first, because this process knows nothing of the lock and
// the store charges a claim that it refuses.
func (c *Contender) blind() bool {
	_, known := c.sight.Known()
	return c.want.LookFirst && c.want.Under == nil && !known
}

// livesFor says that, as far as this process knows, another holder has the lock and
// has shown life within its lease.
func (c *Contender) livesFor(now time.Duration) bool {
	rec, _ := c.sight.Record()
	dead, held := c.sight.DeadAt()
	if u := c.sight.under(); u != nil {
		_, seen := u.DeadAt()
		held = held && seen
	}
	another := rec.Owner != c.want.Owner || c.want.Holds
	return held && another && now < dead && Readable(rec)
}

// held returns the record of a new holder.
func (c *Contender) held(token uint64) driver.Record {
	if c.id == "" {
		c.id = c.env.part()
	}
	version := c.env.beatOf(c.id)
	rec := driver.Record{
		Key: c.want.Key, Version: version, Beat: version, Owner: c.want.Owner, Token: token,
		Lease: c.t.Lease, Drift: c.t.Drift, State: driver.Held, Priority: c.want.Priority, Host: c.want.Host, Label: c.want.Label, Data: c.want.Data,
		Bell: c.want.Bell,
	}
	switch {
	case c.want.Under != nil:
		rec.Session = c.want.Under.id
	case !c.t.Manual:
		rec.Heartbeat = c.t.Heartbeat
	}
	return rec
}

// judge ends the acquire if what it sees leaves nothing to wait for.
func (c *Contender) judge(now time.Duration) {
	rec, found := c.sight.Record()
	if found && !Readable(rec) {
		c.refuse(now, Refusal{Record: rec, Err: driver.ErrUnreadable})
		return
	}
	dead, held := c.sight.DeadAt()
	if of := c.want.Of; of != nil && !c.shown(rec) && (rec.Token != of.Token || rec.State != of.State) {
		c.refuse(now, Refusal{Held: true, Record: rec, FreeIn: max(0, dead-now)})
		return
	}
	if found && (c.shown(rec) || c.mine(rec) || c.ghost(rec)) {
		return // written by it, as its own look will tell; or reserved for it; or nobody's
	}
	u := c.sight.under()
	if u != nil && u.known && u.found && u.rec.Lease <= 0 {
		c.refuse(now, Refusal{Record: u.rec, Err: driver.ErrUnreadable})
		return
	}
	if c.want.UnlessAlive && c.sawLife(rec, u) || c.want.Try && held && now < dead && c.sees(u) {
		c.refuse(now, Refusal{Held: true, Record: rec, FreeIn: max(0, dead-now)})
	}
}

// sees says that strong replies to calls since the acquire began have shown the lock, and its
// session.
func (c *Contender) sees(u *Sight) bool {
	if u == nil {
		return !c.mustSee(c.sight)
	}
	_, alive := u.DeadAt()
	return alive && !c.mustSee(c.sight) && !c.mustSee(u)
}

// sawLife says whether the holder that was seen first has shown life since then, a release
// included. It compares two states that strong replies to calls since the acquire began have
// shown: the first one, to whichever machine of the process, and the present one. They are those
// of the lock, and of its session.
func (c *Contender) sawLife(rec driver.Record, u *Sight) bool {
	if c.mustSee(c.sight) {
		return false
	}
	is := lifeOf(rec)
	switch saw := c.sight.holder; {
	case c.first != life{}:
	case c.sight.holderSent >= c.since && saw != life{} && !IsBeatOf(saw.sign, c.id):
		// Others share the sight: they may have seen the holder, and its end, while a call of
		// this acquire was under way.
		c.first = saw
	case c.sight.holds():
		c.first = is
	default:
		return false
	}
	if is != c.first {
		return !(is.token == c.first.token && is.state == driver.Released && nobodyWorked(rec))
	}
	if u == nil || c.mustSee(u) {
		return false
	}
	if c.firstOfSession == (life{}) && u.holderSent >= c.since {
		c.firstOfSession = u.holder
	}
	if c.firstOfSession == (life{}) || !u.found {
		return false
	}
	return closedInOrder(u.rec) || u.rec.State == driver.Alive && lifeOf(u.rec) != c.firstOfSession
}

// closedInOrder says whether rec is the record of a session that its own process has
// closed.
func closedInOrder(rec driver.Record) bool {
	return rec.State == driver.Closed && rec.End != driver.EndExpired && !nobodyWorked(rec)
}

// nobodyWorked says whether the end of a tenure is no sign of life: another process,
// which knew that the holder was dead, released the lock, or no work was done under it.
func nobodyWorked(rec driver.Record) bool {
	return rec.End == driver.EndReleasedDead || rec.End == driver.EndCrashed || rec.End == driver.EndAbandoned
}

// Reply takes the result of the call under way.
func (c *Contender) Reply(now time.Duration, r Result) Action {
	out := c.out
	c.out = nil
	if r.Outcome == NotApplied || r.Outcome == Unknown {
		c.sightOf(out).missed(out)
	}
	switch r.Outcome {
	case Applied, Conflicted:
		if out.OfSession() {
			c.answerSession(now, out, r)
		} else {
			c.answer(now, out, r)
		}
	case NotApplied:
		c.notAsked(now, out)
		c.fail(now, r.Err)
		if out.Kind == Claim || out.Kind == Takeover && c.own == nil {
			c.throttled(now, r.Err)
		}
	case Unknown:
		c.notAsked(now, out)
		if out.Kind == Claim || out.Kind == Takeover {
			c.unknown = c.unknown.add(c.attempt)
		}
		if out.Kind == Claim || out.Kind == Takeover || out.Kind == Release {
			c.resolve = !c.ending
			c.unheard++
		}
		c.fail(now, r.Err)
	}
	return c.move(now)
}

// sightOf returns the sight of the record that a call is about.
func (c *Contender) sightOf(r *Call) *Sight {
	if r.OfSession() {
		return c.env.Session(driver.SessionID(r.Key))
	}
	return c.sight
}

// answer takes what the store said of the record.
func (c *Contender) answer(now time.Duration, out *Call, r Result) {
	c.failures = 0
	if out.Kind != Look || c.unheard == 0 { // a look that tells what became of a write is not the write's answer
		c.mute, c.lastErr = false, nil
	}
	c.retry = now
	if raced := out.Kind == Claim && r.Outcome == Conflicted && (!r.Found || r.Record.State == driver.Released); raced {
		// The claim lost to a holder that has already released the lock, or the store
		// shows another record than the one that was in the way.
		c.retry = now + c.t.backoff(c.env, c.races)
		c.races++
	} else {
		c.races = 0
	}
	switch {
	case out.Kind != Look:
		c.unheard = 0
	case c.unheard > 0 && !c.ending:
		c.retry = now + c.t.retry(c.env, c.unheard, c.lastErr, c.t.Lease) // a store that answers only reads does not help
	}
	if out.Kind == Look && out.Consistency == driver.Strong {
		c.resolve = false
	}
	if out.Kind == Release && c.own != nil {
		c.sight.Saw(c.sent, now, out.fresh(), r.Record, r.Found)
		if rec := r.Record; r.Outcome == Conflicted && r.Found && rec.State == driver.Held &&
			rec.Token == c.own.Token && rec.Beat == c.own.Beat {
			c.own = &rec // a request was written into it
			return
		}
		// Released, or another holder's: the attempt has had its effect.
		c.unknown = c.unknown.without(c.own.Version).without(c.own.Beat)
		c.own = nil
		return
	}
	c.own = nil
	c.sight.Saw(c.sent, now, out.fresh(), r.Record, r.Found)
	c.looked = c.looked || c.sight.sent == c.sent
	if dead, held := c.sight.DeadAt(); held && now < dead && !c.ghost(r.Record) {
		c.unheard, c.mute, c.lastErr = 0, false, nil // it has nothing to write before then
	}
	if out.Kind == Ask && r.Outcome == Conflicted {
		c.sight.wished = false // lost the race to a heartbeat: the holder was not asked
	}

	a, own := attempt{}, false
	switch {
	case !r.Found || r.Record.State != driver.Held:
	case out.Kind == Look, out.Kind == Ask, out.Kind == Release:
		a, own = c.unknown.wrote(r.Record)
	default:
		a, own = c.unknown.wrote(r.Record, c.attempt)
	}
	switch {
	case own && c.ending:
		rec := r.Record
		c.own = &rec
		c.left = &Grant{ID: c.id, Record: rec, Sent: a.counts, Former: r.Former, Before: before(a, r.Former)}
	case own && c.want.Under == nil && now >= a.sent+c.t.Usable():
		// Ours, but from so long ago that its lease is already over. No work began
		// under it: it is replaced like a dead holder's.
		rec := r.Record
		c.own, c.before = &rec, before(a, r.Former)
	case own:
		c.granted = true
		c.grant = Grant{ID: c.id, Record: r.Record, Sent: a.counts, Former: r.Former, Before: before(a, r.Former), by: c}
		if out.Kind == Takeover && c.replacing {
			c.grant.Former = driver.Record{} // its data came from this acquire
		}
	case c.ending && now >= c.cleanBy && !c.bound():
		c.unknown = nil // what may still be applied runs out by itself
	case c.ending:
		// It has not been applied, but it still may be. Look again at growing
		// intervals, and once more at the end.
		c.retry = now + min(c.t.Refresh, c.t.Lease/16)<<min(c.cleaned, 5)
		if !c.bound() {
			c.retry = min(c.retry, c.cleanBy)
		}
		c.cleaned++
	}
}

// bound says that a session would keep alive what this acquire has written. Then the
// acquire must go on until the outcome is known.
func (c *Contender) bound() bool {
	u := c.want.Under
	return u != nil && !u.Holder.Over() && !u.Quiet()
}

// before returns the tenures before the one that a grant names as Prev, as the
// attempt knew them, or as its reply has shown them: those that the history may lack.
func before(a attempt, former driver.Record) []*driver.Tenure {
	if a.before == nil && former.Prev != nil && former.State != driver.Reserved && !inOrder(former.End) {
		return []*driver.Tenure{former.Prev}
	}
	return a.before
}

// throttled has a look follow a claim or a takeover that the store has refused because it
// has too much to do. Reads have room of their own, and mostly show that another one has
// the lock. The same write again would only add to what keeps the holder's heartbeats out.
// One that would replace a grant of its own has to write again: see own.
func (c *Contender) throttled(now time.Duration, err error) {
	if !c.ending && errors.Is(err, driver.ErrThrottled) {
		c.resolve, c.retry = true, now
		c.unheard++
	}
}

func (c *Contender) fail(now time.Duration, err error) {
	if !c.mute {
		c.mute, c.silent = true, c.sent
	}
	c.lastErr = err
	if c.ending && (now >= c.cleanBy && !c.bound() || errors.Is(err, driver.ErrPermanent)) {
		c.unknown, c.own = nil, nil // it cannot be cleaned up
	}
	c.retry = now + c.t.retry(c.env, c.failures, err, c.t.Lease)
	c.failures++
	impatient := c.want.Patience > 0 && now-c.silent >= c.want.Patience
	if impatient || errors.Is(err, driver.ErrPermanent) || errors.Is(err, driver.ErrUnreadable) {
		c.refuse(now, Refusal{Err: err})
	}
}
