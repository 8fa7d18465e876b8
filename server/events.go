// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
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
	out := &stream{c: c, media: lineStream}
	switch {
	case c.accepts(eventStream):
		out.media = eventStream
	case len(c.r.Header.Values("Accept")) == 0, c.accepts(lineStream), c.accepts("application/*"), c.accepts("*/*"):
	default:
		return problemf(badRequest, "Accept has neither %s nor %s: the stream has one of them", eventStream, lineStream)
	}
	ctx, leave, err := c.s.wait(c.r.Context(), c.principal, "events")
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
		return feedOf{}, problemf(badRequest, "give one of name and prefix: a lock, or the beginning of many names, "+
			"which may be empty")
	case q.Has("name"):
		name := q.Get("name")
		if err := c.may(access.Read, name); err != nil {
			return feedOf{}, err
		}
		if len(name) > driver.MaxNameLen {
			return feedOf{}, problemf(badRequest, "lock name %.20q... has %d bytes: at most %d are allowed",
				name, len(name), driver.MaxNameLen)
		}
		return feedOf{name: name}, nil
	}
	if err := checkLen(q, "prefix"); err != nil {
		return feedOf{}, err
	}
	prefix := q.Get("prefix")
	switch below := c.principal.Prefixes(access.Read, prefix); {
	case len(below) == 0:
		return feedOf{}, c.readsNothing(prefix)
	case len(below) == 1:
		prefix = below[0]
	}
	return feedOf{prefix: prefix}, nil
}

// followed is one stream.
type followed struct {
	c    *call
	out  *stream
	of   feedOf
	feed *feed
	last *snapshot // that was sent
}

// errGone is the error of a client that does not take what is sent.
var errGone = errors.New("the client does not read")

// run sends what happens until the call ends. The error is what is to be told at its end.
func (f *followed) run(ctx context.Context) error {
	if f.out.write("") != nil { // at once: whoever follows no lock yet waits for an answer, too
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
		return f.out.event("status", wire.Event{Status: st})
	}, func(name string) error {
		if !may(name) {
			return nil
		}
		return f.out.event("gone", wire.Event{Name: name})
	})
	if err == nil && f.of.name != "" && f.last == nil && len(now.locks) == 0 {
		err = f.out.event("gone", wire.Event{Name: f.of.name}) // so that the stream says something
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
