// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tenurelock/tenure"
)

// commandOf returns the words of the command that does the same as an act, as a person would
// type them into a shell; none if there is no such command, because it takes no name that
// begins with a dash. Flags are those that have a text yet.
func commandOf(kind tenure.RequestKind, name string, flags ...flag) []string {
	if strings.HasPrefix(name, "-") || !utf8.ValidString(name) {
		return nil
	}
	words := []string{"tenure"}
	switch kind {
	case tenure.RequestStepDown, tenure.RequestHandOver:
		words = append(words, "step-down", quoted(name))
	case tenure.RequestReleaseDead:
		words = append(words, "release", quoted(name))
	case tenure.RequestRevoke:
		words = append(words, "release", quoted(name), "--force")
	default:
		return nil
	}
	for _, f := range flags {
		// With "=", so that a text that begins with a dash is not taken for a flag.
		words = append(words, "--"+f.name+"="+quoted(f.text))
	}
	return words
}

// flag is a flag of a command, and its text.
type flag struct{ name, text string }

// quoted returns s as one word of a POSIX shell. What cannot be seen is spelled, in the
// form that bash, zsh, ksh and the shells of POSIX 2024 know.
func quoted(s string) string {
	plain, visible := s != "", true
	for _, r := range s {
		plain = plain && (unicode.IsDigit(r) && r < utf8.RuneSelf || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || strings.ContainsRune("_-./:@%+,", r))
		visible = visible && r != utf8.RuneError && unicode.IsPrint(r)
	}
	switch {
	case plain:
		return s
	case visible:
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\'' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case size > 1 && unicode.IsPrint(r), size == 1 && r != utf8.RuneError && unicode.IsPrint(r):
			b.WriteString(s[i : i+size])
		default:
			for _, c := range []byte(s[i : i+size]) {
				// Of three digits: what follows is no part of it.
				fmt.Fprintf(&b, `\%03o`, c)
			}
		}
		i += size
	}
	b.WriteByte('\'')
	return b.String()
}
