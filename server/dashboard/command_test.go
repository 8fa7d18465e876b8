// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
)

// A shell reads the command of an act as it was meant.
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
	for _, word := range []string{
		"", "a b", "'", "''", `"`, "\\", `\'`, "$HOME", "`id`", "$(id)", "!!", "*", "?", "~", "#x", "=ls", "{a,b}", "a;b",
		"a&b", "a|b", "<a>", "(a)", "[a]", "-x", "東京", `\n`, "%s", "a,b",
	} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf '%s|' "+quoted(word)).Output()
		if errors.Is(err, exec.ErrNotFound) {
			t.Skip("there is no shell")
		}
		if err != nil || string(out) != word+"|" {
			t.Errorf("%q as %s: the shell has %q, %v", word, quoted(word), out, err)
		}
	}
}
