// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
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
// Where it stands is told by four things, each of which only goes forward: the phase
// of the right and of the work; the cause for which the right has ended; the silence of
// a holder whose work does not return; and how the record was left, which ends the
// machine. Beside them are flags that hold in several phases, each with the condition
// under which it can. [Holder.Invariant] has all of it.
type Holder struct {
	t   Timing
	env Env
	// under is the session that keeps the lock alive, nil for a lock that is its
	// own lease, and for a session's own record. mail are the requests from the
	// session's record that the next step will handle.
	under *Keeper
	mail  []driver.Request

	// The record as of the last confirmed write: sent is when that write was sent,
	// and lease how long the holder may act from there. sent only rises, and stays
	// as it is once the lease has expired. All beats of the lease begin with id.
	rec   driver.Record
	id    string
	sent  time.Duration
	lease time.Duration

	// Writing. At most one call is out. All attempts in unknown replace rec's
	// version: once rec has another version, none of them can be applied any more.
	// beat is when the next heartbeat is due, and nothing is sent before retry.
	out      *Call
	outSent  time.Duration
	outData  uint64 // the serial number of the data that it carries
	unknown  attempts
	beat     time.Duration
	retry    time.Duration
	failures int           // in a row
	failing  time.Duration // since when
	adopted  int           // conflicts in a row with records of our own term
	jeopardy bool
	lastErr  error

	// What callers wait for: a heartbeat that was sent at or after renewed; and
	// data, by serial numbers. The store is known to have dataKept (<= data), and
	// dataRisked is the newest that a write of unknown outcome carries, 0 for none.
	renewing       bool
	renewed        time.Duration
	want           []byte
	data, dataKept uint64
	dataRisked     uint64

	// The right to act, and the work. The first cause stays. expired says that the
	// deadline passed before the work had returned. It is final, whatever else ended
	// the right first. by is the record that superseded the lease, nil if there was
	// none; replaced says that other processes find another store: see Replace. The
	// work reports progress; unwanted says that none was ever done.
	phase    phase
	cause    Cause
	expired  bool
	by       *driver.Record
	replaced bool
	progress time.Duration
	unwanted bool

	// What other processes are told. asked is the first request that was found, or
	// the holder's own; failed is why the holder itself calls its tenure a failure;
	// unkept says that later requests to hand over do not reserve the lock; answered
	// are the ids of those of a session's requests that were answered.
	asked    *driver.Request
	failed   *driver.Request
	unkept   bool
	answered []string

	// How the record is left. Once the right to act has ended, heartbeats go on
	// until quietAt while the work has not returned: see silence. When it has, the
	// holder tries to release the record until freeBy, unless its session is to free
	// it. A machine that is over sends nothing more: freed says how it left the record.
	silence silence
	quietAt time.Duration
	freeBy  time.Duration
	freed   Freed
}

// NewHolder returns the machine of a lease that was just granted.
func NewHolder(t Timing, env Env, g Grant) *Holder {
	h := &Holder{t: t, env: env, rec: g.Record, id: g.ID, sent: g.Sent, lease: t.Usable(), want: g.Record.Data}
	// The first heartbeat falls at a random time, so that locks that were taken
	// together do not send their heartbeats together for ever.
	h.beat = g.Sent + env.between(t.Heartbeat/2, t.Heartbeat)
	return h
}

