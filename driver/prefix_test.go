// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

func TestCheckPrefix(t *testing.T) {
	reserved := func(part string) bool { return part == "r" }
	for prefix, want := range map[string]string{
		"":         "an empty part at position 1",
		"/":        "an empty part at position 1",
		"//a/":     "an empty part at position 2",
		"a//b/":    "an empty part at position 3",
		"ü//b/":    "an empty part at position 3",
		"a//":      "an empty part at position 3",
		"/a//":     "an empty part at position 4",
		"./a/":     `the part "." at position 1`,
		"a/./b":    `the part "." at position 3`,
		"/a/..":    `the part ".." at position 4`,
		"a/b\n/":   `'\n' at position 4`,
		"a/b /c":   `' ' at position 4`,
		"a/\u00a0": `'\u00a0' at position 3`,
		" a":       `' ' at position 1`,
		"a\x7fb":   `'\x7f' at position 2`,
		"a/r/":     `the part "r" at position 3`,
		"/a/r/b":   `the part "r" at position 4`,
	} {
		if err := driver.CheckPrefix(prefix, reserved); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %s", prefix, err, want)
		}
	}
	for _, prefix := range []string{"a", "a/", "/a", "/a/", "r/", "/r", "a/b c/...", "a/.b/rr"} {
		if err := driver.CheckPrefix(prefix, reserved); err != nil {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}
