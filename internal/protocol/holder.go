// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"bytes"
	"math"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Holder is the machine of a process that holds a lease.
//
// Its heartbeat swaps the record from the last confirmed version. The lease counts
// from the instant at which the confirmed write was sent, and ends at the deadline,
// whatever the network does. A lease that has expired stays expired. When the right
// to act has ended, the heartbeats go on until the work is done or the stop timeout
// has passed, so that no other holder starts beside work that is still stopping.
// When the work is done, the holder releases the record.
//
// A holder has two states: one of its work, and one of its record. These pairs occur;
// over and superseded, which end the machine, occur with any work state but running. A holder is
// quiet when its heartbeats have stopped although the work has not returned; a lock lapses when it
// is released without waiting for the work.
//
//	work      record
//	running   beating
//	draining  beating
//	overdue   silent; releasing, when the lock has lapsed under a session that lives on;
//	          withSession, when the session went quiet first
//	returned  releasing, withSession
//	unused    releasing
//
// A lock under a session has a Holder that sends no heartbeats, ends with the session, and
// writes the lock's record only when that lock alone changes hands. The session's own
// record has a Holder, too: its [SessionHolder] embeds it.
type Holder struct {
	t     *Timing // this and env are shared by many machines
	env   *Env
	under *SessionHolder // the session that keeps the lock alive; nil if it has its own lease

	work  workState
	state recordState

	// The record as of the last confirmed write, and when that was sent: the lease counts
	// from then. sent only rises, and stays once the lease has expired.
	rec  driver.Record
	sent time.Duration

	// Writing. At most one call is out. All attempts in unknown replace rec's version:
	// once rec has another version, none of them can be applied any more. Nothing is
	// sent before retry.
	out      *Call
	unknown  attempts
	retry    time.Duration
	failures int           // in a row
	adopted  int           // conflicts in a row with records of our own term
	alarm    time.Duration // when failures become jeopardy; never: already noted
	lastErr  error

	// data is the newest data's serial number, dataKept that of the newest known to be
	// stored. want is the newest data, if dataKept is less.
	want           []byte
	data, dataKept uint64

	// Why the term ends, as the record will say: the first request found, the holder's own
	// hand-over, or otherwise why the work failed. cancelled says that later requests to
	// hand over do not reserve the lock.
	reason    *driver.Request
	cancelled bool
}

// workState is the state of the right to act and of the work under it. It only moves to
// a later state.
type workState interface{ ended() ending }

type (
	// running: the holder may act.
	running struct {
		begun    bool          // the machine was stepped: the work may have begun
		progress time.Duration // of the work, the latest
	}
	// draining: the right to act has ended, and the work has not returned yet.
	draining struct {
		ending
		quietAt time.Duration // heartbeats go on until then
	}
	// overdue: the work has not returned within the stop timeout.
	overdue struct{ ending }
	// returned: the work has returned.
	returned struct {
		ending
		quiet bool // it was overdue
	}
	// unused: as returned, but no work was done.
	unused returned
)

// ending says why the right to act has ended: the first cause. expired says that the
// deadline passed before the work had returned.
type ending struct {
	cause   Cause
	expired bool
}

func (*running) ended() ending { return ending{} }
func (e ending) ended() ending { return e }

// recordState is what a holder does about its record. giveUp returns the instant at
// which it gives a release up, 0 without a release.
type recordState interface{ giveUp() time.Duration }

type (
	// beating: heartbeats show that the lease lives.
	beating struct {
		due     time.Duration // of the next one
		renewed time.Duration // a caller wants a heartbeat sent then or later; never: none
	}
	// silent: the holder is quiet. The record should say why.
	silent struct {
		saidWhy bool          // the record says why, or it is too late to say so
		until   time.Duration // one lease later; a lock under a session lapses then
	}
	// releasing: the record is to be released.
	releasing struct {
		until time.Duration // when the release is given up, if the work has returned
	}
	// withSession: the session's record decides. Closing the session frees the lock, if
	// the lock's work has returned.
	withSession struct {
		until time.Duration // as in releasing
	}
	// over: nothing is sent any more.
	over struct{ how Freed }
	// superseded is over, because the record is another holder's, or deleted.
	superseded struct {
		by *driver.Record // nil if the store was replaced
	}
)

