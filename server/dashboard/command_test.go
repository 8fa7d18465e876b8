// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/tenurelock/tenure"
)

func TestCommand(t *testing.T) {
	reason := flag{"reason", "it's slow"}
	for _, c := range []struct {
		kind  tenure.RequestKind
		name  string
		flags []flag
		want  string
	}{
		{tenure.RequestStepDown, "team/nightly", []flag{reason}, `tenure step-down team/nightly --reason='it'\''s slow'`},
		{tenure.RequestHandOver, "a b", []flag{{"to", "web-9"}, reason}, `tenure step-down 'a b' --to=web-9 --reason='it'\''s slow'`},
		{tenure.RequestReleaseDead, "$(reboot)", nil, `tenure release '$(reboot)'`},
		{tenure.RequestRevoke, "x;y", []flag{{"reason", "-f"}}, `tenure release 'x;y' --force --reason=-f`},
		{tenure.RequestStepDown, "grüße 東京", nil, `tenure step-down 'grüße 東京'`},
		{tenure.RequestStepDown, "a\nb\u202ec", nil, `tenure step-down $'a\012b\342\200\256c'`},
		{tenure.RequestStepDown, "-odd", nil, ""},
		{tenure.RequestStepDown, "\xff", nil, ""},
		{tenure.RequestRaise, "x", nil, ""},
	} {
		if got := strings.Join(commandOf(c.kind, c.name, c.flags...), " "); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.kind, c.name, got, c.want)
		}
	}
}

// hostile are words that a shell would take for something else.
var hostile = []string{
	"", " ", "a", "a b", "'", "''", `"`, "\\", `\'`, "$HOME", "`id`", "$(id)", "!!", "*", "?", "~", "#x", "a=b", "=ls", "{a,b}",
	"a;b", "a&b", "a|b", "<a>", "(a)", "[a]", "-x", "--", "a\tb", "a\nb", "\r", "\x1b[31m", "\x007", "x\x017", "grüße", "東京", "\u202e", "\ufffd", "é'\n'", `\n`, "%s", "a,b",
}

func TestQuotedInAShell(t *testing.T) {
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	for _, word := range hostile {
		if strings.Contains(word, "\x00") {
			continue // no command can be given one
		}
		out, err := exec.CommandContext(t.Context(), shell, "-c", "printf '%s|' "+quoted(word)).Output()
		if err != nil || string(out) != word+"|" {
			t.Errorf("%q as %s: the shell has %q, %v", word, quoted(word), out, err)
		}
	}
}

func TestQuotedShowsAll(t *testing.T) {
	for _, word := range hostile {
		if strings.Contains(word, "\ufffd") {
			continue // it can be seen, and may stand for what cannot
		}
		if got := quoted(word); printable(got) != got && !strings.HasPrefix(got, "$'") {
			t.Errorf("%q as %q", word, got)
		}
		for _, r := range quoted(word) {
			if r < ' ' || r == 0x7f || r == 0x202e {
				t.Errorf("%q as %q: what cannot be seen is left in it", word, quoted(word))
			}
		}
	}
}
