// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Holder is the machine of who holds a lease.
//
// It heartbeats by swapping the record from the last confirmed version; it
// counts the lease from the instant at which the confirmed write was sent; it
// ends at the deadline, whatever the network does; expired is final. When the
// right to act has ended it goes on renewing, so that nobody starts beside
// work that is still stopping, until the work is done or the stop timeout has
// passed. When the work is done it releases.
type Holder struct {
	t   Timing
	env Env
	// under is the session that keeps the lock alive, nil for a lock that is its
	// own lease, and for a session.
	under *Holder

	rec   driver.Record // as last confirmed
	id    string        // what all of its beats begin with
	sent  time.Duration // when the write that rec shows was sent
	lease time.Duration // from sent to the deadline

	unknown  attempts      // all of them from rec's version
	out      *attempt      // the request under way
	failures int           // in a row
	failing  time.Duration // since when
	retry    time.Duration // no request before this instant
	beat     time.Duration // when the next heartbeat is due
	jeopardy bool
	lastErr  error

	data, dataKept uint64 // serial numbers: wanted, and confirmed
	dataRisked     uint64 // of the newest data that a write of unknown outcome carries
	want           []byte
	adopted        int           // conflicts in a row with records of our own term
	renewed        time.Duration // a heartbeat sent at or after this was asked for
	renewing       bool

	begun    bool          // the machine was stepped: the work can begin
	progress time.Duration // of the last sign of progress
	cause    Cause
	expired  bool          // the deadline passed before the work was done: final
	by       driver.Record // what superseded us, zero if the record was gone
	quietAt  time.Duration // when heartbeats stop, once the right to act has ended
	quiet    bool
	said     bool            // and the record says why
	followed bool            // quiet because the session is, whose record says why
	lapsed   bool            // quiet for a lease, while a session keeps the record alive: to be released
	waits    bool            // done, and left to the closing of the session
	replaced bool            // others find another store under this one's name
	failed   *driver.Request // why the holder itself calls its tenure a failure
	asked    *driver.Request // the first that was found in the record, or its own
	unkept   bool            // it is not kept for anybody who asks for it from now on
	answered []string        // of a session's requests: their ids
	unwanted bool            // nothing is done under it
	done     bool            // the work has returned
	freeBy   time.Duration   // when to give up releasing
	over     bool
	freed    Freed
}

// NewHolder returns the machine of a lease that was just granted.
func NewHolder(t Timing, env Env, g Grant) *Holder {
	h := &Holder{t: t, env: env, rec: g.Record, id: g.ID, sent: g.Sent, lease: t.Usable(), want: g.Record.Data}
	// The first heartbeat falls at a random time, so that locks which were
	// taken together do not beat together for ever.
	h.beat = g.Sent + env.between(t.Heartbeat/2, t.Heartbeat)
	return h
}

// Deadline returns the instant after which the holder must not act. It never
// moves backwards, and not at all once the lease has expired.
func (h *Holder) Deadline() time.Duration {
	if h.under != nil && !Making(DeadlineOfItsOwn) {
		return h.under.Deadline()
	}
	return h.sent + h.lease
}

// Sent returns when the last confirmed sign of life was sent.
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
func (h *Holder) Cause() Cause { return h.cause }

// Expired says that the deadline passed before the work was done. It is final,
// whatever ended the right to act first.
func (h *Holder) Expired() bool { return h.expired }

// By returns the record that superseded this lease, and false if there was
// none.
func (h *Holder) By() (driver.Record, bool) { return h.by, h.by.Key != "" }

// Asked returns the request that was found in the record, or that of HandOver;
// nil if there was none.
func (h *Holder) Asked() *driver.Request { return h.asked }

// Quiet says that the heartbeats have stopped although the work had not
// returned: the record runs out by itself.
func (h *Holder) Quiet() bool { return h.quiet }

// Over says that nothing will be sent any more, and how the record was left.
func (h *Holder) Over() (Freed, bool) { return h.freed, h.over }

// Err returns the last error of the store, nil after a success.
func (h *Holder) Err() error { return h.lastErr }

// DataMissing reports whether there are data that the store is not known to have,
// and the serial number of the newest.
func (h *Holder) DataMissing() (serial uint64, missing bool) { return h.data, h.data > h.dataKept }

// DataRisked reports whether a write that carries this data, or newer data, is under
// way or of unknown outcome.
func (h *Holder) DataRisked(serial uint64) bool {
	return h.dataRisked >= serial || h.out != nil && h.out.data >= serial
}

