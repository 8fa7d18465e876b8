// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tenurelock/tenure"
)

// told hands an event of the client on to whoever reads: the log, the lines of
// --json, or people. It is called from the goroutine that extends the command's
// life, so it must not block.
func (s *session) told(e tenure.Event) {
	c := s.console
	if c.json && (c.verbose || e.Kind != tenure.EventRenewed) {
		c.emit(recordOf(e))
	}
	if c.log != nil {
		logEvent(c.log, e)
	}
	s.tellPeople(e)
}

func (s *session) tellPeople(e tenure.Event) {
	c := s.console
	switch e.Kind {
	case tenure.EventStoreError:
		s.storeError.Store(&e.Err)
		if !s.inTrouble.Swap(true) {
			c.say("the store gives no answer: %s; trying again", oneLine(e.Err))
		}
	case tenure.EventWaiting, tenure.EventAcquired:
		s.storeError.Store(nil)
		if s.inTrouble.Swap(false) {
			c.say("the store answers again")
		}
	case tenure.EventJeopardy:
		c.say("no heartbeat for %q: %s; %v of the lease are left", e.Lock, oneLine(e.Err), round(e.Remaining))
	case tenure.EventStopping:
		var q *tenure.StepDownError
		if errors.As(e.Err, &q) {
			what := "step down"
			if q.To != "" {
				what = fmt.Sprintf("hand over to %q", q.To)
			}
			c.say("%s asks to %s: %s; the command is told to stop", q.By, what, q.Reason)
		}
	case tenure.EventSafe:
		c.say("the heartbeat for %q goes on", e.Lock)
	}
}

func recordOf(e tenure.Event) record {
	r := record{
		Time: e.Time.UTC().Format(timeFormat), Event: string(e.Kind),
		Lock: e.Lock, Owner: e.Owner, Token: e.Token,
	}
	switch e.Kind {
	case tenure.EventWaiting, tenure.EventJeopardy, tenure.EventSafe:
		r.Remaining = seconds(e.Remaining)
	case tenure.EventAcquired, tenure.EventRenewed:
		r.Took, r.Remaining = seconds(e.Took), seconds(e.Remaining)
	case tenure.EventReleased, tenure.EventEnded:
		r.Held = seconds(e.Held)
	case tenure.EventBusy:
		r.Held, r.Busy = seconds(e.Held), seconds(e.Busy)
	}
	if e.Err != nil {
		r.Error = oneLine(e.Err)
	}
	return r
}

func logEvent(log *slog.Logger, e tenure.Event) {
	level := slog.LevelInfo
	switch e.Kind {
	case tenure.EventRenewed, tenure.EventStopping, tenure.EventBusy:
		level = slog.LevelDebug
	case tenure.EventJeopardy, tenure.EventStopTimeout, tenure.EventEnded, tenure.EventStoreError:
		level = slog.LevelWarn
	case tenure.EventLost:
		level = slog.LevelError
	}
	attrs := []slog.Attr{slog.String("lock", e.Lock)}
	if e.Owner != "" {
		attrs = append(attrs, slog.String("owner", e.Owner), slog.Uint64("token", e.Token))
	}
	for _, part := range []struct {
		name string
		d    time.Duration
	}{{"took", e.Took}, {"remaining", e.Remaining}, {"held", e.Held}} {
		if part.d != 0 {
			attrs = append(attrs, slog.Duration(part.name, part.d))
		}
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", oneLine(e.Err)))
	}
	log.LogAttrs(context.Background(), level, string(e.Kind), attrs...)
}

// round makes a duration readable.
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
