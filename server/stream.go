// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/server/internal/remote"
	"github.com/tenurelock/tenure/server/internal/wire"
)

const (
	eventStream = "text/event-stream"
	lineStream  = "application/x-ndjson"

	// alivePeriod is how often a stream says that it is alive, so that no proxy takes it for
	// dead, and a client that went away is found out.
	alivePeriod = 5 * time.Second
)

// stream sends events, each at once and in bounded time. An error says that the client does not
// take them.
type stream struct {
	c     *call
	media string // eventStream: server-sent events; lineStream: a line of JSON for each, a wire.Event
	begun bool
}

// event sends one event. Of a wire.Event a server-sent event has the part that its name says.
func (w *stream) event(name string, data any) error {
	e, follows := data.(wire.Event)
	switch {
	case w.media == lineStream:
		e.Event = name
		data = e
	case follows && name == "gone":
		data = map[string]string{"name": e.Name}
	case follows:
		data = e.Status
	}
	text, err := json.Marshal(data) // in one line
	switch {
	case err != nil:
		return fmt.Errorf("event %s: %w", name, err)
	case w.media == lineStream:
		return w.write(string(text) + "\n")
	}
	return w.write(fmt.Sprintf("event: %s\ndata: %s\n\n", name, text))
}

// alive says that nothing has happened.
func (w *stream) alive() error {
	if w.media == lineStream {
		return w.event("alive", wire.Event{})
	}
	return w.write(": alive\n\n")
}

func (w *stream) problem(p *problem) error {
	if w.media == lineStream {
		return w.event("problem", wire.Event{Problem: p.Problem})
	}
	if p.retryAfter > 0 {
		if err := w.write(fmt.Sprintf("retry: %d\n", p.retryAfter.Milliseconds())); err != nil {
			return err
		}
	}
	return w.event("problem", p.Problem)
}

// write sends the headers, once, and a text.
func (w *stream) write(text string) error {
	if !w.begun {
		w.begun = true
		w.c.w.Header().Set("Content-Type", w.media)
		w.c.w.Header().Set("X-Accel-Buffering", "no") // nginx would keep the events for itself
		w.c.w.WriteHeader(http.StatusOK)
	}
	return w.c.bounded(func() error {
		_, err := w.c.w.Write([]byte(text))
		return err
	})
}

// taken is how an attempt has ended.
type taken struct {
	grant remote.Grant
	err   error
}

// stream answers an acquire with a stream of events.
func (a *attempt) stream(parent context.Context) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	waiting, done := make(chan *tenure.HeldError, 1), make(chan taken, 1)
	go func() {
		g, err := a.take(ctx, func(e *tenure.HeldError) {
			select {
			case <-waiting: //nolint:errcheck // an older one
			default:
			}
			waiting <- e
		})
		done <- taken{g, err}
	}()
	w := &stream{c: a.c, media: eventStream}
	tick := time.NewTicker(alivePeriod)
	defer tick.Stop()
	for {
		var err error
		select {
		case e := <-waiting:
			err = w.event("waiting", waitingFor(e))
		case <-tick.C:
			err = w.alive()
		case t := <-done:
			return a.ended(w, t)
		}
		if err != nil { // the client has gone, or does not read
			cancel()
			if t := <-done; t.err == nil {
				return a.hand(func() error { return err }, t.grant)
			}
			return nil
		}
	}
}

// ended tells how the attempt has ended.
func (a *attempt) ended(w *stream, t taken) error {
	if t.err != nil {
		_ = w.problem(a.c.told(t.err)) // the stream ends in any case
		return nil
	}
	if err := a.hand(func() error { return w.event("granted", grantOf(a.of.Name, t.grant)) }, t.grant); err != nil {
		_ = w.problem(a.c.told(err))
	}
	return nil
}

func waitingFor(e *tenure.HeldError) wire.Waiting {
	return wire.Waiting{Holder: e.Owner, Token: e.Token, FreeInMs: ceilMs(e.FreeIn), Reserved: e.Reserved, Label: e.Label}
}
