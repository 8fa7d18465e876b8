// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenurelock/tenure/evidence/chaos/trial"
)

// Measures of the drawing, in its own units.
const (
	drawn   = 1180.0 // width
	gutter  = 76.0   // for the names of rows
	rowStep = 46.0
	headRow = 26.0 // for the axis
)

// timeline is the drawing of a round: a row for each replica, and one for the
// engine.
type timeline struct {
	Width, Height, Gutter float64
	Rows                  []row
	Ticks                 []tick
	Reds                  []box // overlaps, over all rows
	from, to              int64
}

type row struct {
	Name  string
	Y     float64
	Boxes []box
	Marks []mark
}

// box is a span of time.
type box struct {
	X, Y, W, H           float64
	Class, Title, Letter string
}

// mark is an instant.
type mark struct {
	X, Y                 float64
	Class, Title, Letter string
}

type tick struct {
	X     float64
	Label string
}

func (r *round) draw(v *verdict) *timeline {
	t := &timeline{
		Width: drawn, Gutter: gutter, Height: headRow + rowStep*float64(len(r.seats)+1) + 4,
		from: r.began, to: r.ended,
	}
	length := time.Duration(r.ended - r.began)
	step := 5 * time.Second
	for length/step > 16 {
		step *= 2
	}
	for at := time.Duration(0); at < length; at += step {
		t.Ticks = append(t.Ticks, tick{t.x(r.began + int64(at)), fmt.Sprintf("%d s", at/time.Second)})
	}
	for _, s := range r.seats {
		t.Rows = append(t.Rows, r.drawSeat(t, v, s))
	}
	last := row{Name: r.Engine, Y: t.y(len(r.seats))}
	for _, e := range r.events {
		switch e.Kind {
		case lockFile, stopEngine, restartEngine:
			last.Boxes = append(last.Boxes, t.box(last.Y+12, 14, e.From, e.To, "engine", t.tell(e), string(e.Kind)))
		case loseReplies:
			if e.On == "everybody" {
				last.Boxes = append(last.Boxes, t.box(last.Y+12, 14, e.From, e.To, "cut", t.tell(e), string(e.Kind)))
			}
		}
	}
	t.Rows = append(t.Rows, last)
	for _, x := range v.Violations {
		if x.Sin == trial.Overlap {
			red := t.box(headRow, t.Height-headRow, x.From, x.To, "red", x.Text, "")
			red.W = max(red.W, 3)
			t.Reds = append(t.Reds, red)
		}
	}
	return t
}

func (r *round) drawSeat(t *timeline, v *verdict, s *seat) row {
	w := row{Name: s.name, Y: t.y(s.index)}
	for _, p := range s.lives {
		where := ""
		if p.where != nil {
			where = fmt.Sprintf(", in a time namespace: monotonic +%d s, boot +%d s", p.where.Monotonic, p.where.Boot)
		}
		class := "alive"
		if p.where != nil {
			class = "alive elsewhere"
		}
		w.Boxes = append(w.Boxes, t.box(w.Y+12, 14, p.began, p.end, class,
			fmt.Sprintf("%s runs from %s to %s; its clocks are %+.1f %% fast%s", p.name, t.at(p.began),
				t.at(p.end), 100*p.rate, where), ""))
	}
	for _, h := range v.Tenancies {
		if h.Seat != s.index {
			continue
		}
		title := fmt.Sprintf("%s has the lock under token %d, from %s; its last check passed at %s", h.Process,
			h.Token, t.at(h.To), t.at(h.Last))
		if h.End != "" {
			title += "; ended: " + h.End
		}
		class := fmt.Sprintf("held s%d", s.index%5)
		w.Boxes = append(w.Boxes, t.box(w.Y+8, 22, h.To, h.Last, class, title, fmt.Sprint(h.Token)))
	}
	for _, e := range r.events {
		if e.Seat != s.index {
			continue
		}
		switch e.Kind {
		case stop, suspend, pauseVM, lateVM:
			letter := map[kind]string{stop: "", suspend: "suspend", pauseVM: "vm", lateVM: "vm, late"}[e.Kind]
			w.Boxes = append(w.Boxes, t.box(w.Y+8, 22, e.From, e.To, "paused", t.tell(e), letter))
			if e.Blind[1] > 0 {
				w.Boxes = append(w.Boxes,
					t.box(w.Y+8, 22, e.Blind[0], e.Blind[1], "blind", "no clock shows the pause yet", ""))
			}
		case blackHole, delay, loseReplies:
			w.Boxes = append(w.Boxes, t.box(w.Y+33, 6, e.From, e.To, "cut", t.tell(e), ""))
		case kill, namespace:
			w.Marks = append(w.Marks, mark{t.x(e.From), w.Y + 19, "kill", t.tell(e), "✕"})
		case wallOn:
			w.Marks = append(w.Marks, mark{t.x(e.From), w.Y + 7, "wall", t.tell(e), "»"})
		case wallBack:
			w.Marks = append(w.Marks, mark{t.x(e.From), w.Y + 7, "wall", t.tell(e), "«"})
		case stepDown:
			w.Marks = append(w.Marks, mark{t.x(e.From), w.Y + 7, "ask", t.tell(e), "▾"})
		}
	}
	for _, e := range v.Late {
		if life(e.Owner) != s.name {
			continue
		}
		class, what := "past", "let in by the fence"
		if e.Refused {
			class, what = "refused", "refused by the fence"
		}
		w.Marks = append(w.Marks, mark{
			t.x(e.Came), w.Y + 42, class,
			fmt.Sprintf("late: under token %d, %s at %s", e.Token, what, t.at(e.Came)), "▴",
		})
	}
	slices.SortFunc(w.Marks, func(a, b mark) int { return int(a.X - b.X) })
	return w
}

func (t *timeline) x(at int64) float64 {
	share := float64(at-t.from) / float64(max(1, t.to-t.from))
	return gutter + (drawn-gutter-6)*min(1, max(0, share))
}

func (t *timeline) y(row int) float64 { return headRow + rowStep*float64(row) }

func (t *timeline) at(at int64) string {
	return fmt.Sprintf("%.3f s", time.Duration(at-t.from).Seconds())
}

func (t *timeline) tell(e event) string { return t.at(e.From) + ": " + e.Text }

// box leaves the letters out where they have no room.
func (t *timeline) box(y, h float64, from, to int64, class, title, letters string) box {
	b := box{X: t.x(from), Y: y, H: h, Class: class, Title: title, Letter: letters}
	b.W = max(1, t.x(to)-b.X)
	if b.W < 7*float64(len(letters))+4 {
		b.Letter = ""
	}
	return b
}
