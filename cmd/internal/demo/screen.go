// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// A terminal smaller than this gets plain lines.
const (
	leastWidth  = 60
	leastHeight = 16
	// mostWidth is the length above which lines are hard to read.
	mostWidth = 100
)

// screen shows a demo on a terminal. What is said stays, as in plain; below it
// is a panel that is drawn again and again, and taken away at the end.
type screen struct {
	out     io.Writer
	width   func() int // of the terminal, now
	restore func()     // gives the terminal back as it was
	paint   painter
	glyphs  glyphs
	scene   scene // the last one
	closed  bool

	rows  []row  // the panel, as it is on the screen; the cursor is at its end
	shown string // the same, painted
	drawn int    // the width of the terminal then
}

// newScreen returns false if out is not a terminal for a live view.
func newScreen(in, out *os.File, env func(string) string) (*screen, bool) {
	if !term.IsTerminal(int(out.Fd())) || env("TERM") == "dumb" {
		return nil, false
	}
	if width, height, err := term.GetSize(int(out.Fd())); err != nil || width < leastWidth || height < leastHeight {
		return nil, false
	}
	if !interpretsEscapes(out) {
		return nil, false
	}
	width := func() int {
		width, _, err := term.GetSize(int(out.Fd()))
		if err != nil || width < 2 {
			return 80
		}
		return width
	}
	s := &screen{
		out: out, width: width, restore: takeKeys(in),
		paint: painter{color: env("NO_COLOR") == ""}, glyphs: glyphsFor(env),
	}
	fmt.Fprint(out, hideCursor)
	return s, true
}

// Escape sequences. A terminal that does not know synchronized output takes no
// notice of it.
const (
	beginFrame = "\x1b[?2026h"
	endFrame   = "\x1b[?2026l"
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	eraseLine  = "\x1b[K" // from the cursor to its end
	eraseBelow = "\x1b[J"
)

func (s *screen) report(report) {}

func (s *screen) draw(c scene) {
	s.scene = c
	s.put(nil)
}

func (s *screen) say(at time.Duration, text string) {
	const indent = 9
	var lines []row
	for i, line := range wrap(text, min(s.width(), mostWidth)-indent) {
		head := ""
		if i == 0 {
			head = inSeconds(at)
		}
		lines = append(lines, append(row{{fmt.Sprintf("%7s  ", head), faint}}, highlight(line)...))
	}
	s.put(lines)
}

func (s *screen) tell(lines []string) {
	for _, line := range lines {
		if !strings.HasPrefix(line, " ") {
			line = strings.Join(wrap(line, s.width()-1), "\n")
		}
		fmt.Fprintln(s.out, s.paint.row(highlight(line)))
	}
}

// put writes lines that stay, and below them the panel, in one piece.
func (s *screen) put(lines []row) {
	if s.closed {
		return
	}
	width := s.width()
	rows := s.panel(s.scene, min(width, mostWidth))
	var panel strings.Builder
	for i, r := range rows {
		if i > 0 {
			panel.WriteString("\r\n")
		}
		panel.WriteString(s.paint.row(r.cut(width-1)) + eraseLine)
	}
	if len(lines) == 0 && panel.String() == s.shown && width == s.drawn {
		return
	}
	var b strings.Builder
	b.WriteString(beginFrame + s.home(width))
	for _, l := range lines {
		b.WriteString(s.paint.row(l) + eraseLine + "\r\n")
	}
	b.WriteString(panel.String() + eraseBelow + endFrame)
	s.rows, s.shown, s.drawn = rows, panel.String(), width
	fmt.Fprint(s.out, b.String())
}

// home returns what brings the cursor to the beginning of the panel. If the
// terminal has become narrower, it has broken the panel's lines.
func (s *screen) home(width int) string {
	up := -1
	for _, r := range s.rows {
		up += 1 + max(0, min(r.width(), s.drawn-1)-1)/width
	}
	if up <= 0 {
		return "\r"
	}
	return fmt.Sprintf("\x1b[%dA\r", up)
}

// close takes the panel away, and gives the terminal back as it was.
func (s *screen) close() {
	if s.closed {
		return
	}
	s.closed = true
	fmt.Fprint(s.out, s.home(s.width())+eraseBelow+showCursor)
	s.restore()
}