func (*beating) giveUp() time.Duration      { return 0 }
func (*silent) giveUp() time.Duration       { return 0 }
func (s releasing) giveUp() time.Duration   { return s.until }
func (s withSession) giveUp() time.Duration { return s.until }
func (over) giveUp() time.Duration          { return 0 }
func (superseded) giveUp() time.Duration    { return 0 }

// All instants lie between these two, which are not instants themselves.
const never, endless = time.Duration(math.MinInt64), time.Duration(math.MaxInt64)

// NewHolder returns the machine of a lease that was just granted. It keeps t and env.
func NewHolder(t *Timing, env *Env, g Grant) *Holder {
	// The first heartbeat falls at a random time, so that locks that were taken
	// together do not send their heartbeats together for ever.
	due := g.Sent + env.between(t.Heartbeat/2, t.Heartbeat)
	all := &struct { // in one allocation
		Holder
		running
		beating
	}{}
	all.due, all.renewed = due, never
	all.Holder = Holder{t: t, env: env, work: &all.running, state: &all.beating, rec: g.Record, sent: g.Sent}
	return &all.Holder
}

// NewUnderSession returns the machine of a lock that was just granted under a session.
// The machine learns of the session's end, and of a new deadline, only when it is
// stepped.
func NewUnderSession(t *Timing, env *Env, g Grant, session *SessionHolder) *Holder {
	h := NewHolder(t, env, g)
	h.under = session
	session.enter(h, g.by)
	return h
}

// Deadline returns the instant after which the holder must not act. It never
// moves backwards, and is fixed once the lease has expired.
func (h *Holder) Deadline() time.Duration {
	if h.under != nil {
		return h.under.Deadline()
	}
	return h.sent + h.t.Usable()
}

// Sent returns when the last confirmed heartbeat was sent.
func (h *Holder) Sent() time.Duration {
	if h.under != nil {
		return h.under.Sent()
	}
	return h.sent
}

// Record returns the record as last confirmed.
func (h *Holder) Record() driver.Record { return h.rec }

// Cause returns why the right to act ended, None while it has not. The first
// cause stays.
func (h *Holder) Cause() Cause { return h.work.ended().cause }

// Expired says that the deadline passed before the work was done. It is final,
// whatever ended the right to act first.
func (h *Holder) Expired() bool { return h.work.ended().expired }

// By returns the record that superseded this lease, and false without one. If the store
// was replaced, there is no such record, even if Freed returns Gone or the cause is
// Superseded.
func (h *Holder) By() (driver.Record, bool) {
	s, gone := h.state.(superseded)
	switch {
	case gone && s.by != nil:
		return *s.by, true
	case !h.Over() && h.under != nil && h.under.Freed() == Gone:
		return h.under.By()
	}
	return driver.Record{}, false
}

// Asked returns the request that was found in the record, or the one given to HandOver;
// nil if there was none.
func (h *Holder) Asked() *driver.Request {
	if h.reason == nil || h.reason.Kind == driver.Fail {
		return nil
	}
	return h.reason
}

// Quiet says that the heartbeats have stopped although the work had not
// returned: the record expires by itself.
func (h *Holder) Quiet() bool {
	switch w := h.work.(type) {
	case *overdue:
		return true
	case returned:
		return w.quiet
	case unused:
		return w.quiet
	}
	return false
}

// done says that the work has returned.
func (h *Holder) done() bool {
	switch h.work.(type) {
	case returned, unused:
		return true
	}
	return false
}

// Over says that the holder sends nothing more.
func (h *Holder) Over() bool { return h.Freed() != NotFreed }

// Freed says how the record was left, once the holder is over.
func (h *Holder) Freed() Freed {
	switch s := h.state.(type) {
	case over:
		return s.how
	case superseded:
		return Gone
	}
	return NotFreed
}

// Err returns the last error of the store, nil after a success.
func (h *Holder) Err() error { return h.lastErr }

// DataMissing returns the serial number of the newest data, and reports whether the
// store may lack them.
func (h *Holder) DataMissing() (serial uint64, missing bool) { return h.data, h.data > h.dataKept }

// DataKept returns the serial number of the newest data that the store is
// known to have; see SetData.
func (h *Holder) DataKept() uint64 { return h.dataKept }

