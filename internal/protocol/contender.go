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
	// Holds says that this process has the lock itself. Without it, a record that
	// shows Owner is likely to be of a tenure that has ended.
	Holds bool
	// Priority goes into the record. A holder of a lower one is asked to hand
	// over to Owner, at most once in PriorityPause.
	Priority      int
	PriorityPause time.Duration
	// UnlessAlive gives up at the first sign of life of whoever was seen to
	// hold the lock, a release included.
	UnlessAlive bool
	// Behind says that others of this process have been waiting for the key
	// already, so that the sight is fresh and the first move needs no claim.
	Behind bool
	// Patience is how long the store may fail to give any answer; 0: for ever.
	Patience time.Duration
	// Under is the session that is to keep the lock alive, nil if the lock is to
	// be its own lease. It is open when the acquire begins; whether it is still
	// open when the lock was granted is for the caller to see: see [Holder.Open].
	Under *Holder
}

// Refusal says why a contender ended without the lock.
type Refusal struct {
	// Held is true if the record shows a holder, and the contender was not to
	// wait: Record, and the longest that it can stay so without a sign of life.
	Held   bool
	Record driver.Record
	FreeIn time.Duration
	// Err is the error of the store, where that was the reason.
	Err error
}

// Contender is the machine of one acquire: it claims a free lock, watches a
// held one for life, and takes it over at the instant at which its holder's
// expiry has passed for certain.
//
// A version counts only for the acquire that wrote it. An acquire that ends
// without the lock while the outcome of a write of its own is unknown cleans
// up behind itself, for one lease.
type Contender struct {
	t     Timing
	env   Env
	want  Want
	sight *Sight

	begun     bool // the first move is made
	started   bool
	since     time.Duration // when it started
	first     *life         // the first that a strong reply has shown; its sign is not looked at
	holder    *life
	out       *Request
	sent      time.Duration
	attempt   attempt  // of out, if it writes
	unknown   attempts // writes that may be applied, or may be yet
	resolve   bool     // and a look must tell before anything else
	own       *driver.Record
	before    []*driver.Tenure // of own
	replacing bool             // a term of its own in which nobody believed
	met       bool             // the session was looked at, by this acquire and strongly
	hinted    bool             // the record changed while a request was under way
	doubts    bool             // whether the session has shown life: a strong look tells
	id        string           // what all of its beats begin with: see Env.beatOf
	failures  int
	races     int // claims in a row that lost to nobody
	unheard   int // claims in a row that the store did not answer, while it answers looks
	beaten    int // questions to a session that another write forestalled
	retry     time.Duration
	silent    time.Duration // since when the store was asked and gives no answer
	mute      bool
	lastErr   error

	grant   *Grant
	left    *Grant // found while it cleaned up: nobody believes in it
	refusal *Refusal
	ending  bool // given up, perhaps cleaning up
	cleanBy time.Duration
	cleaned int
}

// NewContender returns the machine of one acquire. The sight is shared with
// the other contenders of the process for the key.
func NewContender(t Timing, env Env, want Want, sight *Sight) *Contender {
	c := &Contender{t: t, env: env, want: want, sight: sight, begun: want.Behind}
	if Making(AdoptsVersions) {
		c.unknown, c.resolve = append(attempts(nil), sight.given...), len(sight.given) > 0
	}
	return c
}

// Granted returns the lease, once the contender has it.
func (c *Contender) Granted() (Grant, bool) {
	if c.grant == nil {
		return Grant{}, false
	}
	return *c.grant, true
}

// Left returns a grant that nobody believes in, which was found while the
// contender cleaned up behind itself. Nobody else may have written down what
// came before it.
func (c *Contender) Left() (Grant, bool) {
	if c.left == nil {
		return Grant{}, false
	}
	return *c.left, true
}

// Wrote says whether a write of this acquire, whose outcome it does not know yet,
// has made the record what it is.
func (c *Contender) Wrote(rec driver.Record) bool {
	if c.grant != nil {
		return false
	}
	as := c.unknown
	if c.out != nil && (c.out.Kind == Claim || c.out.Kind == Takeover) {
		as = append(as[:len(as):len(as)], c.attempt)
	}
	_, own := as.wrote(rec)
	return own
}

// Refused returns why the contender ended without the lock, nil if it has not.
func (c *Contender) Refused() *Refusal { return c.refusal }

