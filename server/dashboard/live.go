// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// livePace is how often a stream looks for something new, and liveBeat after how long
	// without it the stream says that it is there.
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
	done chan struct{}
	turn chan struct{} // held by the one that makes its page

	mu     sync.Mutex
	n      int
	of     map[string]int // by the names of principals
	closed bool
}

func newStreams() *streams {
	return &streams{done: make(chan struct{}), turn: make(chan struct{}, 1), of: map[string]int{}}
}

// close ends all streams.
func (s *streams) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.done)
	}
}

// enter says whether one more may be open.
func (s *streams) enter(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.n >= maxStreams || s.of[name] >= maxStreamsOf {
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

// live keeps a page up to date: it sends the part of it that changes, whenever it is not as
// it was.
func (d *Dashboard) live(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet { // a HEAD has no stream
		d.noMethod(http.MethodGet)(w, r)
		return
	}
	who, ok := d.admitted(w, r)
	if !ok {
		return
	}
	v, ok := d.views()[r.URL.Query().Get("view")]
	if !ok {
		d.failed(w, r, &problem{http.StatusBadRequest, "No such view", fmt.Sprintf("view %.40q is not known: it is one of now, lock, sessions, shards, doctor", r.URL.Query().Get("view"))})
		return
	}
	if !d.streams.enter(who.Name()) {
		w.Header().Set("Retry-After", "5")
		d.failed(w, r, &problem{http.StatusServiceUnavailable, "Too many pages", fmt.Sprintf("%s has %d pages open that are kept up to date, or this server is shutting down: close some, or ask another replica", who.Name(), maxStreamsOf)})
		return
	}
	defer d.streams.leave(who.Name())
	ctx, cancel := bounded(r.Context(), liveLife)
	defer cancel()
	s := openStream(w, r)
	defer s.close()
	s.send("retry: 3000\n\n")
	d.follow(ctx, s, r, v)
}

// follow sends what is new until the stream ends.
func (d *Dashboard) follow(ctx context.Context, s *stream, r *http.Request, v view) {
	tick := time.NewTimer(livePace)
	defer tick.Stop()
	var before string
	sent := time.Now()
	for s.err == nil {
		now, ok := d.visitor(r)
		if !ok {
			s.send("event: out\ndata:\n\n")
			return
		}
		begun := time.Now()
		content := d.content(ctx, now, v, r)
		took := time.Since(begun)
		switch {
		case ctx.Err() != nil:
			return
		case content != before:
			before, sent = content, time.Now()
			s.event("live", content)
		case time.Since(sent) >= liveBeat:
			sent = time.Now()
			s.send(":\n\n")
		}
		tick.Reset(max(livePace, livePaceOverTook*took))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-d.streams.done:
			return
		}
	}
}

// content is the part of a page that changes, as it is now. One stream at a time makes it:
// whatever the number of open pages, they leave time for what else the server does.
func (d *Dashboard) content(ctx context.Context, who visitor, v view, r *http.Request) string {
	select {
	case d.streams.turn <- struct{}{}:
		defer func() { <-d.streams.turn }()
	case <-ctx.Done():
		return ""
	}
	p, problem := v.look(ctx, who, r.URL.Query())
	if problem != nil {
		p = &page{Alerts: []alert{{"bad", problem.title + ": " + problem.detail}}, View: "none"}
	}
	live, err := d.fragment(p)
	if err != nil {
		return ""
	}
	return string(live)
}

// stream is an answer of server-sent events.
type stream struct {
	w     io.Writer
	pack  *gzip.Writer // nil if it is not compressed
	flush func() error
	limit func(time.Time) error
	err   error // once set, nothing is sent any more
}

func openStream(w http.ResponseWriter, r *http.Request) *stream {
	c := http.NewResponseController(w)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // a proxy that buffers would hold it back
	s := &stream{w: w, flush: c.Flush, limit: c.SetWriteDeadline}
	if packs(r) {
		h.Set("Content-Encoding", "gzip")
		s.pack = gzip.NewWriter(w)
		s.w = s.pack
	}
	w.WriteHeader(http.StatusOK)
	return s
}

// event sends one event, whose data may have lines.
func (s *stream) event(name, data string) {
	var b bytes.Buffer
	b.WriteString("event: " + name + "\n")
	for line := range bytes.Lines([]byte(data)) {
		b.WriteString("data: ")
		b.Write(bytes.TrimRight(line, "\r\n"))
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	s.send(b.String())
}

// send sends what is text already. A page that does not read it in time loses the stream.
func (s *stream) send(text string) {
	if s.err != nil {
		return
	}
	if err := s.limit(time.Now().Add(liveWrite)); err != nil && !isUnsupported(err) {
		s.err = err
		return
	}
	if _, s.err = io.WriteString(s.w, text); s.err != nil {
		return
	}
	if s.pack != nil {
		if s.err = s.pack.Flush(); s.err != nil {
			return
		}
	}
	s.err = s.flush()
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