// DataRisked reports whether a write with this data, or newer data, is under way or has
// an unknown outcome.
func (h *Holder) DataRisked(serial uint64) bool {
	return h.out != nil && h.out.data >= serial || h.unknown.carry(serial)
}

// Withdraw takes back data that no write has carried yet, so that heartbeats during the
// draining do not carry them. It returns false if a write has carried them, or still
// may.
func (h *Holder) Withdraw(serial uint64) bool {
	if h.DataRisked(serial) || h.done() && !h.Over() {
		return false
	}
	if !h.DataRisked(h.dataKept + 1) {
		h.data, h.want = h.dataKept, nil
	}
	return h.Over() || h.data < serial
}

// Next returns the instant at which Step has something to do, and false if it
// has nothing to do until another event.
func (h *Holder) Next() (time.Duration, bool) {
	if h.Over() {
		return 0, false
	}
	_, due := h.plan()
	if at := min(due, h.nextChange()); at != endless {
		return at, true
	}
	return 0, false
}

// nextChange returns when the passing of time alone changes the holder.
func (h *Holder) nextChange() time.Duration {
	at := endless
	// The session steps its locks when its deadline passes, so that they need no timers.
	if h.under == nil && !h.Expired() && !h.done() {
		at = h.Deadline()
	}
	switch w := h.work.(type) {
	case *running:
		if w.begun && h.t.Progress > 0 {
			at = min(at, w.progress+h.t.Progress)
		}
	case *draining:
		if !h.quietedBySession(w.quietAt) {
			at = min(at, w.quietAt)
		}
	}
	if s, is := h.state.(*silent); is && h.under != nil {
		at = min(at, s.until)
	}
	return at
}

// quietedBySession says that the session of the lock has ended too, and that its
// heartbeats stop at quietAt, when this lock's work becomes overdue, or earlier.
func (h *Holder) quietedBySession(quietAt time.Duration) bool {
	if h.under == nil || h.under.Cause() == None {
		return false
	}
	s, drains := h.under.work.(*draining)
	return !drains || s.quietAt <= quietAt
}

// Step lets time pass.
func (h *Holder) Step(now time.Duration) Action {
	var a Action
	h.pass(now, &a)
	a.Call = h.call(now)
	return a
}

// Progress notes a sign of progress of the work. It cannot revive a lease that
// has ended.
func (h *Holder) Progress(now time.Duration) {
	if w, runs := h.work.(*running); runs {
		w.progress = max(w.progress, now)
	}
}

// SetData stores data in the record with the next write, which is due at once. It
// returns the data's serial number: when DataKept has reached it, the store has
// these data, or newer ones.
func (h *Holder) SetData(now time.Duration, data []byte) (uint64, Action) {
	var a Action
	h.pass(now, &a)
	h.data++
	h.want = data
	a.Call = h.call(now)
	return h.data, a
}

// Renew makes a heartbeat due at once. The renewal is done when Sent has reached now.
func (h *Holder) Renew(now time.Duration) Action {
	var a Action
	h.pass(now, &a)
	if s, beats := h.state.(*beating); beats {
		s.renewed = now
	}
	a.Call = h.call(now)
	return a
}

// Stop ends the right to act from outside. Heartbeats go on while the work
// drains, for the stop timeout at most. Stopping again changes nothing.
func (h *Holder) Stop(now time.Duration) Action {
	var a Action
	h.pass(now, &a)
	h.end(now, Stopped, &a)
	a.Call = h.call(now)
	return a
}

// HandOver ends the right to act as a request in the record would. When the work has
// returned, the lock is reserved for q.To, else for q.ToLabel, and free if both are empty.
// The request's ID and kind are filled in. If the right to act has already ended, the first
// cause stays; but until the work is done, a request for nobody still cancels the reservations
// of all others, earlier or later.
func (h *Holder) HandOver(now time.Duration, q driver.Request) Action {
	var a Action
	h.pass(now, &a)
	nobody := q.To == "" && q.ToLabel == ""
	switch cancels := nobody && !h.done(); {
	case h.Cause() != None && !cancels:
	case h.Cause() != None && h.Asked() == nil:
		h.cancelled = true
	default:
		if q.ID, q.Kind = h.env.Fresh(), driver.HandOver; nobody {
			q.Kind = driver.StepDown
		}
		h.reason = &q
		h.end(now, Asked, &a)
	}
	a.Call = h.call(now)
	return a
}