// Withdraw takes back data that no write has carried, so that none will: heartbeats
// go on while the work drains. It returns false if one has, or may yet.
func (h *Holder) Withdraw(serial uint64) bool {
	switch {
	case h.DataRisked(serial), h.done && !h.over:
		return false
	case h.data > h.dataKept && h.dataRisked <= h.dataKept && (h.out == nil || h.out.data <= h.dataKept):
		h.data, h.want = h.dataKept, h.rec.Data
	}
	return h.over || h.data < serial
}

// DataKept returns the serial number of the newest data that the store is
// known to have; see SetData.
func (h *Holder) DataKept() uint64 { return h.dataKept }

// Next returns the instant at which Step has something to do, and false if it
// has nothing to do until another event.
func (h *Holder) Next() (time.Duration, bool) {
	if h.over {
		return 0, false
	}
	at, any := time.Duration(0), false
	sooner := func(t time.Duration) {
		if !any || t < at {
			at, any = t, true
		}
	}
	if !h.expired && !h.done && h.watches() {
		sooner(h.Deadline())
	}
	if h.cause == None && h.t.Progress > 0 && h.begun {
		sooner(h.progress + h.t.Progress)
	}
	if h.cause != None && !h.quiet && !h.done && !h.draws() {
		sooner(h.quietAt)
	}
	if h.lapses() {
		sooner(h.quietAt + h.t.Lease)
	}
	if h.out == nil {
		switch {
		case h.done && h.leaves():
		case h.done, h.lapsed:
			sooner(h.retry)
		case h.quiet:
			if !h.said {
				sooner(h.retry)
			}
		case h.wanted():
			sooner(h.retry)
		case h.beats():
			sooner(max(h.beat, h.retry))
		}
	}
	return at, any
}

// Step lets time pass.
func (h *Holder) Step(now time.Duration) Action {
	var a Action
	h.pass(now, &a)
	a.Request = h.request(now)
	return a
}

// Stop ends the right to act from outside. Heartbeats go on while the work
// drains, for the stop timeout at most. Stopping again changes nothing.
func (h *Holder) Stop(now time.Duration) Action {
	var a Action
	h.pass(now, &a)
	h.end(now, Stopped, &a)
	a.Request = h.request(now)
	return a
}

// Done says that the work has returned: the record is released at once, or as
// soon as the request under way is answered.
func (h *Holder) Done(now time.Duration) Action {
	_, a := h.Leave(now, nil, nil)
	return a
}

// Leave is as Done. Data, unless nil, is laid down by the same write. Failed, unless
// nil, is what the tenure ends by if nothing else has ended it: its ID and kind are
// filled in. It returns false if the work had returned before: then nothing of this
// counts.
func (h *Holder) Leave(now time.Duration, data []byte, failed *driver.Request) (first bool, a Action) {
	h.pass(now, &a)
	h.end(now, Stopped, &a)
	if first = !h.done; first {
		h.done, h.freeBy = true, now+h.t.Lease
		h.retry, h.failures = now, 0
		if data != nil {
			h.data++
			h.want = data
		}
		if failed != nil {
			q := *failed
			q.ID, q.Kind = h.env.Fresh(), driver.Fail
			h.failed = &q
		}
	}
	a.Request = h.request(now)
	return first, a
}

// Abandon says that nobody waits for the lease any more: nothing is done under
// it. Done follows.
func (h *Holder) Abandon() { h.unwanted = true }

// Progress notes a sign of progress of the work. It cannot revive a lease that
// has ended.
func (h *Holder) Progress(now time.Duration) {
	if h.cause == None {
		h.progress = max(h.progress, now)
	}
}

// SetData lays data down in the record with the next write, which is due at
// once. It returns the data's serial number: the store has it, or newer data,
// when DataKept has reached that.
func (h *Holder) SetData(now time.Duration, data []byte) (uint64, Action) {
	var a Action
	h.pass(now, &a)
	h.data++
	h.want = data
	a.Request = h.request(now)
	return h.data, a
}

// Renew asks for a heartbeat at once. It is answered when Sent has reached
// now.
func (h *Holder) Renew(now time.Duration) Action {
	var a Action
	h.pass(now, &a)
	h.renewing, h.renewed = true, now
	a.Request = h.request(now)
	return a
}

