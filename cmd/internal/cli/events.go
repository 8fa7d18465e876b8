// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/flags"
)

// Events of this command itself, besides those of the client and the guard's
// notices. All of them are in help/events.txt.
const (
	eventStarted    = "command_started"
	eventNotStarted = "command_not_started"
	eventEnded      = "command_ended"
	eventKept       = "kept"
	eventPausing    = "pausing"
	eventNotRun     = "not_run"
	eventWarning    = "warning"
	eventError      = "error"
)

// outage is a time in which the store gives no answer, or only now and then, and what was
// said of it.
type outage struct {
	mu  sync.Mutex // held while it changes, and that is reported
	err error      // the last one, nil once the store has answered
	at  time.Time  // when that came

	begun, seen time.Time     // the first error that was reported, and the last one
	next        time.Time     // when it is said again
	pause       time.Duration // until then, from the last time
	more        int           // errors since that
	reported    bool          // and since then not that the store answers
}

// last returns the error of a store that gives no answer, and when it came; nil if it answers.
func (o *outage) last() (time.Time, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.at, o.err
}

// troubled says whether the store gave no answer when last heard of, a while ago: an acquire
// that waits for an answer would have said so again by now, so a look may tell that there are
// answers again.
func (t *command) troubled() bool {
	o := t.client.Options()
	at, err := t.away.last()
	return err != nil && time.Since(at) >= 2*(o.RequestTimeout+o.RefreshPeriod)
}

func (t *command) answers() {
	o := &t.away
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = nil
	if o.reported {
		o.reported = false
		t.console.say("the store answers again, after %v", round(time.Since(o.begun)))
	}
}

func (t *command) fails(err error) {
	o := &t.away
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err, o.at = err, time.Now()
	if errors.Is(err, tenure.ErrReplaced) {
		return // it is not tried again: the command ends with it
	}
	now, quiet := o.at, o.at.Sub(o.seen)
	o.seen = now
	switch {
	case o.begun.IsZero(), !o.reported && quiet >= asOne:
		o.begun, o.pause = now, firstPause
		t.console.say("the store gives no answer: %s; trying again", flags.OneLine(err))
	case now.Before(o.next):
		o.more++
		return
	default:
		o.pause = min(2*o.pause, lastPause)
		t.console.say("the store gives no answer for %v, to %d more requests: %s; trying again",
			round(now.Sub(o.begun)), o.more+1, flags.OneLine(err))
	}
	o.reported, o.next, o.more = true, now.Add(o.pause), 0
}

const (
	firstPause = time.Minute
	lastPause  = time.Hour
	// asOne is for how long there must be no error before the next one is another outage.
	asOne = time.Minute
)

// report hands an event of the client on to whoever reads: the lines of --json, or
// people; with --verbose the client itself logs it. It is called from the
// goroutine that extends the command's life, so it must not block.
func (t *command) report(e tenure.Event) {
	c := t.console
	if c.json && (c.verbose || e.Kind != tenure.EventRenewed) {
		c.emit(recordOf(e))
	}
	switch e.Kind {
	case tenure.EventStoreError:
		t.fails(e.Err)
	case tenure.EventWaiting:
		t.answers()
		if e.Lock == t.target.Name() {
			t.manager.say("waiting for %q: held by %s", e.Lock, holderText(e.Owner, e.Token))
		}
	case tenure.EventAcquired, tenure.EventStoreAnswers:
		t.answers()
		if e.Kind == tenure.EventAcquired && e.Lock == t.target.Name() {
			t.manager.say("holds %q under token %d", e.Lock, e.Token)
		}
	case tenure.EventJeopardy:
		c.say("no heartbeat for %q: %s; %v of the lease are left", e.Lock, flags.OneLine(e.Err), round(e.Remaining))
	case tenure.EventStopping:
		var q *tenure.StepDownError
		if errors.As(e.Err, &q) {
			c.say("%s asks to %s: %s; the command is told to stop", q.By, wayText(q.To, q.ToLabel), q.Reason)
		}
	case tenure.EventDrift:
		c.say("%q: %s; give all processes the same bound", e.Owner, flags.OneLine(e.Err))
	case tenure.EventSafe:
		c.say("the heartbeat for %q goes on", e.Lock)
	}
}

func recordOf(e tenure.Event) record {
	r := record{
		Time: e.Time.UTC().Format(timeFormat), Event: string(e.Kind),
		Lock: e.Lock, Session: e.Session, Owner: e.Owner, Token: e.Token,
	}
	switch e.Kind {
	case tenure.EventWaiting, tenure.EventJeopardy, tenure.EventSafe:
		r.Remaining = seconds(e.Remaining)
	case tenure.EventOpened, tenure.EventStoreAnswers:
		r.Took = seconds(e.Took)
	case tenure.EventAcquired, tenure.EventRenewed:
		r.Took, r.Remaining = seconds(e.Took), seconds(e.Remaining)
	case tenure.EventReleased, tenure.EventEnded, tenure.EventClosed:
		r.Held = seconds(e.Held)
		if e.Kind == tenure.EventReleased && e.End != tenure.EndReleased {
			r.End = e.End
		}
	case tenure.EventBusy:
		r.Held, r.Busy, r.Share = seconds(e.Held), seconds(e.Busy), &e.Share
	}
	r.Missed = e.Missed
	var asked *tenure.StepDownError
	switch {
	case e.Err == nil:
	case e.Kind == tenure.EventStopping || e.Kind == tenure.EventLost || e.Kind == tenure.EventReleased:
		r.Cause = flags.OneLine(e.Err) // nothing has failed, or not here
		if errors.As(e.Err, &asked) {
			kind := tenure.RequestStepDown
			if asked.To != "" || asked.ToLabel != "" {
				kind = tenure.RequestHandOver
			}
			r.Request = &requestJSON{
				Kind: string(kind), By: asked.By, Reason: asked.Reason, To: asked.To, ToLabel: asked.ToLabel,
			}
		}
	default:
		r.Error = flags.OneLine(e.Err)
	}
	return r
}

func round(d time.Duration) time.Duration {
	switch {
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond)
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(time.Second)
}

func holderText(owner string, token uint64) string {
	return fmt.Sprintf("%q (token %d)", owner, token)
}