// Expire ends the lease as expired, because the engine saw the deadline pass and has
// reported it to its user. (A machine that is stepped late finds an expiry by itself.)
func (h *Holder) Expire(now time.Duration) Action {
	var a Action
	h.pass(now, &a)
	h.expire(now, &a)
	a.Call = h.call(now)
	return a
}

// Replace ends the lease as superseded, at once and for good: the store was replaced,
// so other processes do not read the records in this one any more. The machine sends
// nothing more. err says how the store knows.
func (h *Holder) Replace(now time.Duration, err error) Action {
	var a Action
	if h.Over() {
		return a
	}
	h.lastErr = err
	h.end(now, Superseded, &a)
	if h.done() {
		h.finish(over{Uncertain}, &a) // the work had returned in time
	} else {
		h.finish(superseded{}, &a)
	}
	return a
}

// Done says that the work has returned: the record is released at once, or as
// soon as the call under way is answered.
func (h *Holder) Done(now time.Duration) Action {
	_, a := h.Leave(now, nil, nil)
	return a
}

// Leave is Done with two additions. The same write stores data, unless that is nil.
// Failed, unless nil, is the reason for the end of the term if nothing else has
// ended it; its ID and kind are filled in. Leave returns false, and has no effect,
// if the work had returned before.
func (h *Holder) Leave(now time.Duration, data []byte, failed *driver.Request) (first bool, a Action) {
	h.pass(now, &a)
	if first = !h.done(); first {
		h.work = returned{h.beginRelease(now, &a), h.Quiet()}
		if data != nil {
			h.data++
			h.want = data
		}
		if failed != nil {
			q := *failed
			if q.ID, q.Kind = h.env.Fresh(), driver.Fail; h.reason == nil {
				h.reason = &q
			}
		}
	}
	a.Call = h.call(now)
	return first, a
}

// GiveUp releases a lease without work, because no caller waits for it any more.
func (h *Holder) GiveUp(now time.Duration) Action {
	var a Action
	if w, back := h.work.(returned); back {
		h.work = unused(w)
	}
	h.pass(now, &a)
	if !h.done() {
		h.work = unused{h.beginRelease(now, &a), h.Quiet()}
	}
	a.Call = h.call(now)
	return a
}

// beginRelease begins the release of the record, because the work has returned. It ends
// the right to act, if that has not ended before, and returns the cause.
func (h *Holder) beginRelease(now time.Duration, a *Action) ending {
	why := h.work.ended()
	if why.cause == None {
		why.cause = Stopped
		a.note(NoteEnded)
	}
	if h.under != nil {
		h.under.returned(a)
	}
	if !h.Over() {
		h.state = releasing{until: now + h.t.Lease}
	}
	h.retry, h.failures = now, 0
	return why
}

// pass applies what the passing of time alone decides.
func (h *Holder) pass(now time.Duration, a *Action) {
	if h.Over() || h.under != nil && h.follow(now, a) {
		return
	}
	h.takeSessionRequests(now, a)
	if now >= h.Deadline() {
		h.expire(now, a)
	}
	h.takeRequest(now, a)
	if w, runs := h.work.(*running); runs {
		switch {
		case !w.begun:
			// Progress counts from here, not from Sent: a grant whose reply was lost
			// can come late, and the work begins only after it.
			w.begun, w.progress = true, now
		case h.t.Progress > 0 && now >= w.progress+h.t.Progress:
			h.end(now, Stalled, a)
		}
	}
	if h.done() {
		h.passReturned(now, a)
	} else {
		h.passOverdue(now, a)
	}
}