// Over says that the contender sends nothing any more.
func (c *Contender) Over() bool {
	return c.out == nil && (c.grant != nil || c.ending && len(c.unknown) == 0 && c.own == nil)
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
func (c *Contender) Step(now time.Duration) Action {
	return Action{Request: c.act(now)}
}

// Hint says that the record may have changed in a way that matters: the next
// look is due at once.
func (c *Contender) Hint(now time.Duration) Action {
	c.hinted = true
	return Action{Request: c.act(now)}
}

// GiveUp ends the acquire from outside. If a write of its own is under way or
// of unknown outcome, the machine goes on until that is cleaned up.
func (c *Contender) GiveUp(now time.Duration) Action {
	c.giveUp(now)
	return Action{Request: c.act(now)}
}

func (c *Contender) giveUp(now time.Duration) {
	if c.ending || c.grant != nil {
		return
	}
	c.ending, c.cleanBy = true, now+c.t.Lease
	c.retry = now
	if Making(AdoptsVersions) {
		c.sight.given, c.unknown = append(c.sight.given, c.unknown...), nil
	}
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
	case c.mine(rec):
		return Takeover, c.retry
	case c.sight.doubt:
		return Look, c.retry
	}
	if u := c.sight.under(); u != nil {
		return c.planTied(u)
	}
	dead, _ := c.sight.DeadAt()
	look := c.sight.NextLook()
	if c.hinted {
		look = 0
	}
	if wish, ok := c.wish(rec); ok && wish < min(look, dead) {
		return Ask, max(wish, c.retry)
	}
	if look < dead {
		return Look, max(look, c.retry)
	}
	return Takeover, max(dead, c.retry)
}

// shown says that somebody who shares the sight has seen what this acquire wrote,
// which it recognises by a look of its own. Under a session nothing else would end
// the waiting: that vouches for what one of its acquires has written.
func (c *Contender) shown(rec driver.Record) bool {
	_, own := c.unknown.wrote(rec)
	return own && c.own == nil && rec.State == driver.Held
}

// mine says that the lock is reserved for this contender's owner.
func (c *Contender) mine(rec driver.Record) bool {
	return rec.State == driver.Reserved && rec.Owner == c.want.Owner && rec.Owner != ""
}

// act returns the request of the next move if it is due.
func (c *Contender) act(now time.Duration) *Request {
	if c.out != nil || c.Over() {
		return nil
	}
	if !c.started {
		c.started, c.since = true, now
	}
	c.begun = c.begun || c.sight.widowed(now)
	if !c.begun && c.want.Try && !c.ending && c.livesFor(now) {
		// The claim would be refused, most likely. A look costs a fifth of it, and is
		// strong: what a cheap one shows may be a holder who has gone.
		c.begun, c.resolve = true, true
	}
	if !c.ending && c.begun && !c.resolve && c.own == nil {
		if c.judge(now); c.ending {
			return c.act(now)
		}
	}
	kind, at := c.plan()
	waits := kind == Look || kind == Ask || kind == Peek || kind == Inquire
	rec, _ := c.sight.Record()
	resolves := c.ending || c.resolve || c.shown(rec)
	if dead, ok := c.sight.DeadAt(); ok && waits && !resolves && now >= dead {
		kind, at = c.sight.lastMove(), max(dead, c.retry)
	}
	if now < at {
		return nil
	}
	r := &Request{Kind: kind, Key: c.want.Key}
	switch kind {
	case Peek, Close, Inquire:
		c.askSession(r, c.sight.under(), now)
	case Look:
		if !resolves && !c.hinted {
			r.Consistency = c.sight.How(now)
		}
		c.hinted = false
	case Claim:
		c.begun = true
		r.Next = c.held(0)
	case Takeover:
		r.Prev = rec
		if c.replacing = c.own != nil; c.replacing {
			r.Prev = *c.own
		}
		r.Next = c.held(r.Prev.Token + 1)
		if Making(TokenStays) {
			r.Next.Token = r.Prev.Token
		}
		r.Next.Prev = c.sight.ending(r.Prev)
		if r.Next.Data == nil {
			r.Next.Data = r.Prev.Data
		}
	case Ask:
		c.prefer(r, rec, now)
	case Release:
		r.Prev = *c.own
		r.Next = freed(*c.own, c.env.Fresh(), driver.EndAbandoned, nil)
	}
	c.out, c.sent = r, now
	if kind == Claim || kind == Takeover {
		c.attempt = attempt{kind: kind, version: r.Next.Version, token: r.Next.Token, sent: now}
		if prev := r.Prev.Prev; kind == Takeover && prev != nil && r.Prev.State == driver.Held {
			c.attempt.before = []*driver.Tenure{prev}
			if c.replacing {
				c.attempt.before = append(c.attempt.before, c.before...)
			}
		}
	}
	return r
}

