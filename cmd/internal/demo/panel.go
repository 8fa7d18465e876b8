// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"strings"
	"time"
)

// panel returns the picture of the scene.
func (s *screen) panel(c scene, width int) []row {
	if c.stage == nil || len(c.replicas) == 0 {
		return nil
	}
	rows := []row{
		{{strings.Repeat(s.glyphs.line, width-1), faint}},
		append(row{{"  leader   ", faint}}, leaderNow(c)...),
		nil,
	}
	for _, r := range c.replicas {
		rows = append(rows, s.replica(c, r, width))
	}
	return append(rows, nil, append(row{{"  next     ", faint}}, nextNow(c)...))
}

func leaderNow(c scene) row {
	if r := c.leader; r != nil {
		return row{{r.name, bold + green}, {" with ", ""}, {fmt.Sprintf("token %d", r.token), cyan}}
	}
	text := "nobody"
	if r := c.heir; r != nil {
		switch left := c.left(r, c.now); {
		case r.freed:
			text += ": " + r.name + " has released the lock"
		case r.state != "killed":
			text += ": " + r.name + " is about to release the lock"
		case left > 0:
			text += ", while the lease of " + r.name + " has " + inSeconds(left) + " left"
		default:
			text += ": the lease of " + r.name + " has run out"
		}
	} else {
		text += " yet"
	}
	return row{{text, yellow}}
}

func nextNow(c scene) row {
	r := highlight(c.next)
	if !c.due.IsZero() {
		r = append(r, span{" in " + inSeconds(max(0, c.due.Sub(c.now))), ""})
	}
	return r
}

// replica returns the line of one replica: its state, and its lease as a bar
// while that stands.
func (s *screen) replica(c scene, r *replica, width int) row {
	style := map[string]string{
		"leads": bold + green, "killed": bold + red, "ended": faint, "released": faint, "stops": yellow,
	}[r.state]
	line := row{
		{"  " + r.name, bold}, {fmt.Sprintf("  pid %-8d", r.pid), faint}, {fmt.Sprintf("%-11s", r.state), style},
	}
	if r.token == 0 {
		return line
	}
	token := cyan
	if c.leader != r {
		token = faint
	}
	line = append(line, span{fmt.Sprintf("token %d  ", r.token), token})
	left := c.left(r, c.now)
	if c.leader != r && left == 0 {
		return line
	}
	after := fmt.Sprintf(" %5s", inSeconds(left))
	color := green
	if c.leader != r {
		color = yellow
	}
	if left < c.lease/4 {
		color = red
	}
	room := width - 2 - line.width() - len("lease ") - len(after)
	full, empty := s.glyphs.bar(left, c.lease, min(room, 32))
	return append(line, span{"lease ", faint}, span{full, color}, span{empty, faint}, span{after, ""})
}

// glyphs are what the panel is drawn with.
type glyphs struct {
	line  string
	parts []string // of one cell, from almost empty to full
	empty string
}

// glyphsFor returns the glyphs that the locale of the environment can show.
func glyphsFor(env func(string) string) glyphs {
	if localeIsUTF8(env) {
		return glyphs{"─", []string{"▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"}, "░"}
	}
	return glyphs{"-", []string{"#"}, "."}
}

// bar returns a bar of the given length for part of whole, as its full and its
// empty piece.
func (g glyphs) bar(part, whole time.Duration, length int) (full, empty string) {
	n := len(g.parts)
	eighths := int(int64(length*n) * int64(min(part, whole)) / int64(whole))
	full = strings.Repeat(g.parts[n-1], eighths/n)
	cells := eighths / n
	if rest := eighths % n; rest > 0 {
		full += g.parts[rest-1]
		cells++
	}
	return full, strings.Repeat(g.empty, length-cells)
}