// passOverdue stops the heartbeats of work that has not returned in time.
//
// An ordinary record then expires: contenders take the lock when they have seen its beat
// unchanged for the lease. But a session keeps the records of its locks alive. So the
// holder of such a lock waits for the lease itself, and then releases the lock: the lock
// lapses. That is never earlier than a takeover: contenders would count from the last
// heartbeat, and the holder counts from the later instant at which heartbeats stop. By
// then, work that calls Check has stopped: Check fails once the right to act has ended.
// Neither wait protects against work that does not call Check. (If only the holder's clock
// steps ahead, this wait is shorter than a contender's; nothing else depends on it.)
// The release replaces the version that the holder wrote last. So it cannot overwrite
// another holder's record, and no late write of this holder can be applied.
func (h *Holder) passOverdue(now time.Duration, a *Action) {
	if s, is := h.state.(*silent); is && now >= s.until {
		s.saidWhy = true // too late to matter
	}
	if w, drains := h.work.(*draining); drains && now >= w.quietAt {
		h.work = &overdue{w.ending}
		h.state, h.retry = &silent{until: w.quietAt + h.t.Lease}, now
		a.note(NoteQuiet)
	}
	if s, is := h.state.(*silent); is && h.under != nil && now >= s.until {
		h.state, h.retry, h.failures = releasing{until: endless}, now, 0
	}
}

// passReturned leaves the release of returned work to the session where possible, and
// gives it up when its time is over.
func (h *Holder) passReturned(now time.Duration, a *Action) {
	if h.out != nil {
		return
	}
	leaves := h.freedByClosing()
	switch s := h.state.(type) {
	case withSession:
		if !leaves { // the session closes too late, or its record would show another end
			h.state, h.retry = releasing{until: now + h.t.Lease}, now
		}
	case releasing:
		switch {
		case leaves:
			h.state = withSession(s)
		case now < s.until:
		case h.unknown.released():
			h.finish(over{Uncertain}, a)
		default:
			h.finish(over{Kept}, a)
		}
	}
}

// expire ends the right to act because the deadline has passed, unless it has ended.
func (h *Holder) expire(now time.Duration, a *Action) {
	if !h.Over() {
		h.end(now, Expired, a)
		h.noteExpired()
	}
}

// noteExpired notes that the deadline has passed while the work drains.
func (h *Holder) noteExpired() {
	switch w := h.work.(type) {
	case *draining:
		w.expired = true
	case *overdue:
		w.expired = true
	}
}

// end ends the right to act, unless it has ended.
func (h *Holder) end(now time.Duration, c Cause, a *Action) {
	if _, runs := h.work.(*running); !runs {
		return
	}
	quietAt := now + h.t.StopTimeout
	if c == Stalled {
		quietAt = now // heartbeats must not go on for work that is stuck
	}
	h.work = &draining{ending{cause: c}, quietAt}
	a.note(NoteEnded)
}

// takeRequest ends the right to act if the record carries a request. If the right has ended
// already, the request counts for the release alone.
func (h *Holder) takeRequest(now time.Duration, a *Action) {
	// Requests in a session's record are for the locks under it.
	if len(h.rec.Requests) > 0 && h.rec.State != driver.Alive {
		h.stopFor(now, h.rec.Requests[0], a)
	}
}

// takeSessionRequests does the same for requests in the session's record. A request for another
// term of the lock changes nothing.
func (h *Holder) takeSessionRequests(now time.Duration, a *Action) {
	if h.under == nil {
		return
	}
	for _, q := range h.under.lockRequests[h] {
		if q.Token == 0 || q.Token == h.rec.Token {
			h.stopFor(now, q, a)
		}
	}
	delete(h.under.lockRequests, h)
}

// stopFor ends the right to act for the first request. A request of a kind that no
// holder honours, perhaps of a later version of Tenure, stays in the record.
func (h *Holder) stopFor(now time.Duration, q driver.Request, a *Action) {
	if h.Asked() != nil || !honoured(q.Kind) || h.cancelled && q.Kind == driver.HandOver {
		return
	}
	h.reason = &q
	h.end(now, Asked, a)
}

// follow ends a lock with its session, and reports whether it is over.
func (h *Holder) follow(now time.Duration, a *Action) bool {
	s := h.under
	if c := s.Cause(); c != None {
		h.end(now, c, a)
	}
	if s.Expired() {
		h.noteExpired()
	}
	if w, drains := h.work.(*draining); drains && s.Quiet() {
		h.work, h.state = &overdue{w.ending}, withSession{}
		a.note(NoteQuiet)
	}
	switch {
	case !s.Holder.Over():
		return false
	case h.out != nil:
		return false // the answer to the call under way decides what the record says
	case h.done() && h.mustWriteEnd() && now < h.state.giveUp():
		return false // only this holder can write it; its swap overwrites no successor
	}
	h.finish(s.state, a)
	return true
}

