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

// What can happen to a lease, in the order in which a lease meets it.
const (
	// EventWaiting: the lock is held, and an acquire waits for it. Owner and Token
	// are the holder's; Remaining is how long the holder can keep the lock without
	// another sign of life. Own says that this very client is the holder.
	EventWaiting EventKind = "waiting"
	// EventAcquired: the lock was taken. Took is how long that took. The event also
	// comes if no caller waits for the lock any more; the lock is released at once
	// then.
	EventAcquired EventKind = "acquired"
	// EventRenewed: a heartbeat was confirmed. Took is how long the request
	// took, Remaining what is left until the deadline.
	EventRenewed EventKind = "renewed"
	// EventJeopardy: the last heartbeat failed, and the deadline comes closer.
	// Err is the store's error, Remaining what is left.
	EventJeopardy EventKind = "jeopardy"
	// EventSafe: a heartbeat was confirmed after jeopardy.
	EventSafe EventKind = "safe"
	// EventStopping: the holder was told to stop, by a release, a close, or its
	// caller's context, or a request asked it to. Err is the cause.
	EventStopping EventKind = "stopping"
	// EventLost: the lease ended without the holder asking for it. Err is the
	// cause.
	EventLost EventKind = "lost"
	// EventStopTimeout: the work did not return in time; the heartbeats ended.
	EventStopTimeout EventKind = "stop_timeout"
	// EventOpened: a session is open. Took is how long that took.
	EventOpened EventKind = "opened"
	// EventClosed: a session is closed, and with it all locks under it are free.
	// Held is how long it was open.
	EventClosed EventKind = "closed"
	// EventBusy: a period of four lease durations has ended, and the holder used
	// [Lease.Do] in it or before it. Busy is how long the holder was at work, of
	// Held; Share is that as a share of its capacity: see [Lease.BusyShare].
	EventBusy EventKind = "busy"
	// EventReleased: the record is released. Held and Busy tell how long the
	// lease was held, and for how much of that work ran in [Lease.Do]. End tells how the
	// tenure ended; if that is [EndFailed], Err has the text of why the work failed.
	EventReleased EventKind = "released"
	// EventEnded: the lease ended without a release of the record. It was another
	// holder's already, or the store gave no answer (Err).
	EventEnded EventKind = "ended"
	// EventStoreError: a request failed that was sent for an acquire, for a session
	// that is to be opened, or for a call that asks something of a holder. The
	// request is repeated, unless the call ends with that error. A store that is
	// busy for less than a request timeout is not reported.
	EventStoreError EventKind = "store_error"
	// EventStoreAnswers: a request was answered, the first one after EventStoreError. Took is
	// how long that was after the first error.
	EventStoreAnswers EventKind = "store_answers"
	// EventDrift: a holder counts with another [Options.MaxClockDrift] than this
	// client. Owner and Token are the holder's; Lock is empty if the holder is a
	// session. Err has both bounds. The event comes once for each owner, and for
	// the first 1000 owners alone.
	EventDrift EventKind = "clock_drift"
)

// Event is something that happened to a lease or an acquire of this client.
type Event struct {
	Kind EventKind
	Lock string // empty if the event is a session's own
	// Session is the id of the session that keeps the lock alive, or whose event
	// it is; empty if the lock is its own lease.
	Session string
	Owner   string // who holds the lock, by this event
	Token   uint64
	Own     bool      // see EventWaiting
	Time    time.Time // wall clock, for people

	Took       time.Duration // see the kind
	Remaining  time.Duration
	Held, Busy time.Duration
	Share      float64
	Grace      time.Duration // of EventAcquired and EventOpened: see [Timing]
	End        string        // of EventReleased, as the history has it, such as [EndFailed]
	Err        error

	// Missed counts the events before this one that were dropped because
	// OnEvent or the logger was too slow.
	Missed uint64
}

// eventHandler hands events to the user's callback and logger, from one goroutine.
type eventHandler struct {
	on     func(Event)
	log    *slog.Logger
	outage outage
}

// handlerOf returns what takes the events, nil if nobody wants any.
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

// outage is what the log says of a store that gives no answer, or answers now and then: its
// first error, and another one after each pause, twice as long as that before.
type outage struct {
	seen   time.Time     // when the last error was; zero if there was none
	last   time.Time     // when one was logged last
	pause  time.Duration // for so long no other one is
	more   int           // that were not logged since
	silent bool          // an error was logged, and since then not that the store answers
}

const (
	firstPause = time.Second
	lastPause  = 10 * time.Minute
	// asOne is for how long there must be no error before the next one is another outage.
	asOne = time.Minute
)

// fails says whether an error is to be logged, and how many were not since the last one.
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

// answers says whether it is to be logged that the store answers.
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
