// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package recordcodec

// The quick way to read an object. Records are read at each poll of each waiter, and
// encoding/json takes twenty times as long to return the undecoded members of an
// object.

// scan returns the members of an object of JSON, as [Encode] mostly writes it: without
// spaces, escapes, words such as null, exponents, and repeated names. It reports any
// other text, also an invalid one, as not plain.
func scan(text string) (members []member, plain bool) {
	members = make([]member, 0, usual)
	end := scanObject(text, 0, 0, func(name, raw string) bool {
		if has(members, name) {
			return false
		}
		members = append(members, member{name: name, raw: raw})
		return true
	})
	return members, end == len(text) && end > 0
}

const (
	// usual is how many members the text of a record has at most, mostly.
	usual = 14
	// deepest is how many objects and lists may be within each other.
	deepest = 8
	// notPlain is where a value ends that scan leaves to others.
	notPlain = -1
)

// scanValue returns where the value that begins at i ends.
func scanValue(text string, i, depth int) int {
	switch {
	case i >= len(text) || depth > deepest:
		return notPlain
	case text[i] == '"':
		return scanString(text, i)
	case text[i] == '{':
		return scanObject(text, i, depth, func(string, string) bool { return true })
	case text[i] == '[':
		return scanList(text, i, depth)
	}
	return scanNumber(text, i)
}

// scanString returns where the string that begins at i ends.
func scanString(text string, i int) int {
	if i >= len(text) || text[i] != '"' {
		return notPlain
	}
	for i++; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return i + 1
		case c == '\\' || c < ' ':
			return notPlain
		}
	}
	return notPlain
}

// scanNumber returns where the number that begins at i ends, which is one without an
// exponent.
func scanNumber(text string, i int) int {
	if i < len(text) && text[i] == '-' {
		i++
	}
	digits := func() bool {
		begin := i
		for i < len(text) && '0' <= text[i] && text[i] <= '9' {
			i++
		}
		return i > begin
	}
	first := i
	if !digits() || text[first] == '0' && i > first+1 {
		return notPlain
	}
	if i < len(text) && text[i] == '.' {
		if i++; !digits() {
			return notPlain
		}
	}
	return i // what follows is no comma and no bracket, if the number goes on
}

// scanList returns where the list that begins at i ends.
func scanList(text string, i, depth int) int {
	if i++; i < len(text) && text[i] == ']' {
		return i + 1
	}
	for {
		i = scanValue(text, i, depth+1)
		switch {
		case i == notPlain || i >= len(text):
			return notPlain
		case text[i] == ']':
			return i + 1
		case text[i] != ',':
			return notPlain
		}
		i++
	}
}

// scanObject returns where the object that begins at i ends. It calls a function with each
// member, and stops when the function says so.
func scanObject(text string, i, depth int, member func(name, raw string) bool) int {
	if i >= len(text) || text[i] != '{' {
		return notPlain
	}
	if i++; i < len(text) && text[i] == '}' {
		return i + 1
	}
	for {
		colon := scanString(text, i)
		if colon == notPlain || colon >= len(text) || text[colon] != ':' {
			return notPlain
		}
		end := scanValue(text, colon+1, depth+1)
		if end == notPlain || end >= len(text) || !member(text[i+1:colon-1], text[colon+1:end]) {
			return notPlain
		}
		switch text[end] {
		case '}':
			return end + 1
		case ',':
			i = end + 1
		default:
			return notPlain
		}
	}
}