// finish ends the machine in one of the last states.
func (h *Holder) finish(s recordState, a *Action) {
	h.state = s
	if h.under != nil {
		h.under.leave(h)
	}
	a.note(NoteOver)
}

// plan returns the next write and when it is due, or 0 and endless.
func (h *Holder) plan() (Kind, time.Duration) {
	if h.out != nil {
		return 0, endless
	}
	switch s := h.state.(type) {
	case *beating:
		switch {
		case s.renewed != never, h.data > h.dataKept: // a caller waits for it
			return Heartbeat, h.retry
		case h.beats():
			return Heartbeat, max(s.due, h.retry)
		}
	case *silent:
		if !s.saidWhy {
			return Abdicate, h.retry
		}
	case releasing:
		if !h.done() || !h.freedByClosing() {
			return Release, h.retry
		}
	case withSession:
		if h.done() && !h.freedByClosing() {
			return Release, h.retry
		}
	}
	return 0, endless
}

// beats says whether this machine sends heartbeats of its own accord.
func (h *Holder) beats() bool { return !h.t.Manual && h.under == nil }

// call returns what to send now, nil for nothing.
func (h *Holder) call(now time.Duration) *Call {
	kind, due := h.plan()
	if now < due {
		return nil
	}
	h.out = h.write(kind, now)
	return h.out
}

// write returns a call that is sent now. Every write, a release too, has a new version,
// so that a heartbeat still in flight cannot revive the record.
func (h *Holder) write(kind Kind, now time.Duration) *Call {
	next := h.rec
	switch {
	case kind == Release:
		next = leftFor(h.rec, h.env.Fresh(), h.why(), h.reason, h.t.Reservation())
	case kind == Abdicate:
		next.Version, next.End = h.env.Fresh(), h.why()
	case h.under != nil:
		next.Version = h.env.Fresh()
	default:
		id, _, _ := strings.Cut(h.rec.Beat, "-")
		next.Version = h.env.beatOf(id)
		next.Beat, next.Lease, next.Heartbeat, next.Drift = next.Version, h.t.Lease, h.t.Heartbeat, h.t.Drift
		if h.t.Manual {
			next.Heartbeat = 0
		}
	}
	c := &Call{Kind: kind, Key: next.Key, Prev: h.rec, Next: next, sent: now, data: h.dataKept}
	c.Prev.Life = "" // a holder goes on where its record survived
	if h.data > h.dataKept && kind != Abdicate {
		c.Next.Data, c.data = h.want, h.data
	}
	return c
}

// Reply takes the result of the call under way.
func (h *Holder) Reply(now time.Duration, r Result) Action {
	var a Action
	h.pass(now, &a)
	next := h.out.Next
	out := attempt{kind: h.out.Kind, version: next.Version, token: next.Token, sent: h.out.sent, data: h.out.data}
	h.out = nil
	if h.Over() {
		return a
	}
	switch {
	case h.inAnotherLife(out, r):
		h.supersede(now, r, &a)
	case r.Outcome == Applied:
		h.confirm(now, out, r.Record, &a)
	case r.Outcome == Conflicted:
		h.conflict(now, out, r, &a)
	case r.Outcome == NotApplied:
		h.fail(now, r.Err, &a)
	case r.Outcome == Unknown:
		h.unknown = h.unknown.add(out)
		h.fail(now, r.Err, &a)
	}
	if h.under != nil && !h.Over() {
		h.follow(now, &a) // the call under way delayed this, and nothing else will step h
	}
	a.Call = h.call(now)
	return a
}

