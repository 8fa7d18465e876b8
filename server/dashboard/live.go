// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// livePace is how often a stream looks for something new, and liveBeat after how long without it the stream
	// says that it is there.
	livePace = time.Second
	liveBeat = 15 * time.Second
	// livePaceOverTook is how many times as long as it takes to make a page it is left alone.
	livePaceOverTook = 20
	// liveLife is how long a stream is open: the page connects again.
	liveLife = 10 * time.Minute
	// liveWrite bounds how long a page may take to read what it is sent.
	liveWrite = 10 * time.Second
	// maxStreams bounds the streams in all, and maxStreamsOf those of one principal.
	maxStreams   = 512
	maxStreamsOf = 32
)

// streams counts those that are open.
type streams struct {
	ctx  context.Context
	stop context.CancelFunc
	turn chan struct{} // held by the one that makes its page

	mu sync.Mutex
	n  int
	of map[string]int // by the names of principals
}

func newStreams() *streams {
	s := &streams{turn: make(chan struct{}, 1), of: map[string]int{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// close ends all streams.
func (s *streams) close() { s.stop() }

// enter says whether one more may be open.
func (s *streams) enter(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil || s.n >= maxStreams || s.of[name] >= maxStreamsOf {
		return false
	}
	s.n++
	s.of[name]++
	return true
}

func (s *streams) leave(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n--
	if s.of[name]--; s.of[name] == 0 {
		delete(s.of, name)
	}
}

// live keeps a page up to date: it sends the part of it that changes, whenever it is not as it was.
func (d *Dashboard) live(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet { // a HEAD has no stream
		d.noMethod(http.MethodGet)(w, r)
		return
	}
	who, ok := d.admitted(w, r)
	if !ok {
		return
	}
	name := r.URL.Query().Get("view")
	if d.views[name] == nil {
		d.failed(w, r, refuse(http.StatusBadRequest, "No such view",
			"view %.40q is not known: it is one of now, lock, sessions, shards, doctor", name))
		return
	}
	if !d.streams.enter(who.Name()) {
		d.failed(w, r, refuse(http.StatusServiceUnavailable, "Too many pages", "%s has %d pages open that are kept up to "+
			"date, or this server is shutting down: close some, or ask another replica", who.Name(), maxStreamsOf))
		return
	}
	defer d.streams.leave(who.Name())
	ctx, cancel := context.WithTimeout(r.Context(), liveLife)
	defer cancel()
	defer context.AfterFunc(d.streams.ctx, cancel)()
	s := openStream(w, r)
	d.follow(ctx, s, r, name)
	s.close()
}

// follow sends what is new until the stream ends.
func (d *Dashboard) follow(ctx context.Context, s *stream, r *http.Request, name string) {
	s.send("retry: 3000\n\n")
	before := ""
	for sent := time.Now(); s.err == nil; {
		who, ok := d.visitor(r)
		if !ok {
			s.send("event: out\ndata:\n\n")
			return
		}
		begun := time.Now()
		content := d.content(ctx, who, name, r)
		pause := max(livePace, livePaceOverTook*time.Since(begun))
		switch {
		case ctx.Err() != nil:
			return
		case content != before:
			before, sent = content, time.Now()
			s.send("event: live\ndata: " + strings.NewReplacer("\r", "", "\n", "\ndata: ").Replace(content) + "\n\n")
		case time.Since(sent) >= liveBeat:
			sent = time.Now()
			s.send(":\n\n")
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// content is the part of a page that changes, as it is now. One stream at a time makes it: whatever the number
// of open pages, they leave time for what else the server does.
func (d *Dashboard) content(ctx context.Context, who visitor, name string, r *http.Request) string {
	select {
	case d.streams.turn <- struct{}{}:
		defer func() { <-d.streams.turn }()
	case <-ctx.Done():
		return ""
	}
	p, problem := d.views[name](ctx, who, r.URL.Query())
	if problem != nil {
		return string(d.html("alerts", []flash{{status: problem.status, Text: problem.title + ": " + problem.Detail}}))
	}
	return string(d.fragment(p))
}

// stream is an answer of server-sent events.
type stream struct {
	io.Writer
	pack       *gzip.Writer // nil if it is not compressed
	controller *http.ResponseController
	err        error // once set, nothing is sent any more
}

func openStream(w http.ResponseWriter, r *http.Request) *stream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // a proxy that buffers would hold it back
	s := &stream{Writer: w, controller: http.NewResponseController(w)}
	if packs(r) {
		h.Set("Content-Encoding", "gzip")
		s.pack = gzip.NewWriter(w)
		s.Writer = s.pack
	}
	w.WriteHeader(http.StatusOK)
	return s
}

// send sends some events. A page that does not read them in time loses the stream.
func (s *stream) send(text string) {
	do := func(f func() error) {
		if s.err == nil {
			s.err = f()
		}
	}
	do(func() error { return s.limit(time.Now().Add(liveWrite)) })
	do(func() error { _, err := io.WriteString(s, text); return err })
	if s.pack != nil {
		do(s.pack.Flush)
	}
	do(s.controller.Flush)
}

// limit bounds when the page must have read all, where the connection has such limits.
func (s *stream) limit(until time.Time) error {
	if err := s.controller.SetWriteDeadline(until); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// close ends the stream, and takes its limit from the connection, which may go on.
func (s *stream) close() {
	if s.pack != nil && s.err == nil {
		s.err = s.pack.Close()
	}
	if s.err == nil {
		s.err = s.limit(time.Time{})
	}
}
