// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Death is what a process knows of a holder that has certainly ended, with all that it
// had started: somebody has seen it, such as the parent of all of these processes.
type Death struct {
	// Key is that of the lock, or of the record of a session.
	Key string
	// ID is that of the lease (see [Grant]), or of the session.
	ID string
	// From is when the record may be written. By then the last requests of the dead to
	// the resource have ended too. A lease that runs out leaves them the grace; so does
	// a death. Looks may come earlier.
	From time.Duration
	// Until is when the machine gives up. What it has not freed runs out by itself.
	Until time.Duration
}

// ErrNotProved is what an [Undertaker] ends with when its time is up before the store
// has told it enough.
var ErrNotProved = errors.New("not settled in time: the lock runs out by itself")

// Undertaker is the machine that frees what a holder has left that has certainly ended.
// Others need not wait for its lease then.
//
// It knows the holder's record by its beat alone: all beats of a lease begin with its
// ID, and no others do. Owner and token are no proof: owners may share a name, and tokens
// begin again when a record was deleted. A version is none either: a request changes it.
// The beat of an older process has no ID; it proves nothing. So does any other state than
// that of a holder: what is released or reserved is not the dead one's any more.
//
// The write replaces the version that a look has shown, and has a version of its own. So
// no late heartbeat of the dead can revive the record. If such a heartbeat, or a request,
// comes first, the machine looks again. It also looks again for a while where nobody holds
// the lock: a late claim of the dead may be on its way.
type Undertaker struct {
	quest
	t   Timing
	env Env
	of  Death

	seen   driver.Record // of the dead holder, if known
	known  bool
	raced  int // conflicts in a row
	writes attempts
	last   error // of the store
}

// NewUndertaker returns the machine for one death.
func NewUndertaker(t Timing, env Env, of Death) *Undertaker {
	return &Undertaker{t: t, env: env, of: of}
}

// IsBeatOf says whether a beat is one of the lease, or of the session, with an id.
func IsBeatOf(beat, id string) bool {
	term, _, found := strings.Cut(beat, "-")
	return found && term == id && id != ""
}

// Next returns the instant at which Step has something to do.
func (u *Undertaker) Next() (time.Duration, bool) {
	if u.out != nil || u.answer != NoAnswer {
		return 0, false
	}
	_, at := u.plan()
	return min(at, u.of.Until), true
}

// Step lets time pass.
func (u *Undertaker) Step(now time.Duration) Action { return Action{Call: u.act(now)} }

func (u *Undertaker) plan() (Kind, time.Duration) {
	if u.known {
		return Bury, max(u.of.From, u.retry)
	}
	return Look, u.retry
}

func (u *Undertaker) act(now time.Duration) *Call {
	if u.out != nil || u.answer != NoAnswer {
		return nil
	}
	if now >= u.of.Until {
		err := u.last
		if err == nil {
			err = ErrNotProved
		}
		u.settle(Unusable, driver.Record{}, err)
		return nil
	}
	kind, at := u.plan()
	if now < at {
		return nil
	}
	r := &Call{Kind: kind, Key: u.of.Key}
	if kind == Bury {
		r.Prev, r.Next = u.seen, u.buried(u.env.Fresh())
	}
	u.out, u.sent = r, now
	return r
}

// buried returns the record as the death leaves it. An end that the dead has written
// itself stays.
func (u *Undertaker) buried(version string) driver.Record {
	end := driver.EndCrashed
	if u.seen.End != "" {
		end = u.seen.End
	}
	if u.seen.State == driver.Alive {
		return closed(u.seen, version, end)
	}
	var asked *driver.Request // in vain
	if len(u.seen.Requests) > 0 {
		q := u.seen.Requests[0]
		asked = &q
	}
	return freed(u.seen, version, end, asked)
}

// Reply takes the result of the call under way.
func (u *Undertaker) Reply(now time.Duration, r Result) Action {
	out := u.out
	u.out, u.known = nil, false
	switch r.Outcome {
	case Applied, Conflicted:
		u.failures, u.retry, u.last = 0, now, nil
		if out.Kind == Bury && r.Outcome == Applied {
			u.settle(Done, r.Record, nil)
			break
		}
		if u.raced++; out.Kind == Look {
			u.raced = 0
		}
		if u.raced > 1 {
			u.retry = now + u.t.backoff(u.env, u.raced)
		}
		u.judge(now, r)
	default:
		if out.Kind == Bury && r.Outcome == Unknown {
			u.writes = u.writes.add(attempt{kind: Bury, version: out.Next.Version, token: out.Next.Token})
		}
		u.last = r.Err
		u.fail(now, u.t, u.env, 0, r.Err)
	}
	return Action{Call: u.act(now)}
}

// judge settles the answer if the record decides it.
func (u *Undertaker) judge(now time.Duration, r Result) {
	rec := r.Record
	_, ours := u.writes.wrote(rec)
	holds := r.Found && (rec.State == driver.Held || rec.State == driver.Alive)
	switch {
	case r.Found && ours:
		u.settle(Done, rec, nil) // an earlier write of unknown outcome
	case r.Found && !Readable(rec) && !rec.State.OfSession():
		u.settle(Unusable, rec, driver.ErrUnreadable)
	case holds && IsBeatOf(rec.Beat, u.of.ID):
		u.seen, u.known = rec, true
	case holds:
		u.settle(Changed, rec, nil)
	case r.Found && rec.State == driver.Closed, u.sent >= u.of.From+2*u.t.RequestTimeout:
		u.settle(Nobody, rec, nil)
	default: // a claim of the dead may be under way
		u.retry = now + u.t.Pause()
	}
}