// confirm handles a write that was applied.
func (h *Holder) confirm(now time.Duration, w attempt, rec driver.Record, a *Action) {
	h.rec, h.unknown = rec, h.unknown[:0]
	h.failures, h.retry, h.lastErr, h.adopted = 0, now, nil, 0
	h.dataKept = max(h.dataKept, w.data)
	switch w.kind {
	case Release:
		h.finish(over{Released}, a)
		return
	case Abdicate: // the beat has not changed: nothing is renewed
		if s, is := h.state.(*silent); is {
			s.saidWhy = true
		}
		return
	}
	h.takeRequest(now, a)
	if !h.Expired() { // expired is final
		h.sent = max(h.sent, w.sent)
	}
	if s, beats := h.state.(*beating); beats {
		if s.due = w.sent + h.t.Heartbeat; w.sent >= s.renewed {
			s.renewed = never
		}
	}
	a.note(NoteRenewed)
	if h.alarm == never {
		h.alarm = 0
		a.note(NoteSafe)
	}
}

// conflict handles the record that a write conflicted with.
func (h *Holder) conflict(now time.Duration, w attempt, r Result, a *Action) {
	own, ours := h.unknown.wrote(r.Record, w)
	switch {
	case r.Found && ours:
		h.confirm(now, own, r.Record, a) // it had been applied, and its answer was lost
	case r.Found && h.sameTerm(r.Record):
		h.adopt(now, r.Record, a)
	case h.unknown.released():
		// Either our release was applied and another holder followed, or the lease had
		// expired. We cannot tell which, nor whether the release's data were stored. In
		// either case the work is done, or overdue.
		h.lastErr = nil
		h.finish(over{Released}, a)
	default:
		h.supersede(now, r, a)
	}
}

// sameTerm says whether rec shows this holder's term, with the beat that was confirmed
// last. Then another process has only written a request into the record. Only the beat
// proves that, because owners may share a name, and tokens restart when a record was
// deleted. On an engine that may lose writes (see [driver.Guarded]), an earlier beat of the same
// lease proves it too: tokens do not repeat, so no other holder followed.
func (h *Holder) sameTerm(rec driver.Record) bool {
	id, _, _ := strings.Cut(h.rec.Beat, "-")
	beat := rec.Beat == h.rec.Beat && rec.Beat != "" || rec.Life != "" && IsBeatOf(rec.Beat, id)
	return rec.State == h.rec.State && rec.Token == h.rec.Token && beat
}

// adopt goes on from a record of this term that another process has written. That
// write is no sign of life of this holder: the lease still counts from the last
// confirmed write, not from now. All earlier attempts name another version, so none of
// them can be applied any more.
func (h *Holder) adopt(now time.Duration, rec driver.Record, a *Action) {
	if rec.Life != "" && h.data == h.dataKept && !bytes.Equal(rec.Data, h.rec.Data) {
		h.data++ // the engine has lost the data with the writes that carried them
		h.want = h.rec.Data
	}
	h.rec, h.unknown = rec, h.unknown[:0]
	h.retry = now
	if n := h.adopted; n > 0 { // one conflict is a request; several in a row are a process that writes repeatedly
		if rec.State == driver.Alive {
			// Or many processes ask for locks of one session. Those processes back off more and
			// more; the heartbeat must get through.
			n = min(n, maxYield)
		}
		h.retry += h.t.backoff(*h.env, n)
	}
	h.adopted++
	h.takeRequest(now, a)
}

// maxYield bounds how far a session's holder backs off from other writers of its
// record: to a 250th of the lease.
const maxYield = 2

// fail handles a write that was not applied, or whose outcome is unknown. A busy store
// may refuse a write now and then; that is a danger only when it lasts.
func (h *Holder) fail(now time.Duration, err error, a *Action) {
	if h.failures == 0 && h.alarm != never {
		h.alarm = now + h.t.RequestTimeout
	}
	h.retry = now + h.t.retryBeat(*h.env, h.failures, err, h.timeLeft(now))
	h.failures++
	h.lastErr = err
	_, beats := h.state.(*beating)
	if beats && h.alarm != never && (len(h.unknown) > 0 || now >= h.alarm) {
		h.alarm = never
		a.note(NoteJeopardy)
	}
}

// timeLeft returns how much time is left for the next write: until the deadline, or a whole
// lease once the deadline has passed; for a release, until it is given up.
func (h *Holder) timeLeft(now time.Duration) time.Duration {
	switch {
	case h.done():
		return max(0, h.state.giveUp()-now)
	case h.Expired():
		return h.t.Lease
	}
	return max(0, h.Deadline()-now)
}
