// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/printable"
)

// watched is something to look at again and again.
type watched[T any] struct {
	command string // that shows it
	refresh time.Duration
	look    func() (T, error)
	text    func(T, style) string             // of all of it, for a terminal
	changes func(seen T, trouble error) error // writes what has changed, elsewhere
}

// watch looks again and again: on a terminal it redraws all of it, elsewhere,
// and for programs, it writes what changes.
func watch[T any](ctx context.Context, c *console, w watched[T]) error {
	draw := w.changes
	if c.screen >= 0 && !c.json {
		s := &screen{to: c.stdout, fd: c.screen, colour: os.Getenv("NO_COLOR") == "", command: w.command, refresh: w.refresh}
		s.begin()
		defer s.end()
		defer suspendable(func() { s.mu.Lock(); s.end() }, func() { s.begin(); s.mu.Unlock() })()
		draw = func(seen T, trouble error) error {
			return s.draw(func(st style) string { return w.text(seen, st) }, trouble)
		}
	}
	ticker := time.NewTicker(w.refresh)
	defer ticker.Stop()
	var seen T
	for {
		now, err := w.look()
		switch {
		case ctx.Err() != nil || permanent(err):
			return lookFailed(ctx, err)
		case err == nil:
			seen = now
		}
		if err := draw(seen, err); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return lookFailed(ctx, ctx.Err())
		}
	}
}

// watch looks at locks again and again.
func (f *statusCmd) watch(ctx context.Context, c *console, client *tenure.Client, refresh time.Duration) error {
	lines := &changes{to: c.stdout, json: c.json, outages: outages{console: c}, seen: map[string]string{}}
	return watch(ctx, c, watched[[]row]{
		command: "tenure status", refresh: refresh,
		look:    func() ([]row, error) { return look(ctx, client, f.Names) },
		changes: lines.draw,
		text: func(rows []row, st style) string {
			if len(rows) == 0 {
				return "no locks yet\n"
			}
			return table(rows, st)
		},
	})
}

// outages tells when the store gives no answer, and when it does again.
type outages struct {
	console *console
	out     bool
}

// tell returns whether the store gives no answer. A store that was replaced is not asked
// again: the command ends with its error.
func (o *outages) tell(trouble error) bool {
	switch {
	case errors.Is(trouble, tenure.ErrReplaced):
	case trouble != nil && !o.out:
		o.console.warn("the store gives no answer: %s; trying again", flags.OneLine(trouble))
	case trouble == nil && o.out:
		o.console.say("the store answers again")
	}
	o.out = trouble != nil
	return o.out
}

// changes writes what changes, for pipes and logs.
type changes struct {
	to   io.Writer
	json bool
	outages
	seen map[string]string
}

func (v *changes) draw(rows []row, trouble error) error {
	if v.tell(trouble) {
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
		return writeJSON(v.to, r.object(now))
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
	_, err := fmt.Fprintln(v.to, printable.Text(strings.Join(words, " ")))
	return err
}

// screen redraws what there is to see on a terminal of its own (the alternate screen), so
// that what was on it before is there again afterwards.
type screen struct {
	to      io.Writer
	fd      int
	colour  bool
	command string
	refresh time.Duration
	mu      sync.Mutex // held while it is drawn, and while this process is stopped
}

func (s *screen) begin() { fmt.Fprint(s.to, "\x1b[?1049h\x1b[?25l") }
func (s *screen) end()   { fmt.Fprint(s.to, "\x1b[?25h\x1b[?1049l") }

func (s *screen) draw(all func(style) string, trouble error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	width, height, err := term.GetSize(s.fd)
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	st := style{colour: s.colour, width: width, live: true}
	heading := fmt.Sprintf("%s  %s  every %v  Ctrl-C ends it", s.command, time.Now().Format(time.TimeOnly), s.refresh)
	out := []string{fit(heading, width), ""}
	if trouble != nil {
		out = append(out, fit(printable.Text("the store gives no answer: "+flags.OneLine(trouble)), width), "")
	}
	out = append(out, strings.Split(strings.TrimSuffix(all(st), "\n"), "\n")...)
	if hidden := len(out) - (height - 1); hidden > 0 {
		out = append(slices.Clip(out[:len(out)-hidden-1]), fmt.Sprintf("… and %d more", hidden+1))
	}
	// Line by line, without clearing first: that would flicker.
	_, err = fmt.Fprint(s.to, "\x1b[H", strings.Join(out, "\x1b[K\r\n"), "\x1b[K\x1b[J")
	return err
}
