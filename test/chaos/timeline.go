// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"time"

	"github.com/tenurelock/tenure/test/chaos/trial"
)

// Measures of the drawing, in its own units.
const (
	drawn   = 1180.0 // width
	gutter  = 96.0   // for the names of rows
	rowStep = 46.0
	headRow = 26.0 // for the axis
)

// timeline is the drawing of a round: a row for each seat, and one for the engine.
type timeline struct {
	Width, Height float64
	Shapes        []shape
	from, to      int64
}

// shape is a span of time; or a word at an instant or beside a row, if it has no width.
type shape struct {
	X, Y, W, H         float64
	Class, Text, Title string
}

// spans are where the spans of a class are in their row, and how high.
var spans = map[string]struct{ y, h float64 }{
	"alive": {12, 14}, "elsewhere": {12, 14}, "held": {8, 22}, "paused": {8, 22}, "blind": {8, 22}, "engine": {12, 14},
	"cut": {33, 6},
}

// heights are where the words of a class are.
var heights = map[string]float64{"name": 23, "kill": 24, "wall": 12, "ask": 12, "refused": 45, "past": 45}

func (r *round) draw(v *verdict) *timeline {
	t := &timeline{
		Width: drawn, Height: headRow + rowStep*float64(len(r.seats)+1) + 4, from: r.began, to: r.ended,
	}
	for at := r.began; at < r.ended; at += int64(5 * time.Second) {
		t.Shapes = append(t.Shapes, shape{X: t.x(at), Y: 14, Class: "tick", Text: t.at(at)})
	}
	for _, s := range r.seats {
		t.word(s.index, r.began, "name", s.name, "")
		for _, p := range s.lives {
			class, where := "alive", ""
			if p.where != nil {
				class = "elsewhere"
				where = fmt.Sprintf(", in a time namespace: monotonic +%d s, boot +%d s", p.where.Monotonic, p.where.Boot)
			}
			t.span(s.index, p.began, p.end, class, "", fmt.Sprintf("%s runs from %s to %s; its clocks are %+.1f %% fast%s",
				p.name, t.at(p.began), t.at(p.end), 100*p.rate, where))
		}
	}
	t.word(len(r.seats), r.began, "name", r.Engine, "")
	for _, h := range v.Tenancies {
		t.span(h.Seat, h.Begin, h.Last, "held", fmt.Sprint(h.Token), fmt.Sprintf(
			"%s has %s under token %d, from %s; its last check passed at %s; ended: %s", h.Owner, h.Lock, h.Token,
			t.at(h.Begin), t.at(h.Last), h.End))
	}
	for _, e := range r.events {
		row, look := e.Seat, traits[e.Kind]
		if row < 0 {
			row = len(r.seats)
		}
		if title := t.at(e.From) + ": " + e.Text; spans[look.class].h > 0 {
			t.span(row, e.From, e.To, look.class, look.label, title)
		} else {
			t.word(row, e.From, look.class, look.label, title)
		}
		if e.Blind[1] > 0 {
			t.span(row, e.Blind[0], e.Blind[1], "blind", "", "no clock shows the pause yet")
		}
	}
	for _, e := range v.Late {
		class := "past"
		if e.Refused {
			class = "refused"
		}
		t.word(r.seatIndex(e.Owner), e.Came, class, "▴",
			fmt.Sprintf("late: under token %d, at %s; refused by the fence: %v", e.Token, t.at(e.Came), e.Refused))
	}
	for _, x := range v.Violations {
		if x.Sin == trial.Overlap {
			t.Shapes = append(t.Shapes, shape{
				t.x(x.From), headRow, max(3, t.x(x.To)-t.x(x.From)), t.Height - headRow, "red", "", x.Text,
			})
		}
	}
	return t
}

func (t *timeline) x(at int64) float64 {
	share := float64(at-t.from) / float64(max(1, t.to-t.from))
	return gutter + (drawn-gutter-6)*min(1, max(0, share))
}

func y(row int) float64 { return headRow + rowStep*float64(row) }

func (t *timeline) at(at int64) string {
	return fmt.Sprintf("%.3f s", time.Duration(at-t.from).Seconds())
}

// span leaves the text out where it has no room.
func (t *timeline) span(row int, from, to int64, class, text, title string) {
	s := shape{t.x(from), y(row) + spans[class].y, 0, spans[class].h, class, text, title}
	s.W = max(1, t.x(to)-s.X)
	if s.W < 7*float64(len(text))+4 {
		s.Text = ""
	}
	t.Shapes = append(t.Shapes, s)
}

func (t *timeline) word(row int, at int64, class, text, title string) {
	x := t.x(at)
	if class == "name" {
		x = 2
	}
	t.Shapes = append(t.Shapes, shape{X: x, Y: y(row) + heights[class], Class: class, Text: text, Title: title})
}
