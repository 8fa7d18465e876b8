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
		{0, "a\nb", ""},
		{0, "-odd", ""},
		{0, "\xff", ""},
	} {
		if got := strings.Join(acts[c.act].commandFor(c.name), " "); got != c.want {
			t.Errorf("%s %q: %s, want %s", acts[c.act].Kind, c.name, got, c.want)
		}
	}
}

// A shell has each word as it was.
func TestQuoted(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no shell")
	}
	for _, word := range []string{
		"", " ", "a", "a b", "'", "''", `"`, "\\", `\'`, "$HOME", "`id`", "$(id)", "!!", "*", "?", "~", "#x", "a=b",
		"=ls", "{a,b}", "a;b", "a&b", "a|b", "<a>", "(a)", "[a]", "-x", "--", "grüße", "東京", `\n`, "%s", "a,b",
	} {
		out, err := exec.CommandContext(t.Context(), shell, "-c", "printf '%s|' "+quoted(word)).Output()
		if err != nil || string(out) != word+"|" {
			t.Errorf("%q as %s: the shell has %q, %v", word, quoted(word), out, err)
		}
	}
}
