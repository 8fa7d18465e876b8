// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CheckPrefix returns what is wrong with the prefix of a store's names in an engine that
// others use too: keys in etcd, nodes in ZooKeeper, objects in a bucket. The prefix has
// parts separated by single slashes, and may begin and end with a slash. Engines compare
// it byte by byte: "a//b", "a/./b" and "a/b " are other stores than "a/b", though people
// read the same. So no part is empty, "." or "..", has control characters, or has white
// space at its ends.
//
// Reserved reports the parts that stores themselves use directly below their prefix. Such
// a part is refused unless it is the first: a store with a shorter prefix would find the
// records of this one among its own.
//
// The error has the position of the character or the part in the prefix, from 1.
func CheckPrefix(prefix string, reserved func(part string) bool) error {
	begin := 1
	rest := prefix
	if behind, slash := strings.CutPrefix(rest, "/"); slash && behind != "" {
		begin, rest = 2, behind
	}
	for n, part := range strings.Split(strings.TrimSuffix(rest, "/"), "/") {
		switch {
		case part == "":
			return fmt.Errorf("it has an empty part at position %d: write one slash between its parts", begin)
		case part == "." || part == "..":
			return fmt.Errorf("it has the part %q at position %d: no engine resolves it, so it would be another store: leave it out", part, begin)
		case n > 0 && reserved(part):
			return fmt.Errorf("it has the part %q at position %d: a store above it keeps its own records there: take another name", part, begin)
		}
		trimmed := strings.TrimSpace(part)
		from := strings.Index(part, trimmed)
		at := begin
		for i, r := range part {
			if i < from || i >= from+len(trimmed) || unicode.IsControl(r) {
				return fmt.Errorf("it has %q at position %d: remove it", r, at)
			}
			at++
		}
		begin += utf8.RuneCountInString(part) + 1
	}
	return nil
}
