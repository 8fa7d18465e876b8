// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/server/access"
	"github.com/tenurelock/tenure/server/internal/wire"
)

// events is GET /v1/events.
func (c *call) events() error {
	if c.r.Method == http.MethodHead {
		c.w.Header().Set("Allow", http.MethodGet)
		return problemf(wrongMethod, "%s takes GET, not HEAD: a stream has no end", c.r.URL.Path)
	}
	of, err := c.following()
	if err != nil {
		return err
	}
	var out follower
	switch {
	case c.accepts(eventStream):
		out = &sseFollower{sse{c: c}}
	case len(c.r.Header.Values("Accept")) == 0, c.accepts(lineStream), c.accepts("application/*"), c.accepts("*/*"):
		out = &lineFollower{c: c}
	default:
		return problemf(badRequest, "Accept has neither %s nor %s: the stream has one of them", eventStream, lineStream)
	}
	ctx, leave, err := c.waits("events")
	if err != nil {
		return err
	}
	defer leave()
	feed, done := c.s.feeds.follow(of)
	defer done()
	st := &followed{c: c, out: out, of: of, feed: feed}
	if err := st.run(ctx); err != nil {
		// The client that does not take an event does not take this one either.
		_ = out.problem(c.told(err))
	}
	return nil
}

// following returns what the call wants to follow, and may.
func (c *call) following() (feedOf, error) {
	q, err := c.query("name", "prefix")
	switch {
	case err != nil:
		return feedOf{}, err
	case q.Has("name") == q.Has("prefix"):
		return feedOf{}, problemf(badRequest, "give one of name and prefix: a lock, or the beginning of many names, which may be empty")
	case q.Has("name"):
		name := q.Get("name")
		if err := c.may(access.Read, name); err != nil {
			return feedOf{}, err
		}
		if len(name) > driver.MaxNameLen {
			return feedOf{}, problemf(badRequest, "lock name %.20q... has %d bytes: at most %d are allowed", name, len(name), driver.MaxNameLen)
		}
		return feedOf{name: name}, nil
	}
	if err := checkLen(q, "prefix"); err != nil {
		return feedOf{}, err
	}
	prefix := q.Get("prefix")
	switch below := c.principal.Prefixes(access.Read, prefix); {
	case len(below) == 0:
		return feedOf{}, c.refused("right", problemf(forbidden, "principal %q has no right read to any name that begins with %.200q", c.principal.Name(), prefix))
	case len(below) == 1:
		prefix = below[0]
	}
	return feedOf{prefix: prefix}, nil
}

// follower sends what happens in one of the two forms. An error says that the client does
// not take it.
type follower interface {
	open() error
	changed(wire.Status) error
	gone(name string) error
	problem(*problem) error
	alive() error
}

// followed is one stream.
type followed struct {
	c    *call
	out  follower
	of   feedOf
	feed *feed
	last *snapshot // that was sent
}

// errGone is the error of a client that does not take what is sent.
var errGone = errors.New("the client does not read")

// run sends what happens until the call ends. The error is what is to be told at its end.
func (f *followed) run(ctx context.Context) error {
	if f.out.open() != nil { // at once: whoever follows no lock yet waits for an answer, too
		return errGone
	}
	tick := time.NewTicker(alivePeriod)
	defer tick.Stop()
	for {
		now, changed := f.feed.now()
		if now != nil && now != f.last {
			if err := f.send(now); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-tick.C:
			if f.out.alive() != nil {
				return errGone
			}
			if err := f.stillMay(); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stillMay says whether the principal is known still, and which rights it has now: a stream
// may outlive a token.
func (f *followed) stillMay() error {
	p, err := f.c.s.principalOf(f.c.r)
	if err != nil {
		return problemf(unauthenticated, "the token or certificate is not known any more")
	}
	f.c.principal = p
	if f.of.name != "" {
		return f.c.may(access.Read, f.of.name)
	}
	return nil
}

// send sends what differs from what was sent last.
func (f *followed) send(now *snapshot) error {
	if now.err != nil {
		p := f.c.told(now.err)
		if f.last != nil && f.last.err != nil && p.kind != tooLarge {
			return nil // told already
		}
		if p.kind == tooLarge {
			return p
		}
		// What was sent before is what the next snapshot is compared with.
		before := f.last
		f.last = &snapshot{err: now.err}
		if before != nil {
			f.last.locks = before.locks
		}
		return delivered(f.out.problem(p))
	}
	may := func(name string) bool { return f.c.principal.May(access.Read, name) }
	err := now.since(f.last, f.of.prefix, func(st wire.Status) error {
		if !may(st.Name) {
			return nil
		}
		return f.out.changed(st)
	}, func(name string) error {
		if !may(name) {
			return nil
		}
		return f.out.gone(name)
	})
	if err == nil && f.of.name != "" && f.last == nil && len(now.locks) == 0 {
		err = f.out.gone(f.of.name) // so that the stream says something
	}
	f.last = now
	return delivered(err)
}

// delivered says that the client takes what is sent.
func delivered(err error) error {
	if err != nil {
		return errGone
	}
	return nil
}

// sseFollower sends events.
type sseFollower struct{ sse }

func (w *sseFollower) open() error { return w.write("") }

func (w *sseFollower) changed(st wire.Status) error { return w.event("status", st) }

func (w *sseFollower) gone(name string) error {
	return w.event("gone", struct {
		Name string `json:"name"`
	}{name})
}

// lineFollower sends lines of JSON.
type lineFollower struct {
	c     *call
	begun bool
}

func (w *lineFollower) open() error { return w.write(nil) }

func (w *lineFollower) changed(st wire.Status) error {
	return w.line(wire.Event{Event: "status", Status: st})
}

func (w *lineFollower) gone(name string) error {
	return w.line(wire.Event{Event: "gone", Name: name})
}

func (w *lineFollower) problem(p *problem) error {
	return w.line(wire.Event{Event: "problem", Problem: p.Problem})
}

func (w *lineFollower) alive() error { return w.line(wire.Event{Event: "alive"}) }

func (w *lineFollower) line(e wire.Event) error {
	text, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("event %s: %w", e.Event, err)
	}
	return w.write(append(text, '\n'))
}

func (w *lineFollower) write(text []byte) error {
	w.c.begin(&w.begun, lineStream)
	return w.c.bounded(func() error {
		_, err := w.c.w.Write(text)
		return err
	})
}
