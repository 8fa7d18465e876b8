// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package flags

import "testing"

func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"tenure: lease is bad\ngrace is bad, too": "lease is bad; grace is bad, too",
		"a\r\n\r\nb":               "a; b",
		"no server:\n\ta: x\n\tb:": "no server: a: x; b:",
		"\n":                       "",
	} {
		if got := OneLine(Usage("%s", text)); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
