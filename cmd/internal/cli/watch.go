// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/tenurelock/tenure"
)

// watch looks again and again: on a terminal it redraws the table, elsewhere it
// writes a line for each change.
func (f *statusCmd) watch(ctx context.Context, c *console, client *tenure.Client, refresh time.Duration) error {
	var view interface {
		draw(rows []row, trouble error) error
	} = &changes{to: c.stdout, json: f.JSON, console: c, seen: map[string]string{}}
	if c.screen >= 0 && !f.JSON {
		s := &screen{to: c.stdout, fd: c.screen, colour: os.Getenv("NO_COLOR") == "", refresh: refresh}
		s.begin()
		defer s.end()
		defer suspendable(func() { s.mu.Lock(); s.end() }, func() { s.begin(); s.mu.Unlock() })()
		view = s
	}
	ticker := time.NewTicker(refresh)
	defer ticker.Stop()
	var rows []row
	for {
		now, err := look(ctx, client, f.Names)
		switch {
		case ctx.Err() != nil || permanent(err):
			return lookFailed(ctx, err)
		case err == nil:
			rows = now
		}
		if err := view.draw(rows, err); err != nil {
			return fmt.Errorf("standard output: %w", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return lookFailed(ctx, ctx.Err())
		}
	}
}

// changes writes what changes, for pipes and logs.
type changes struct {
	to      io.Writer
	json    bool
	console *console
	seen    map[string]string
	trouble bool
}

func (v *changes) draw(rows []row, trouble error) error {
	switch {
	case trouble != nil && !v.trouble:
		v.console.warn("the store gives no answer: %s; trying again", oneLine(trouble))
	case trouble == nil && v.trouble:
		v.console.say("the store answers again")
	}
	v.trouble = trouble != nil
	if v.trouble {
		return nil
	}
	now := time.Now()
	present := map[string]bool{}
	for _, r := range rows {
		present[r.Name] = true
		state := fmt.Sprint(r.state, r.Owner, r.Token, r.Since, r.Until, r.err)
		if v.seen[r.Name] == state {
			continue
		}
		v.seen[r.Name] = state
		if err := v.line(r, now); err != nil {
			return err
		}
	}
	for name := range v.seen {
		if !present[name] { // deleted
			delete(v.seen, name)
			if err := v.line(rowOf(tenure.Status{Name: name}), now); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v *changes) line(r row, now time.Time) error {
	if v.json {
		return r.writeJSON(v.to, now)
	}
	words := []string{now.Format(time.TimeOnly), r.Name + ":", r.state}
	if r.Token > 0 {
		if r.state == stateHeld || r.state == stateExpired {
			words = append(words, "by", r.Owner)
		} else {
			words = append(words, "after", r.Owner)
		}
		words = append(words, "under token "+formatToken(r.Token))
	}
	for _, part := range []struct{ what, value string }{{"on", r.Host}, {"label", r.Label}} {
		if part.value != "" {
			words = append(words, part.what, part.value)
		}
	}
	if r.err != nil {
		words = append(words, "("+reasonText(r.err)+")")
	}
	_, err := fmt.Fprintln(v.to, strings.Join(words, " "))
	return err
}

// screen redraws the table on a terminal of its own (the alternate screen), so
// that what was on it before is there again afterwards.
type screen struct {
	to      io.Writer
	fd      int
	colour  bool
	refresh time.Duration
	mu      sync.Mutex // held while it is drawn, and while this process is stopped
}

func (s *screen) begin() { fmt.Fprint(s.to, "\x1b[?1049h\x1b[?25l") }
func (s *screen) end()   { fmt.Fprint(s.to, "\x1b[?25h\x1b[?1049l") }

func (s *screen) draw(rows []row, trouble error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	width, height, err := term.GetSize(s.fd)
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	st := style{colour: s.colour, width: width, live: true}
	heading := fmt.Sprintf("tenure status  %s  every %v  Ctrl-C ends it", time.Now().Format(time.TimeOnly), s.refresh)
	out := []string{fit(heading, width), ""}
	if trouble != nil {
		out = append(out, fit("the store gives no answer: "+oneLine(trouble), width), "")
	}
	text := table(rows, st)
	if text == "" {
		text = "no locks yet\n"
	}
	out = append(out, strings.Split(strings.TrimSuffix(text, "\n"), "\n")...)
	if hidden := len(out) - (height - 1); hidden > 0 {
		out = append(slices.Clip(out[:len(out)-hidden-1]), fmt.Sprintf("… and %d more", hidden+1))
	}
	// Line by line, without clearing first: that would flicker.
	_, err = fmt.Fprint(s.to, "\x1b[H", strings.Join(out, "\x1b[K\r\n"), "\x1b[K\x1b[J")
	return err
}
