// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"log/slog"
	"time"

	"github.com/tenurelock/tenure/internal/engine"
)

// EventKind says what happened.
type EventKind string

// The events of a lease, in the order in which they occur.
const (
	// EventWaiting: the lock is held, and an acquire waits for it. Owner and Token
	// are the holder's; Remaining is how long the holder can keep the lock without another
	// sign of life. Own says that this client itself is the holder.
	EventWaiting EventKind = "waiting"
	// EventAcquired: the lock was taken. Took is how long that took. The event also comes
	// if no caller waits for the lock any more; the lock is then released at once.
	EventAcquired EventKind = "acquired"
	// EventRenewed: a heartbeat was confirmed. Took is how long the request
	// took, Remaining what is left until the deadline.
	EventRenewed EventKind = "renewed"
	// EventJeopardy: the last heartbeat failed, and the deadline is approaching. Err is
	// the store's error, Remaining what is left.
	EventJeopardy EventKind = "jeopardy"
	// EventSafe: a heartbeat was confirmed after jeopardy.
	EventSafe EventKind = "safe"
	// EventStopping: the holder must stop, because of a release, a close, its caller's
	// context, or a request. Err is the cause.
	EventStopping EventKind = "stopping"
	// EventLost: the lease ended without the holder asking for it. Err is the
	// cause.
	EventLost EventKind = "lost"
	// EventStopTimeout: the work did not return in time; the heartbeats ended.
	EventStopTimeout EventKind = "stop_timeout"
	// EventOpened: a session is open. Took is how long that took.
	EventOpened EventKind = "opened"
	// EventClosed: a session is closed, and all locks under it are free. Held is how long
	// it was open.
	EventClosed EventKind = "closed"
	// EventBusy: a period of four lease durations has ended, and the holder has used
	// [Lease.Do] in or before it. Held is the length of the period, Busy how long the
	// holder was at work, and Share that as a share of its capacity: see
	// [Lease.BusyShare].
	EventBusy EventKind = "busy"
	// EventReleased: the record is released. Held and Busy are how long the lease was
	// held, and how long work ran in [Lease.Do]. End says how the term ended; if that is
	// [EndFailed], Err has the text of why the work failed.
	EventReleased EventKind = "released"
	// EventEnded: the lease ended without a release of the record. It was another
	// holder's already, or the store gave no answer (Err).
	EventEnded EventKind = "ended"
	// EventStoreError: a store request of an acquire, of the opening of a session, or of a
	// call that asks a holder for something has failed. The request is repeated, unless
	// the call ends with that error. A store that is busy for less than a request timeout
	// is not reported.
	EventStoreError EventKind = "store_error"
	// EventStoreAnswers: a request was answered, for the first time after EventStoreError.
	// Took is the time since the first error.
	EventStoreAnswers EventKind = "store_answers"
	// EventDrift: a holder has another [Options.MaxClockDrift] than this client. Owner and
	// Token are the holder's; Lock is empty if the holder is a session. Err has both
	// bounds. The event comes once for each owner, and only for the first 1000 owners. Defaults
	// that differ because the clocks do are not reported.
	EventDrift EventKind = "clock_drift"
)

// Event is something that happened to a lease or an acquire of this client.
type Event struct {
	Kind EventKind
	Lock string // empty if the event is a session's own
	// Session is the id of the session that keeps the lock alive, or that the event is
	// about; empty if the lock has its own lease.
	Session string
	Owner   string // the holder of the lock, according to this event
	Token   uint64
	Own     bool      // see EventWaiting
	Time    time.Time // wall clock, for people

	Took       time.Duration // see the kind
	Remaining  time.Duration
	Held, Busy time.Duration
	Share      float64
	Grace      time.Duration // of EventAcquired and EventOpened: see [Timing]
	End        string        // of EventReleased, as in the history, such as [EndFailed]
	Err        error

	// Missed counts the earlier events that were dropped because OnEvent or the logger was
	// too slow.
	Missed uint64
}

// eventHandler passes events to the user's callback and logger, in one goroutine.
type eventHandler struct {
	on     func(Event)
	log    *slog.Logger
	outage outage
}

// handlerOf returns the function that takes the events, nil without a callback or
// logger.
func handlerOf(on func(Event), log *slog.Logger) func(engine.Event) {
	if on == nil && log == nil {
		return nil
	}
	h := &eventHandler{on: on, log: log}
	return h.handle
}