// Expire ends the lease as expired: the shell saw the deadline pass. What the
// machine finds by itself when it is stepped late needs no such call; it makes
// final what somebody was already told.
func (h *Holder) Expire(now time.Duration) Action {
	var a Action
	h.pass(now, &a)
	h.expire(now, &a)
	a.Request = h.request(now)
	return a
}

// Replace ends the lease as superseded at once, and for good: others find another
// store under this one's name, and what stands in this one keeps nobody away.
// Nothing is sent any more. Err says how the store knows.
func (h *Holder) Replace(now time.Duration, err error) Action {
	var a Action
	if h.over {
		return a
	}
	h.replaced, h.lastErr = true, err
	h.end(now, Superseded, &a)
	if h.done {
		h.finish(Uncertain, &a) // the work had returned in time
	} else {
		h.finish(Gone, &a)
	}
	return a
}

// Replaced says that the lease ended by Replace.
func (h *Holder) Replaced() bool { return h.replaced }

// Reply takes the result of the request under way.
func (h *Holder) Reply(now time.Duration, r Result) Action {
	var a Action
	h.pass(now, &a)
	out := *h.out
	h.out = nil
	if h.over {
		return a
	}
	switch r.Outcome {
	case Applied:
		if Making(LeaseFromReply) {
			out.sent = now
		}
		h.confirm(now, out, r.Record, &a)
	case Conflicted:
		if own, ok := h.unknown.add(out).wrote(r.Record); ok && r.Found {
			// It had been applied, and its answer was lost.
			h.confirm(now, own, r.Record, &a)
		} else if r.Found && h.term(r.Record) {
			h.adopt(now, r.Record, &a)
		} else {
			h.supersede(now, r, &a)
		}
	case NotApplied:
		h.fail(now, r.Err, &a)
	case Unknown:
		h.unknown = h.unknown.add(out)
		h.dataRisked = max(h.dataRisked, out.data)
		h.fail(now, r.Err, &a)
	}
	if h.under != nil && !h.over {
		h.follow(now, &a) // what was under way held that up, and nothing else will step it
	}
	a.Request = h.request(now)
	return a
}

// pass makes what the passing of time alone decides.
func (h *Holder) pass(now time.Duration, a *Action) {
	if h.over {
		return
	}
	if h.under != nil && h.follow(now, a) {
		return
	}
	if !h.begun {
		// Progress counts from here, not from Sent: a grant whose reply was lost
		// can come late, and the work has not begun before it.
		h.begun, h.progress = true, now
	}
	if now >= h.Deadline() {
		h.expire(now, a)
	}
	h.heed(now, a)
	if h.cause == None && h.t.Progress > 0 && now >= h.progress+h.t.Progress {
		h.end(now, Stalled, a)
	}
	if h.quiet && now >= h.quietAt+h.t.Lease {
		h.said = true // too late to matter
	}
	if h.cause != None && !h.quiet && !h.done && now >= h.quietAt {
		h.quiet, h.retry = true, now
		a.Notes = append(a.Notes, NoteQuiet)
	}
	if h.lapses() && now >= h.quietAt+h.t.Lease {
		h.lapsed, h.retry, h.failures = true, now, 0
	}
	switch {
	case !h.done || h.out != nil:
	case h.leaves():
		h.waits = true
	case h.waits: // the session does not close in time, or would tell it wrongly
		h.waits, h.freeBy, h.retry = false, now+h.t.Lease, now
	case now < h.freeBy:
	case h.unknown.released():
		h.finish(Uncertain, a)
	default:
		h.finish(Kept, a)
	}
}

func (h *Holder) expire(now time.Duration, a *Action) {
	if h.done || h.over {
		return
	}
	h.expired = true
	h.end(now, Expired, a)
}

func (h *Holder) end(now time.Duration, c Cause, a *Action) {
	if h.cause != None {
		return
	}
	h.cause = c
	h.quietAt = now + h.t.StopTimeout
	if c == Stalled {
		h.quietAt = now // nothing vouches for work that does not move
	}
	a.Notes = append(a.Notes, NoteEnded)
}

func (h *Holder) finish(f Freed, a *Action) {
	h.over, h.freed = true, f
	a.Notes = append(a.Notes, NoteOver)
}

func (h *Holder) supersede(now time.Duration, r Result, a *Action) {
	h.by = r.Record
	h.lastErr = nil
	if h.unknown.released() {
		// A release of ours is what let the other one in, or nobody was waited for any
		// more: done. Which it was is not known, nor whether its data are kept.
		h.finish(Released, a)
		return
	}
	h.end(now, Superseded, a)
	h.finish(Gone, a)
}

