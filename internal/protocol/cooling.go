// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"time"

	"github.com/tenurelock/tenure/driver"
)

// A candidate with a cool-down lets others go first when its own label has failed
// lately. It counts, from the newest tenure down, the tenures of its own label that
// ended badly, until one that ended well. For k of them it puts its move off by
// CoolDown·2^(k−1), and CoolDownMax at most, from the instant at which it could have
// moved, by its own clock. So a version that fails loses to any other one that is
// there, and leads again where there is none. Nothing is written, no wall clock is
// read, and nobody is shut out.
//
// What a tenure's end says of its label:
//
//   - badly: the work failed, stalled, or did not stop in time, or its process is
//     known to have crashed
//   - well: the work returned, or was asked to make way
//   - nothing: all else. One outage of the store lets the leases of good versions
//     expire.
//
// The record of a lock shows its latest two tenures. What was before them is read from
// the history: in one batch, once for each token, and only where those two do not
// settle the count.
//
// A lock that is reserved for the candidate was handed over to it on purpose: it does
// not wait. Nor does a candidate whose label has failed ask a leader to make way for
// its priority: the leader may be what its failures were rolled back to.

// Reviewed is how many of the newest tenures count.
const Reviewed = 16

// cooling is what a candidate knows of the ends of the latest tenures.
type cooling struct {
	known bool
	token uint64 // of the record below which past was read
	first uint64 // the first token of past
	past  []Entry
	mute  uint64 // the token of a leader below which the history could not be read

	waits bool
	of    life          // for whose lock it waits
	from  time.Duration // since when it could have moved
	blind bool          // the history could not be read in time
}

// verdict is what the end of a tenure says of its label.
type verdict int

const (
	nothing verdict = iota
	well
	badly
)

func judged(end driver.EndReason) verdict {
	switch end {
	case driver.EndFailed, driver.EndStalled, driver.EndStopTimeout, driver.EndCrashed:
		return badly
	case driver.EndReleased, driver.EndSteppedDown, driver.EndHandedOver:
		return well
	}
	return nothing
}

// failuresOf counts the tenures of a label that ended badly, the newest first, until
// one of it that ended well. It returns settled if there was such a one.
func failuresOf(label string, list []Entry) (k int, settled bool) {
	for _, e := range list {
		if e.Unknown || e.Label != label {
			continue
		}
		switch judged(e.End) {
		case badly:
			k++
		case well:
			return k, true
		}
	}
	return k, false
}

// delay returns by how much a candidate puts its move off after k failures.
func (w Want) delay(k int) time.Duration {
	if k == 0 {
		return 0
	}
	d := w.CoolDown
	for range k - 1 {
		if d >= w.CoolDownMax {
			break
		}
		d *= 2
	}
	return min(d, w.CoolDownMax)
}

// cools says whether the contender has a cool-down, which none has that does not wait.
func (c *Contender) cools() bool {
	return c.want.CoolDown > 0 && !c.want.Try && !c.want.UnlessAlive && !c.ending
}

// shows returns what the record of a lock tells of its tenures, as they are for the
// one that follows it.
func (c *Contender) shows(rec driver.Record) []Entry {
	list := Present(rec)
	if rec.State == driver.Held {
		list[0].End = c.sight.ending(rec).End
	}
	return list
}

// failed returns how many tenures of its own label in a row have ended badly, and false
// if the history must be read to know that.
func (c *Contender) failed(rec driver.Record) (k int, known bool) {
	list := c.shows(rec)
	k, settled := failuresOf(c.want.Label, list)
	from, to := Older(list, Reviewed)
	switch {
	case settled, from == to, c.cool.blind && c.cool.of == lifeOf(rec):
		return k, true
	case !c.cool.known || c.cool.token != rec.Token || c.cool.first != from:
		return k, false
	}
	k, _ = failuresOf(c.want.Label, append(list, c.cool.past...))
	return k, true
}

// cooled returns the next move, and when it is due, of one whose next move would be
// kind.
func (c *Contender) cooled(kind Kind, at time.Duration) (Kind, time.Duration) {
	rec, found := c.sight.Record()
	if !c.cools() || !found || c.own != nil || c.mine(rec) {
		return kind, at
	}
	switch kind {
	case Ask:
		if _, known := c.failed(rec); !known {
			return Review, at
		}
		return kind, at
	case Claim, Takeover:
	default:
		return kind, at
	}
	k, known := c.failed(rec)
	switch {
	case !c.cool.waits || c.cool.of != lifeOf(rec):
		return kind, at // act notes that it could have moved then
	case !known:
		return Review, at
	}
	due := c.cool.from + c.want.delay(k)
	if due <= at {
		return kind, at
	}
	if look := c.sight.NextLook(); look < due {
		return Look, max(look, c.retry)
	}
	return kind, due
}

// couldMove notes the instant at which the contender could have moved.
func (c *Contender) couldMove(kind Kind, now time.Duration) {
	rec, found := c.sight.Record()
	if !c.cools() || !found || kind != Claim && kind != Takeover {
		return
	}
	if is := lifeOf(rec); !c.cool.waits || c.cool.of != is {
		c.cool.waits, c.cool.of, c.cool.from, c.cool.blind = true, is, now, false
	}
}

// review fills in the call that reads the history below the tenures that a record
// shows.
func (c *Contender) review(r *Call, rec driver.Record) {
	from, to := Older(c.shows(rec), Reviewed)
	for token := from; token > to; token-- {
		r.Keys = append(r.Keys, HistoryKey(c.want.Key, token))
	}
	r.Prev = rec
	c.cool.token, c.cool.first, c.cool.known, c.cool.past = rec.Token, from, false, nil
}

// reviewed takes the answer to it.
func (c *Contender) reviewed(now time.Duration, out *Call, r Result) {
	if r.Outcome != Applied {
		c.fail(now, r.Err)
		// The history must not keep the lock free for longer than it could say.
		c.cool.blind = c.cool.waits && now >= c.cool.from+c.want.CoolDownMax
		if is := lifeOf(out.Prev); !c.cool.waits || c.cool.of != is {
			c.cool.mute = out.Prev.Token // it was to be asked to make way: it is not
		}
		return
	}
	c.failures, c.mute, c.lastErr, c.retry = 0, false, nil, now
	past := make([]Entry, 0, len(r.Past))
	for i, rec := range r.Past {
		past = append(past, EntryOf(c.cool.first-uint64(i), rec, rec.Key != ""))
	}
	c.cool.known = true
	c.cool.past, _ = Dense(past)
}

// Cooling reports whether the contender could move but for its cool-down. Then known
// says whether it knows of how many failures of its own label in a row: k, for which it
// waits until that instant.
func (c *Contender) Cooling() (k int, until time.Duration, known, cools bool) {
	rec, found := c.sight.Record()
	if !c.cools() || !found || !c.cool.waits || c.cool.of != lifeOf(rec) {
		return 0, 0, false, false
	}
	k, known = c.failed(rec)
	return k, c.cool.from + c.want.delay(k), known, true
}