// livesFor says that somebody has the lock, as far as this process knows, and has
// shown life within its lease.
func (c *Contender) livesFor(now time.Duration) bool {
	rec, _ := c.sight.Record()
	dead, held := c.sight.DeadAt()
	if u := c.sight.under(); u != nil {
		_, seen := u.DeadAt()
		held = held && seen && !u.doubt
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
	}
	switch {
	case c.want.Under != nil:
		rec.Session = c.want.Under.rec.Key[len(driver.SessionPrefix):]
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
	if found && (c.shown(rec) || c.mine(rec)) {
		return // its own, as a look of its own will tell; or kept for it
	}
	if c.want.UnlessAlive && found && c.hasEnded(rec) {
		c.refuse(now, Refusal{Held: true, Record: rec, FreeIn: max(0, dead-now)})
		return
	}
	if u := c.sight.under(); u != nil {
		if u.known && u.found && u.rec.Lease <= 0 {
			c.refuse(now, Refusal{Record: u.rec, Err: driver.ErrUnreadable})
			return
		}
		if _, alive := u.DeadAt(); (!alive || c.meets()) && !u.ended(c.sight.term) {
			return // nobody has looked yet
		}
	}
	if c.want.Try && held && now < dead || c.want.UnlessAlive && c.sawLife(rec, held) {
		c.refuse(now, Refusal{Held: true, Record: rec, FreeIn: max(0, dead-now)})
	}
}

// hasEnded says whether the tenure has ended that a strong reply has shown to this
// acquire first. That may be seen before anybody has looked at the session under
// which it was.
func (c *Contender) hasEnded(rec driver.Record) bool {
	is := lifeOf(rec)
	if c.first == nil {
		// Others share the sight: the holder may have been shown, and have gone, while
		// a request of this acquire was under way.
		if held := c.sight.held; held.token > 0 && c.sight.heldAt >= c.since {
			c.first = &held
		} else {
			return false
		}
	}
	if is.token == c.first.token && is.state == driver.Released && nobodyWorked(rec) {
		return false
	}
	return is.token != c.first.token || is.state != c.first.state
}

// sawLife says whether the holder that was seen at first has shown life since then,
// a release included. The first is what a strong reply has shown to this acquire: life
// from before it says nothing of now. A later tenure, or a later state of this one, is what it is,
// however it was read. Another sign of life of the same tenure may be an older one,
// unless a strong reply shows it: one is asked for.
func (c *Contender) sawLife(rec driver.Record, held bool) bool {
	seen, proved := lifeOf(rec), c.sight.proved
	u := c.sight.under()
	switch {
	case u == nil:
	case u.found:
		seen.sign, proved = u.rec.Sign(), u.proved
		if closedInOrder(u.rec) {
			seen.state = driver.Released // with the session, by its holder
		}
	case c.holder != nil:
		seen.sign = c.holder.sign // of one that is gone nobody can tell more
	}
	switch {
	case c.holder == nil && !held:
		return false
	case c.holder == nil && (c.sight.strong < c.since || u == nil && !proved):
		c.hinted = true // what was seen before this acquire may have changed before it
		return false
	case c.holder == nil && u != nil && (u.strong < c.since || !proved):
		c.doubts = true
		return false
	case c.holder == nil:
		c.holder = &seen
		return false
	case seen == *c.holder:
		return false
	case seen.token == c.holder.token && seen.state == driver.Released && nobodyWorked(rec):
		return false // somebody has released what the dead one held
	case seen.token != c.holder.token, seen.state != c.holder.state, proved:
		return true
	case u != nil:
		c.doubts = true
	default:
		c.hinted = true
	}
	return false
}

// closedInOrder says whether the record is that of a session which its own process has
// closed.
func closedInOrder(rec driver.Record) bool {
	return rec.State == driver.Closed && rec.End != driver.EndExpired && !nobodyWorked(rec)
}

// nobodyWorked says whether what a holder had was released by somebody else, who
// knew that it was dead, or with nothing done under it.
func nobodyWorked(rec driver.Record) bool {
	return rec.End == driver.EndFreed || rec.End == driver.EndCrashed || rec.End == driver.EndAbandoned
}

// Reply takes the result of the request under way.
func (c *Contender) Reply(now time.Duration, r Result) Action {
	out := c.out
	c.out = nil
	switch r.Outcome {
	case Applied, Conflicted:
		if out.OfSession() {
			c.answerSession(now, out, r)
		} else {
			c.answer(now, out, r)
		}
	case NotApplied:
		if out.Kind == Look && out.Consistency == driver.Strong {
			c.hinted = true // what asked for it is not answered
		}
		c.notAsked(now, out)
		c.fail(now, r.Err)
	case Unknown:
		c.notAsked(now, out)
		if out.Kind == Claim || out.Kind == Takeover {
			c.unknown = c.unknown.add(c.attempt)
			c.resolve = !c.ending
			c.unheard++
		}
		c.fail(now, r.Err)
	}
	return Action{Request: c.act(now)}
}

// answer takes what the store said of the record.
func (c *Contender) answer(now time.Duration, out *Request, r Result) {
	c.failures = 0
	if out.Kind != Look || c.unheard == 0 { // one that tells what became of a write is no answer to that
		c.mute, c.lastErr = false, nil
	}
	c.retry = now
	if raced := out.Kind == Claim && r.Outcome == Conflicted && (!r.Found || r.Record.State == driver.Released); raced {
		// Lost to somebody who has let go of it again already, or to a store that
		// shows a record which was not the one in the way.
		c.retry = now + c.t.backoff(c.env, c.races)
		c.races++
	} else {
		c.races = 0
	}
	switch {
	case out.Kind != Look:
		c.unheard = 0
	case c.unheard > 0 && !c.ending:
		c.retry = now + c.t.backoff(c.env, c.unheard) // a store that answers reads alone is no better
	}
	if out.Kind == Look && out.Consistency == driver.Strong {
		c.resolve = false
	}
	if out.Kind == Release {
		c.sight.Saw(c.sent, now, out.fresh(), r.Record, r.Found)
		if rec := r.Record; r.Outcome == Conflicted && r.Found && rec.State == driver.Held &&
			rec.Token == c.own.Token && rec.Beat == c.own.Beat {
			c.own = &rec // a request was laid into it
			return
		}
		// Released, or not ours any more: the attempt has had its effect.
		c.unknown = c.unknown.without(c.own.Version).without(c.own.Beat)
		c.own = nil
		return
	}
	c.own = nil
	c.sight.Saw(c.sent, now, out.fresh(), r.Record, r.Found)
	if dead, held := c.sight.DeadAt(); held && now < dead {
		c.unheard, c.mute, c.lastErr = 0, false, nil // there is nothing to write before that
	}
	if out.Kind == Ask && r.Outcome == Conflicted {
		c.sight.wished = false // a heartbeat was quicker: nobody was asked
	}

	a, own := attempt{}, false
	switch {
	case !r.Found || r.Record.State != driver.Held:
	case out.Kind == Look, out.Kind == Ask:
		a, own = c.unknown.wrote(r.Record)
	default:
		a, own = c.unknown.add(c.attempt).wrote(r.Record)
	}
	switch {
	case own && c.ending:
		rec := r.Record
		c.own = &rec
		c.left = &Grant{ID: c.id, Record: rec, Sent: a.sent, Former: r.Former, Before: before(a, r.Former)}
	case own && c.want.Under == nil && now >= a.sent+c.t.Usable():
		// Ours, but so long ago that its lease is over before it began. Nobody
		// believed in it: it is replaced like a dead holder's.
		rec := r.Record
		c.own, c.before = &rec, before(a, r.Former)
	case own:
		c.grant = &Grant{ID: c.id, Record: r.Record, Sent: a.sent, Former: r.Former, Before: before(a, r.Former)}
		if out.Kind == Takeover && c.replacing {
			c.grant.Former = driver.Record{} // its data are those of this acquire
		}
	case c.ending && now >= c.cleanBy && !c.bound():
		c.unknown = nil // what may come yet runs out by itself
	case c.ending:
		// Not there now, but it may be yet. Look again later and later, and once
		// more at the end.
		c.retry = now + min(c.t.Refresh, c.t.Lease/16)<<min(c.cleaned, 5)
		if !c.bound() {
			c.retry = min(c.retry, c.cleanBy)
		}
		c.cleaned++
	}
}

// bound says that what this acquire has written would be kept alive by a session
// for as long as that lives, so that it cannot be given up before its outcome is
// known.
func (c *Contender) bound() bool {
	u := c.want.Under
	return u != nil && !u.over && !u.quiet
}

// before returns the tenures before the one that a grant names as Prev: what
// the attempt knew, or what its reply has shown.
func before(a attempt, former driver.Record) []*driver.Tenure {
	if a.before == nil && former.Prev != nil && former.State != driver.Reserved {
		return []*driver.Tenure{former.Prev}
	}
	return a.before
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