func (h *eventHandler) handle(e engine.Event) {
	ev := Event{
		Kind: EventKind(e.Kind), Lock: e.Lock, Session: e.Session, Owner: e.Owner, Token: e.Token, Own: e.Own, Time: e.Time,
		Took: e.Took, Remaining: e.Remaining, Held: e.Held, Busy: e.Busy, Share: e.Share, Grace: e.Grace,
		End: e.End, Err: e.Err, Missed: e.Missed,
	}
	if h.on != nil {
		h.on(ev)
	}
	if h.log != nil {
		h.write(ev)
	}
}

// outage decides what is logged while a store gives no answer, or answers now and then: its
// first error, and another one after each pause, which doubles each time.
type outage struct {
	seen   time.Time     // the time of the last error; zero: none yet
	last   time.Time     // the last time that an error was logged
	pause  time.Duration // how long no other error is logged
	more   int           // errors that were not logged since
	silent bool          // an error was logged, but not yet that the store answers again
}

const (
	firstPause = time.Second
	lastPause  = 10 * time.Minute
	// asOne is the time without an error after which the next error begins another outage.
	asOne = time.Minute
)

// fails says whether to log an error, and how many were not logged since the last one.
func (o *outage) fails(at time.Time) (log bool, more int) {
	quiet := at.Sub(o.seen)
	o.seen = at
	switch {
	case o.last.IsZero(), !o.silent && quiet >= max(asOne, o.pause):
		o.pause, o.more = firstPause, 0
	case at.Sub(o.last) < o.pause:
		o.more++
		return false, 0
	default:
		o.pause = min(2*o.pause, lastPause)
	}
	more, o.more = o.more, 0
	o.last, o.silent = at, true
	return true, more
}

// answers says whether to log that the store answers again.
func (o *outage) answers() bool {
	defer func() { o.silent = false }()
	return o.silent
}

func (h *eventHandler) write(ev Event) {
	level := slog.LevelInfo
	if ev.End == EndFailed {
		level = slog.LevelWarn
	}
	switch ev.Kind {
	case EventRenewed, EventStopping, EventBusy:
		level = slog.LevelDebug
	case EventJeopardy, EventStopTimeout, EventEnded, EventStoreError, EventDrift:
		level = slog.LevelWarn
	case EventLost:
		level = slog.LevelError
	}
	ctx := context.Background()
	if !h.log.Enabled(ctx, level) {
		return
	}
	var attrs []slog.Attr
	switch ev.Kind {
	case EventStoreError:
		log, more := h.outage.fails(ev.Time)
		if !log {
			return
		}
		if more > 0 {
			attrs = append(attrs, slog.Int("more", more))
		}
	case EventStoreAnswers:
		if !h.outage.answers() {
			return
		}
	}
	if ev.Lock != "" || ev.Session == "" && ev.Kind != EventStoreAnswers {
		attrs = append(attrs, slog.String("lock", ev.Lock))
	}
	if ev.Session != "" {
		attrs = append(attrs, slog.String("session", ev.Session))
	}
	add := func(name string, d time.Duration) {
		if d != 0 {
			attrs = append(attrs, slog.Duration(name, d))
		}
	}
	if ev.Owner != "" {
		attrs = append(attrs, slog.String("owner", ev.Owner))
	}
	if ev.Token != 0 {
		attrs = append(attrs, slog.Uint64("token", ev.Token))
	}
	if ev.Own {
		attrs = append(attrs, slog.Bool("own", true))
	}
	add("took", ev.Took)
	add("remaining", ev.Remaining)
	add("held", ev.Held)
	add("busy", ev.Busy)
	if ev.Kind == EventBusy {
		attrs = append(attrs, slog.Float64("share", ev.Share))
	}
	if ev.End != "" && ev.End != EndReleased {
		attrs = append(attrs, slog.String("end", ev.End))
	}
	if ev.Err != nil {
		attrs = append(attrs, slog.Any("error", ev.Err))
	}
	if ev.Missed > 0 {
		attrs = append(attrs, slog.Uint64("missed_events", ev.Missed))
	}
	h.log.LogAttrs(ctx, level, "tenure: "+string(ev.Kind), attrs...)
}
