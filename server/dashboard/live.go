// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
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
)

// live keeps a page up to date: it sends the part of it that changes, whenever it is not as it was.
func (d *Dashboard) live(w http.ResponseWriter, r *http.Request) *problem {
	who, p := d.admitted(w, r)
	if p != nil {
		return p
	}
	name := r.URL.Query().Get("view")
	if d.views[name] == nil {
		return refuse(http.StatusBadRequest, "No such view",
			"view %.40q is not known: it is one of now, lock, sessions, shards, doctor", name)
	}
	ctx, leave, err := d.server.Follow(r, who.Principal)
	if err != nil {
		return refuse(http.StatusServiceUnavailable, "Too many pages", "%v", err)
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, liveLife)
	defer cancel()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy that buffers would hold it back
	d.follow(ctx, w, r, name)
	return nil
}

// follow sends what is new until the stream ends, or the page does not read it in time.
func (d *Dashboard) follow(ctx context.Context, w http.ResponseWriter, r *http.Request, name string) {
	control := http.NewResponseController(w)
	defer control.SetWriteDeadline(time.Time{}) //nolint:errcheck // the connection may go on
	send := func(text string) bool {
		_ = control.SetWriteDeadline(time.Now().Add(liveWrite)) // where there are such limits
		_, err := io.WriteString(w, text)
		return err == nil && control.Flush() == nil
	}
	before, sent, reads := uint64(0), time.Now(), send("retry: 3000\n\n")
	for reads {
		who, ok := d.visitor(r)
		if !ok {
			send("event: out\ndata:\n\n")
			return
		}
		begun := time.Now()
		content, err := d.content(ctx, who, name, r)
		pause := max(livePace, livePaceOverTook*time.Since(begun))
		switch {
		case ctx.Err() != nil || err != nil:
			return
		case hashOf(content) != before:
			before, sent = hashOf(content), time.Now()
			reads = send("event: live\ndata: " + strings.NewReplacer("\r", "", "\n", "\ndata: ").Replace(content) + "\n\n")
		case time.Since(sent) >= liveBeat:
			sent = time.Now()
			reads = send(":\n\n")
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// content is the part of a page that changes, as it is now. One stream at a time makes it: whatever the number
// of open pages, they leave time for what else the server does.
func (d *Dashboard) content(ctx context.Context, who visitor, name string, r *http.Request) (string, error) {
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	var b bytes.Buffer
	p, problem := d.views[name](ctx, who, r.URL.Query())
	if problem != nil {
		alerts := []flash{{status: problem.status, Text: problem.title + ": " + problem.Detail}}
		err := d.pages.ExecuteTemplate(&b, "alerts", alerts)
		return b.String(), err
	}
	err := d.pages.ExecuteTemplate(&b, "live", p)
	return b.String(), err
}