func (h *Holder) confirm(now time.Duration, w attempt, rec driver.Record, a *Action) {
	h.rec, h.unknown = rec, h.unknown[:0]
	h.dataRisked = 0
	h.forget()
	h.failures, h.retry, h.lastErr, h.adopted = 0, now, nil, 0
	switch w.kind {
	case Release:
		h.dataKept = max(h.dataKept, w.data)
		h.finish(Released, a)
		return
	case Quit:
		h.said = true // the beat stands: nothing is renewed
		return
	}
	h.dataKept = max(h.dataKept, w.data)
	h.heed(now, a)
	if !h.expired { // expired is final
		h.sent = max(h.sent, w.sent)
	}
	h.beat = w.sent + h.t.Heartbeat
	if h.renewing && w.sent >= h.renewed {
		h.renewing = false
	}
	a.Notes = append(a.Notes, NoteRenewed)
	if h.jeopardy {
		h.jeopardy = false
		a.Notes = append(a.Notes, NoteSafe)
	}
}

func (h *Holder) fail(now time.Duration, err error, a *Action) {
	if h.failures == 0 {
		h.failing = now
	}
	h.retry = now + h.t.retry(h.env, h.failures, err, h.time(now))
	h.failures++
	h.lastErr = err
	// A write that was not applied because the engine was busy for a moment is
	// ordinary; it becomes a danger when it lasts.
	lasting := len(h.unknown) > 0 || now-h.failing >= h.t.RequestTimeout
	if !h.jeopardy && !h.done && !h.quiet && lasting {
		h.jeopardy = true
		a.Notes = append(a.Notes, NoteJeopardy)
	}
}

// time returns how much there is for a write that has to be applied: until the
// deadline; once that has passed it is the work that drains, or the release.
func (h *Holder) time(now time.Duration) time.Duration {
	switch {
	case h.done:
		return max(0, h.freeBy-now)
	case h.expired:
		return h.t.Lease
	}
	return max(0, h.Deadline()-now)
}

// wanted says that somebody waits for a write, whatever the period.
func (h *Holder) wanted() bool { return h.renewing || h.data > h.dataKept }

// request returns what to send now, if anything.
func (h *Holder) request(now time.Duration) *Request {
	if h.over || h.out != nil || now < h.retry {
		return nil
	}
	kind := Heartbeat
	switch {
	case h.done && h.leaves():
		return nil
	case h.done, h.lapsed:
		kind = Release
	case h.quiet && h.said, !h.quiet && !h.wanted() && (!h.beats() || now < h.beat):
		return nil
	case h.quiet:
		kind = Quit
	}
	var next driver.Record
	// Every write has a new version, a release as well, so that a heartbeat still
	// under way somewhere cannot revive the record.
	switch {
	case kind == Release:
		next = h.left(h.env.Fresh())
	case kind == Quit:
		next = h.rec.Clone()
		next.Version, next.End = h.env.Fresh(), h.why()
	case h.under != nil:
		next = h.rec.Clone()
		next.Version = h.env.Fresh()
	default:
		next = h.rec.Clone()
		next.Version = h.beatOf()
		next.Beat, next.Lease, next.Heartbeat, next.Drift = next.Version, h.t.Lease, h.period(), h.t.Drift
		if next.State == driver.Alive {
			next.Requests = h.pending()
		}
		if Making(HeartbeatRestores) {
			next.State, next.End, next.Asked = driver.Held, "", nil
		}
	}
	if kind == Release && Making(ReleaseKeepsVersion) {
		next.Version = h.rec.Version
	}
	carried := h.dataKept
	if h.data > h.dataKept && kind != Quit {
		next.Data, carried = h.want, h.data
	}
	h.out = &attempt{kind: kind, version: next.Version, token: next.Token, sent: now, data: carried}
	return &Request{Kind: kind, Key: next.Key, Prev: h.rec, Next: next}
}

// beatOf returns a new beat.
func (h *Holder) beatOf() string {
	if h.id == "" {
		h.id = h.env.part()
	}
	return h.env.beatOf(h.id)
}

// beats says whether the record shows life by heartbeats of this machine.
func (h *Holder) beats() bool { return !h.t.Manual && h.under == nil }

func (h *Holder) period() time.Duration {
	if h.t.Manual {
		return 0
	}
	return h.t.Heartbeat
}