// Deadline returns the instant after which the holder must not act. It never
// moves backwards, and is fixed once the lease has expired.
func (h *Holder) Deadline() time.Duration {
	if h.under != nil {
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
func (h *Holder) By() (driver.Record, bool) {
	if h.by == nil {
		return driver.Record{}, false
	}
	return *h.by, true
}

// Asked returns the request that was found in the record, or that of HandOver;
// nil if there was none.
func (h *Holder) Asked() *driver.Request { return h.asked }

// Quiet says that the heartbeats have stopped although the work had not
// returned: the record runs out by itself.
func (h *Holder) Quiet() bool { return h.silence > beating }

// Over says that the holder sends nothing more.
func (h *Holder) Over() bool { return h.freed != NotFreed }

// Freed says how the record was left, once the holder is over.
func (h *Holder) Freed() Freed { return h.freed }

// Err returns the last error of the store, nil after a success.
func (h *Holder) Err() error { return h.lastErr }

// DataMissing returns the serial number of the newest data, and reports whether the
// store may lack them.
func (h *Holder) DataMissing() (serial uint64, missing bool) { return h.data, h.data > h.dataKept }

// DataRisked reports whether a write that carries this data, or newer data, is under
// way or of unknown outcome.
func (h *Holder) DataRisked(serial uint64) bool {
	return h.dataRisked >= serial || h.out != nil && h.outData >= serial
}

// Withdraw takes back data that no write has carried yet, so that the heartbeats that
// go on while the work drains do not carry them either. It returns false if a write
// has carried them, or still may.
func (h *Holder) Withdraw(serial uint64) bool {
	switch {
	case h.DataRisked(serial), h.done() && !h.Over():
		return false
	case h.data > h.dataKept && h.dataRisked <= h.dataKept && (h.out == nil || h.outData <= h.dataKept):
		h.data, h.want = h.dataKept, h.rec.Data
	}
	return h.Over() || h.data < serial
}

// DataKept returns the serial number of the newest data that the store is
// known to have; see SetData.
func (h *Holder) DataKept() uint64 { return h.dataKept }

// Next returns the instant at which Step has something to do, and false if it
// has nothing to do until another event.
func (h *Holder) Next() (time.Duration, bool) {
	if h.Over() {
		return 0, false
	}
	at, any := time.Duration(0), false
	sooner := func(t time.Duration) {
		if !any || t < at {
			at, any = t, true
		}
	}
	if !h.expired && !h.done() && h.watches() {
		sooner(h.Deadline())
	}
	if h.phase == acting && h.t.Progress > 0 {
		sooner(h.progress + h.t.Progress)
	}
	if h.phase == stopping && !h.Quiet() && !h.draws() {
		sooner(h.quietAt)
	}
	if h.lapses() {
		sooner(h.quietAt + h.t.Lease)
	}
	if h.out == nil {
		switch {
		case h.done() && h.leaves():
		case h.done(), h.silence == lapsed, h.silence == silent:
			sooner(h.retry)
		case h.Quiet():
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

// Done says that the work has returned: the record is released at once, or as
// soon as the call under way is answered.
func (h *Holder) Done(now time.Duration) Action {
	_, a := h.Leave(now, nil, nil)
	return a
}

// Leave is Done with two additions. The same write stores data, unless that is nil.
// Failed, unless nil, is the reason for the end of the tenure if nothing else has
// ended it; its ID and kind are filled in. Leave returns false, and has no effect,
// if the work had returned before.
func (h *Holder) Leave(now time.Duration, data []byte, failed *driver.Request) (first bool, a Action) {
	h.pass(now, &a)
	h.end(now, Stopped, &a)
	if first = !h.done(); first {
		if h.under != nil {
			h.under.returned(&a)
		}
		h.phase, h.freeBy = leaving, now+h.t.Lease
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
	a.Call = h.call(now)
	return first, a
}

// GiveUp releases a lease that nobody waits for any more, and under which no work
// was done.
func (h *Holder) GiveUp(now time.Duration) Action {
	h.unwanted = true
	return h.Done(now)
}

// Progress notes a sign of progress of the work. It cannot revive a lease that
// has ended.
func (h *Holder) Progress(now time.Duration) {
	if h.phase < stopping {
		h.progress = max(h.progress, now)
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

// Renew makes a heartbeat due at once. It is done when Sent has reached now.
func (h *Holder) Renew(now time.Duration) Action {
	var a Action
	h.pass(now, &a)
	h.renewing, h.renewed = true, now
	a.Call = h.call(now)
	return a
}

// Expire ends the lease as expired, because the engine saw the deadline pass and
// has told its user so. (A machine that is stepped late finds an expiry by itself.)
func (h *Holder) Expire(now time.Duration) Action {
	var a Action
	h.pass(now, &a)
	h.expire(now, &a)
	a.Call = h.call(now)
	return a
}

// Replace ends the lease as superseded at once, and for good: other processes find
// another store under this one's name, so that a record in this one no longer keeps
// them away. The machine sends nothing more. Err says how the store knows.
func (h *Holder) Replace(now time.Duration, err error) Action {
	var a Action
	if h.Over() {
		return a
	}
	h.replaced, h.lastErr = true, err
	h.end(now, Superseded, &a)
	if h.done() {
		h.finish(Uncertain, &a) // the work had returned in time
	} else {
		h.finish(Gone, &a)
	}
	return a
}

// Replaced says that the lease ended by Replace.
func (h *Holder) Replaced() bool { return h.replaced }

// Reply takes the result of the call under way.
func (h *Holder) Reply(now time.Duration, r Result) Action {
	var a Action
	h.pass(now, &a)
	next := h.out.Next
	out := attempt{kind: h.out.Kind, version: next.Version, token: next.Token, sent: h.outSent, data: h.outData}
	h.out = nil
	if h.Over() {
		return a
	}
	switch r.Outcome {
	case Applied:
		h.confirm(now, out, r.Record, &a)
	case Conflicted:
		if own, ok := h.unknown.wrote(r.Record, out); ok && r.Found {
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
	if h.under != nil && !h.Over() {
		h.follow(now, &a) // the call under way held that up, and nothing else will step h
	}
	a.Call = h.call(now)
	return a
}

// pass does what the passing of time alone decides.
func (h *Holder) pass(now time.Duration, a *Action) {
	if h.Over() {
		return
	}
	if h.under != nil && h.follow(now, a) {
		return
	}
	h.receive(now, a)
	if h.phase == granted {
		// Progress counts from here, not from Sent: a grant whose reply was lost
		// can come late, and the work begins only after it.
		h.phase, h.progress = acting, now
	}
	if now >= h.Deadline() {
		h.expire(now, a)
	}
	h.heed(now, a)
	if h.phase == acting && h.t.Progress > 0 && now >= h.progress+h.t.Progress {
		h.end(now, Stalled, a)
	}
	if h.silence == silent && now >= h.quietAt+h.t.Lease {
		h.silence = told // too late to matter
	}
	if h.phase == stopping && !h.Quiet() && now >= h.quietAt {
		h.silence, h.retry = silent, now
		a.Notes = append(a.Notes, NoteQuiet)
	}
	if h.lapses() && now >= h.quietAt+h.t.Lease {
		h.silence, h.retry, h.failures = lapsed, now, 0
	}
	switch {
	case !h.done() || h.out != nil:
	case h.leaves():
		h.phase = awaiting
	case h.phase == awaiting: // the session does not close in time, or would tell it wrongly
		h.phase, h.freeBy, h.retry = leaving, now+h.t.Lease, now
	case now < h.freeBy:
	case h.unknown.released():
		h.finish(Uncertain, a)
	default:
		h.finish(Kept, a)
	}
}

func (h *Holder) expire(now time.Duration, a *Action) {
	if h.done() || h.Over() {
		return
	}
	h.expired = true
	h.end(now, Expired, a)
}

func (h *Holder) end(now time.Duration, c Cause, a *Action) {
	if h.cause != None {
		return
	}
	h.cause, h.phase = c, max(h.phase, stopping)
	h.quietAt = now + h.t.StopTimeout
	if c == Stalled {
		h.quietAt = now // heartbeats must not go on for work that is stuck
	}
	a.Notes = append(a.Notes, NoteEnded)
}

func (h *Holder) finish(f Freed, a *Action) {
	h.freed = f
	if h.under != nil {
		h.under.leave(h)
	}
	a.Notes = append(a.Notes, NoteOver)
}

func (h *Holder) supersede(now time.Duration, r Result, a *Action) {
	h.by = &r.Record
	h.lastErr = nil
	if h.unknown.released() {
		// Either our release was applied and let the next holder in, or the lease had
		// run out. We cannot tell which, nor whether the release's data were kept. The
		// work is done in either case.
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
		h.silence = max(h.silence, told) // the beat has not changed: nothing is renewed
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
	// It is ordinary that a busy engine refuses a write now and then. It becomes a
	// danger when that lasts.
	lasting := len(h.unknown) > 0 || now-h.failing >= h.t.RequestTimeout
	if !h.jeopardy && !h.done() && !h.Quiet() && lasting {
		h.jeopardy = true
		a.Notes = append(a.Notes, NoteJeopardy)
	}
}

// time returns how much time is left for a write that has to be applied: until the
// deadline, or a whole lease once that has passed; and for a release, until freeBy.
func (h *Holder) time(now time.Duration) time.Duration {
	switch {
	case h.done():
		return max(0, h.freeBy-now)
	case h.expired:
		return h.t.Lease
	}
	return max(0, h.Deadline()-now)
}

// wanted says that a caller waits for a write, which then does not wait for the period.
func (h *Holder) wanted() bool { return h.renewing || h.data > h.dataKept }

// call returns what to send now, nil for nothing.
func (h *Holder) call(now time.Duration) *Call {
	if h.Over() || h.out != nil || now < h.retry {
		return nil
	}
	kind := Heartbeat
	switch {
	case h.done() && h.leaves():
		return nil
	case h.done(), h.silence == lapsed:
		kind = Release
	case h.silence > silent, h.silence == beating && !h.wanted() && (!h.beats() || now < h.beat):
		return nil
	case h.silence == silent:
		kind = Quit
	}
	next := h.rec
	// Every write has a new version, and so has a release: a heartbeat that is still
	// under way somewhere cannot revive the record then.
	switch {
	case kind == Release:
		next = h.left(h.env.Fresh())
	case kind == Quit:
		next.Version, next.End = h.env.Fresh(), h.why()
	case h.under != nil:
		next.Version = h.env.Fresh()
	default:
		next.Version = h.beatOf()
		next.Beat, next.Lease, next.Heartbeat, next.Drift = next.Version, h.t.Lease, h.period(), h.t.Drift
		if next.State == driver.Alive {
			next.Requests = h.pending()
		}
	}
	h.outSent, h.outData = now, h.dataKept
	if h.data > h.dataKept && kind != Quit {
		next.Data, h.outData = h.want, h.data
	}
	h.out = &Call{Kind: kind, Key: next.Key, Prev: h.rec, Next: next}
	return h.out
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
