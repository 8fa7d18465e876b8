// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
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
	text    func(T, style) string // of all of it, for a terminal
	items   func(T) []item        // whose changes are written elsewhere
	gone    func(key string) item // what to write of one that there is no more; nil: nothing
}

// item is a part of what is watched.
type item struct {
	key    string
	state  string                   // it has changed when this has
	text   string                   // for people, a line
	object func(seen time.Time) any // for programs
}

// watch looks again and again: on a terminal it redraws all of it, elsewhere,
// and for programs, it writes what changes.
func watch[T any](ctx context.Context, c *console, w watched[T]) error {
	lines := &changes{gone: w.gone, outages: outages{console: c}}
	draw := func(seen T, trouble error) {
		if !lines.tell(trouble) {
			lines.draw(w.items(seen))
		}
	}
	if c.screen >= 0 && !c.json {
		s := &screen{c: c, colour: os.Getenv("NO_COLOR") == "", command: w.command, refresh: w.refresh}
		s.begin()
		defer s.end()
		defer suspendable(func() { s.mu.Lock(); s.end() }, func() { s.begin(); s.mu.Unlock() })()
		draw = func(seen T, trouble error) {
			s.draw(func(st style) string { return w.text(seen, st) }, trouble)
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
		draw(seen, err)
		if err := c.output(nil); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return lookFailed(ctx, ctx.Err())
		}
	}
}

func (f *statusCmd) watch(ctx context.Context, c *console, client *tenure.Client) error {
	return watch(ctx, c, watched[[]row]{
		command: "tenure status", refresh: f.Refresh,
		look: func() ([]row, error) { return look(ctx, client, f.Names) },
		text: func(rows []row, st style) string {
			if len(rows) == 0 {
				return "no locks yet\n"
			}
			return table(rows, st)
		},
		items: func(rows []row) (all []item) {
			for _, r := range rows {
				all = append(all, r.item())
			}
			return all
		},
		gone: func(name string) item { return rowOf(tenure.Status{Name: name}).item() }, // it was deleted
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

// changes writes what changes, for pipes, logs and programs.
type changes struct {
	gone func(key string) item
	outages
	seen map[string]string // the state of each item
}

func (v *changes) draw(items []item) {
	now, before := time.Now(), v.seen
	v.seen = make(map[string]string, len(items))
	for _, one := range items {
		if _, twice := v.seen[one.key]; twice {
			continue
		}
		v.seen[one.key] = one.state
		if before[one.key] != one.state {
			v.write(one, now)
		}
	}
	for key := range before {
		if _, there := v.seen[key]; !there && v.gone != nil {
			v.write(v.gone(key), now)
		}
	}
}

func (v *changes) write(one item, now time.Time) {
	if v.console.json {
		v.console.object(one.object(now))
		return
	}
	v.console.put(now.Format(time.TimeOnly) + " " + printable.Text(one.text) + "\n")
}

func (r row) item() item {
	words := []string{r.Name + ":", r.state}
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
	return item{
		key: r.Name, state: fmt.Sprint(r.state, r.Owner, r.Token, r.Since, r.Until, r.err),
		text: strings.Join(words, " "), object: func(seen time.Time) any { return r.object(seen) },
	}
}

// screen redraws what there is to see on a terminal of its own (the alternate screen), so
// that what was on it before is there again afterwards.
type screen struct {
	c       *console
	colour  bool
	command string
	refresh time.Duration
	mu      sync.Mutex // held while it is drawn, and while this process is stopped
}

func (s *screen) begin() { s.c.put("\x1b[?1049h\x1b[?25l") }
func (s *screen) end()   { s.c.put("\x1b[?25h\x1b[?1049l") }

func (s *screen) draw(all func(style) string, trouble error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	width, height, err := term.GetSize(s.c.screen)
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
	s.c.put("\x1b[H" + strings.Join(out, "\x1b[K\r\n") + "\x1b[K\x1b[J")
}
