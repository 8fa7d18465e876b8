// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package printable makes text fit for a terminal. What stands in a store was
// written by anybody who may write there: by other lock clients, by hand. It is
// shown as it is as far as it can be printed, and what steers a terminal, turns
// text around or cannot be seen is spelled out, as Go and C would.
package printable

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns s on one line, without anything that a terminal obeys: a rune that
// is not printable is shown as \n, \x1b or \u202e, and a byte that is not UTF-8 as
// \xff.
func Text(s string) string { return replaced(s, fit, spelled) }

// Cell returns s as [Text] does, for a column of a table. A space that cannot be
// told from the space between two columns is spelled, too.
func Cell(s string) string {
	s = Text(s)
	if !strings.HasPrefix(s, " ") && !strings.HasSuffix(s, " ") && !strings.Contains(s, "  ") {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if s[i] == ' ' && (i == 0 || i == len(s)-1 || s[i-1] == ' ') {
			b.WriteString(`\x20`)
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// JSON returns a JSON text that means the same, and has what is not printable
// escaped. The encoder itself does so with the control characters of ASCII alone:
// one of the others has a terminal begin a sequence as ESC [ does.
func JSON(text []byte) []byte {
	return []byte(replaced(string(text), func(r rune, size int) bool { return r < ' ' || fit(r, size) }, escaped))
}

func fit(r rune, size int) bool { return unicode.IsPrint(r) && (r != utf8.RuneError || size > 1) }

// replaced returns s with what is not fit written in another way.
func replaced(s string, fit func(r rune, size int) bool, other func(b []byte, r rune, raw string) []byte) string {
	var b []byte
	done := 0
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if !fit(r, size) {
			b = append(b, s[done:i]...)
			b = other(b, r, s[i:i+size])
			done = i + size
		}
		i += size
	}
	if done == 0 {
		return s
	}
	return string(append(b, s[done:]...))
}

func spelled(b []byte, r rune, raw string) []byte {
	if r == utf8.RuneError { // no UTF-8: U+FFFD itself is printable
		const hex = "0123456789abcdef"
		return append(b, '\\', 'x', hex[raw[0]>>4], hex[raw[0]&15])
	}
	quoted := strconv.QuoteRune(r)
	return append(b, quoted[1:len(quoted)-1]...)
}

func escaped(b []byte, r rune, _ string) []byte {
	const hex = "0123456789abcdef"
	for _, unit := range units(r) {
		b = append(b, '\\', 'u', hex[unit>>12&15], hex[unit>>8&15], hex[unit>>4&15], hex[unit&15])
	}
	return b
}

// units are those of UTF-16, which JSON counts in.
func units(r rune) []rune {
	if r < 0x10000 {
		return []rune{r}
	}
	r -= 0x10000
	return []rune{0xd800 + r>>10, 0xdc00 + r&0x3ff}
}
