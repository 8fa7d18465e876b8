// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"os/exec"
	"strings"
	"testing"
)

func TestCommand(t *testing.T) {
	for _, c := range []struct {
		act        int
		name, want string
	}{
		{0, "team/nightly", `tenure step-down team/nightly`},
		{1, "a b", `tenure step-down 'a b'`},
		{2, "$(reboot)", `tenure release '$(reboot)'`},
		{3, "x;y", `tenure release 'x;y' --force`},
		{0, "grüße 東京", `tenure step-down 'grüße 東京'`},
		{0, "a\nb\u202ec", `tenure step-down $'a\012b\342\200\256c'`},
		{0, "-odd", ""},
		{0, "\xff", ""},
	} {
		if got := strings.Join(acts[c.act].commandFor(c.name), " "); got != c.want {
			t.Errorf("%s %q: %s, want %s", acts[c.act].Kind, c.name, got, c.want)
		}
	}
}

// A shell has each word as it was, and a reader sees all of it.
func TestQuoted(t *testing.T) {
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	for _, word := range []string{
		"", " ", "a", "a b", "'", "''", `"`, "\\", `\'`, "$HOME", "`id`", "$(id)", "!!", "*", "?", "~", "#x", "a=b",
		"=ls", "{a,b}",
		"a;b", "a&b", "a|b", "<a>", "(a)", "[a]", "-x", "--", "a\tb", "a\nb", "\r", "\x1b[31m", "x\x017",
		"grüße", "東京", "\u202e", "\ufffd", "é'\n'", `\n`, "%s", "a,b",
	} {
		got := quoted(word)
		out, err := exec.CommandContext(t.Context(), shell, "-c", "printf '%s|' "+got).Output()
		if err != nil || string(out) != word+"|" {
			t.Errorf("%q as %s: the shell has %q, %v", word, got, out, err)
		}
		if printable(got) != got {
			t.Errorf("%q as %q: what cannot be seen is left in it", word, got)
		}
	}
}
