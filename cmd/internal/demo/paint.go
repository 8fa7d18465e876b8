// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// Styles are the parameters of the escape sequence, of the 16 colours that
// every terminal lets its user choose. Bold and faint remain with NO_COLOR.
const (
	bold   = "1;"
	faint  = "2;"
	red    = "31;"
	green  = "32;"
	yellow = "33;"
	cyan   = "36;"
)

// span is a piece of a line in one style. Each of its characters takes one
// cell of the screen.
type span struct{ text, style string }

// row is a line.
type row []span

func (r row) width() int {
	n := 0
	for _, s := range r {
		n += utf8.RuneCountInString(s.text)
	}
	return n
}

// cut returns the row with at most the given width.
func (r row) cut(width int) row {
	var short row
	for _, s := range r {
		runes := []rune(s.text)
		n := min(len(runes), width)
		short = append(short, span{string(runes[:n]), s.style})
		width -= n
	}
	return short
}

// painter turns rows into text for a terminal.
type painter struct{ color bool }

func (p painter) row(r row) string {
	var b strings.Builder
	for _, s := range r {
		style := s.style
		if !p.color {
			style = colors.ReplaceAllString(style, "")
		}
		if style == "" || s.text == "" {
			b.WriteString(s.text)
			continue
		}
		b.WriteString("\x1b[" + strings.TrimSuffix(style, ";") + "m" + s.text + "\x1b[m")
	}
	return b.String()
}

var (
	colors = regexp.MustCompile(`3[0-7];`)
	words  = regexp.MustCompile(`replica-\d+|token \d+|SIGKILL|SIGTERM|TOKEN .*|^  tenure \S+|^  docs\S+|killed: expired`)
)

// highlight gives the words that matter in a line their styles.
func highlight(line string) row {
	var r row
	at := 0
	for _, m := range words.FindAllStringIndex(line, -1) {
		word := line[m[0]:m[1]]
		style := bold
		switch {
		case strings.HasPrefix(word, "token "):
			style = cyan
		case strings.HasPrefix(word, "TOKEN"):
			style = faint
		case word == "SIGKILL" || strings.HasPrefix(word, "killed"):
			style = red
		case word == "SIGTERM":
			style = yellow
		}
		r = append(r, span{line[at:m[0]], ""}, span{word, style})
		at = m[1]
	}
	return append(r, span{line[at:], ""})
}

// wrap breaks a text into lines of at most the given width, between words.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
