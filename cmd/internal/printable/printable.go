// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package printable makes text safe for a terminal. Anyone with write access, such
// as other lock clients or people, may have written the texts in a store. Printable
// text is shown unchanged; characters that control a terminal, reverse text or are
// invisible are escaped as in Go and C.
package printable

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns s on one line, without anything that a terminal obeys: a rune that
// is not printable is shown as \n, \x1b or \u202e, and a byte that is not UTF-8 as
// \xff.
func Text(s string) string {
	return replaced(s, fit, func(raw string) string {
		quoted := strconv.Quote(raw)
		return quoted[1 : len(quoted)-1]
	})
}

// Cell returns s as [Text] does, for a column of a table. A space that looks like
// the space between two columns is escaped, too.
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

// JSON returns an equivalent JSON text in which unprintable characters are escaped. The
// encoder itself escapes only the control characters of ASCII, but another one begins a
// sequence on a terminal, as ESC [ does.
func JSON(text []byte) []byte {
	fitOrEscaped := func(r rune, size int) bool { return r < ' ' || fit(r, size) }
	return []byte(replaced(string(text), fitOrEscaped, func(raw string) (escaped string) {
		for _, unit := range utf16.Encode([]rune(raw)) {
			escaped += fmt.Sprintf(`\u%04x`, unit)
		}
		return escaped
	}))
}

func fit(r rune, size int) bool { return unicode.IsPrint(r) && (r != utf8.RuneError || size > 1) }

// replaced returns s with what is not fit written in another way.
func replaced(s string, fit func(r rune, size int) bool, other func(raw string) string) string {
	var b strings.Builder
	for begin, size := 0, 0; begin < len(s); begin += size {
		var r rune
		r, size = utf8.DecodeRuneInString(s[begin:])
		raw := s[begin : begin+size]
		if !fit(r, size) {
			raw = other(raw)
		}
		b.WriteString(raw)
	}
	return b.String()
}
