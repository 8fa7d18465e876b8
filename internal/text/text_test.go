// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package text

import (
	"slices"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// Two kinds of lock of one name have nothing to do with each other, so what they put behind
// it is never alike.
func TestDerivedNamesNeverMeet(t *testing.T) {
	all := append(slices.Clone(derivedSuffixes), derivedInfixes...)
	for i, one := range all {
		if got := Base("a:b" + one); got != "a:b" && slices.Contains(derivedSuffixes, one) {
			t.Errorf("Base(%q) = %q", "a:b"+one, got)
		}
		for _, other := range all[i+1:] {
			// "a" + ":x" + ":y" would be made of "a:x" by one kind, and of "a" by another one.
			if strings.HasSuffix(one, other) || strings.HasSuffix(other, one) || strings.HasPrefix(one, other+"/") || strings.HasPrefix(other, one+"/") {
				t.Errorf("%q and %q make names that meet", one, other)
			}
		}
	}
}

func TestNames(t *testing.T) {
	for _, tc := range []struct {
		name    string
		asName  string // what is wrong with it as a name
		asKey   string // as a key
		atAll   string // as text
		printed string // by Line
	}{
		{"a name", "", "", "", "a name"},
		{"é日本", "", "", "", "é日本"},
		{"", "thing is empty", "thing is empty", "", ""},
		{"12345678", "", "", "", "12345678"},
		{"123456789012", "has 12 bytes: at most 10", "has 12 bytes: at most 10", "has 12 bytes: at most 10", "123456789012"},
		{driver.OwnPrefix + "x", "for records of Tenure itself", "for records of Tenure itself", "", driver.OwnPrefix + "x"},
		{"a\xff", "not valid UTF-8", "not valid UTF-8", "not valid UTF-8", "a"},
		{" a", "a space at byte 0", "", "", " a"},
		{"é  ", "a space at byte 2", "", "", "é  "},
		{" ", "a space at byte 0", "", "", " "},
		{"a\x1b[2J", "U+001B at byte 1", "", "U+001B at byte 1", "a[2J"},
		{"a\nb", "U+000A at byte 1", "", "U+000A at byte 1", "a b"},
		{"a\u00a0b", "U+00A0 at byte 1", "", "U+00A0 at byte 1", "a b"},
		{"a\u200bb", "U+200B at byte 1", "", "U+200B at byte 1", "ab"},
		{"a\u202eb", "U+202E at byte 1", "", "U+202E at byte 1", "ab"},
	} {
		want := func(what string, err error, text string) {
			t.Helper()
			if (err == nil) != (text == "") || err != nil && !strings.Contains(err.Error(), text) {
				t.Errorf("%q as a %s: %v, want %q", tc.name, what, err, text)
			}
		}
		want("name", CheckName("thing", tc.name, 10), tc.asName)
		want("key", CheckKey("thing", tc.name, 10), tc.asKey)
		want("text", Check("thing", tc.name, 10), tc.atAll)
		if got := Line(tc.name); got != tc.printed {
			t.Errorf("%q as a line is %q, want %q", tc.name, got, tc.printed)
		}
		if err := Check("line", Line(tc.name), 100); err != nil {
			t.Error(err)
		}
	}
}
