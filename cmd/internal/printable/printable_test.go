// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package printable_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/tenurelock/tenure/cmd/internal/printable"
)

func TestText(t *testing.T) {
	for s, want := range map[string]string{
		"": "",
		"web-7 grüße 東京 e\u0301 \ufffd 🎉": "web-7 grüße 東京 e\u0301 \ufffd 🎉",
		"\x1b[31mPWN\nfake":               `\x1b[31mPWN\nfake`,
		"\x1b]0;title\a":                  `\x1b]0;title\a`,
		"a\rb\tc\x00\x7f":                 `a\rb\tc\x00\x7f`,
		"\u009b31m":                       `\u009b31m`, // one character that begins a sequence, too
		"a\u202eb\u200bc":                 `a\u202eb\u200bc`,
		"\u2028\u2029\ufeff\ufffe":        `\u2028\u2029\ufeff\ufffe`,
		"a\u00a0b":                        `a\u00a0b`, // looks like a space, but is not a space
		"\U000e0041":                      `\U000e0041`,
		"\xffz\xe2\x80":                   `\xffz\xe2\x80`,
	} {
		if got := printable.Text(s); got != want {
			t.Errorf("Text(%q) = %s, want %s", s, got, want)
		}
	}
}

func TestCell(t *testing.T) {
	for s, want := range map[string]string{
		"a b c":       "a b c",
		" a":          `\x20a`,
		"a ":          `a\x20`,
		"x  held   y": `x \x20held \x20\x20y`,
		"a\nb":        `a\nb`,
		" ":           `\x20`,
	} {
		if got := printable.Cell(s); got != want {
			t.Errorf("Cell(%q) = %s, want %s", s, got, want)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	for _, s := range []string{"web-7", "\x1b[31m", "\u009b\u202e\U000e0041\xff", "a  b\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, text := range []string{printable.Text(s), printable.Cell(s)} {
			if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%q is shown as %q", s, text)
			}
		}
		if cell := printable.Cell(s); strings.Contains(cell, "  ") || strings.TrimSpace(cell) != cell {
			t.Errorf("%q makes the cell %q", s, cell)
		}
		plain, err := json.Marshal(map[string]string{s: s})
		if err != nil {
			t.Fatal(err)
		}
		text := printable.JSON(plain)
		var before, after map[string]string
		if err := json.Unmarshal(plain, &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &after); err != nil {
			t.Fatalf("%q is no JSON: %v", text, err)
		}
		for k, v := range before {
			if after[k] != v || len(after) != 1 {
				t.Errorf("%q means something else than %q", text, plain)
			}
		}
		if strings.ContainsFunc(string(text), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q is not printable", text)
		}
	})
}
