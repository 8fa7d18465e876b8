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
	Names         []label
	Ticks         []label
	Boxes         []box
	Marks         []label
	from, to      int64
}

// box is a span of time.
type box struct {
	X, Y, W, H           float64
	Class, Title, Letter string
}

// label is a word at an instant, or beside a row.
type label struct {
	X, Y                float64
	Class, Title, Label string
}

// shapes are where the boxes of a class are in their row, and how high.
var shapes = map[string]struct{ y, h float64 }{
	"alive": {12, 14}, "elsewhere": {12, 14}, "held": {8, 22}, "paused": {8, 22}, "blind": {8, 22}, "engine": {12, 14},
	"cut": {33, 6},
}

// heights are where the marks of a class are.
var heights = map[string]float64{"kill": 19, "wall": 7, "ask": 7, "refused": 42, "past": 42}

func (r *round) draw(v *verdict) *timeline {
	t := &timeline{
		Width: drawn, Height: headRow + rowStep*float64(len(r.seats)+1) + 4, from: r.began, to: r.ended,
	}
	length := time.Duration(r.ended - r.began)
	step := 5 * time.Second
	for length/step > 16 {
		step *= 2
	}
	for at := time.Duration(0); at < length; at += step {
		t.Ticks = append(t.Ticks, label{X: t.x(r.began + int64(at)), Label: fmt.Sprintf("%d s", at/time.Second)})
	}
	for _, s := range r.seats {
		t.Names = append(t.Names, label{Y: y(s.index), Label: s.name})
		for _, p := range s.lives {
			class, where := "alive", ""
			if p.where != nil {
				class = "elsewhere"
				where = fmt.Sprintf(", in a time namespace: monotonic +%d s, boot +%d s", p.where.Monotonic, p.where.Boot)
			}
			t.box(s.index, p.began, p.end, class, fmt.Sprintf("%s runs from %s to %s; its clocks are %+.1f %% fast%s",
				p.name, t.at(p.began), t.at(p.end), 100*p.rate, where), "")
		}
	}
	t.Names = append(t.Names, label{Y: y(len(r.seats)), Label: r.Engine})
	for _, h := range v.Tenancies {
		title := fmt.Sprintf("%s has the lock under token %d, from %s; its last check passed at %s", h.Owner,
			h.Token, t.at(h.Begin), t.at(h.Last))
		if h.End != "" {
			title += "; ended: " + h.End
		}
		b := t.box(h.Seat, h.Begin, h.Last, "held", title, fmt.Sprint(h.Token))
		b.Class += fmt.Sprintf(" s%d", h.Seat%5)
	}
	for _, e := range r.events {
		row, look := e.Seat, traits[e.Kind]
		if row < 0 {
			row = len(r.seats)
		}
		if _, spans := shapes[look.class]; spans {
			t.box(row, e.From, e.To, look.class, t.at(e.From)+": "+e.Text, look.label)
		} else {
			t.mark(row, e.From, look.class, t.at(e.From)+": "+e.Text, look.label)
		}
		if e.Blind[1] > 0 {
			t.box(row, e.Blind[0], e.Blind[1], "blind", "no clock shows the pause yet", "")
		}
	}
	for _, e := range v.Late {
		class, what := "past", "let in by the fence"
		if e.Refused {
			class, what = "refused", "refused by the fence"
		}
		t.mark(r.seatIndex(e.Owner), e.Came, class,
			fmt.Sprintf("late: under token %d, %s at %s", e.Token, what, t.at(e.Came)), "▴")
	}
	for _, x := range v.Violations {
		if x.Sin == trial.Overlap {
			b := t.box(0, x.From, x.To, "red", x.Text, "")
			b.Y, b.W, b.H = headRow, max(b.W, 3), t.Height-headRow
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

// box leaves the letters out where they have no room.
func (t *timeline) box(row int, from, to int64, class, title, letters string) *box {
	shape := shapes[class]
	b := box{X: t.x(from), Y: y(row) + shape.y, H: shape.h, Class: class, Title: title, Letter: letters}
	b.W = max(1, t.x(to)-b.X)
	if b.W < 7*float64(len(letters))+4 {
		b.Letter = ""
	}
	t.Boxes = append(t.Boxes, b)
	return &t.Boxes[len(t.Boxes)-1]
}

func (t *timeline) mark(row int, at int64, class, title, letter string) {
	t.Marks = append(t.Marks, label{t.x(at), y(row) + heights[class], class, title, letter})
}
