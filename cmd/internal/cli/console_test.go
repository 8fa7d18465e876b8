// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/lines"
)

// ours are the codes that this program itself gives a terminal: colours, and what
// clears a line.
var ours = regexp.MustCompile("\x1b\\[(?:[0-9;]*m|K)|\r")

// On a terminal, too, only what can be printed is shown of what others have
// written: by what is said, by the line that waits, and in the log, whose handler
// has a mind of its own about what is spelled as an escape code.
func TestTerminalShowsPrintableTextAlone(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	for _, evil := range []string{
		"\x1b[31mPWN\nfake\r\u202e\u2028\u009b31m\xff", `spelled \x1b]0;title\a and \x1b[2J`, "\x1b]52;c;cm0=\a x",
	} {
		var b bytes.Buffer
		c := &console{terminal: true, screen: -1, stderr: lines.New(&b)}
		c.set(outputFlags{Verbose: true})
		st := tenure.Status{Owner: evil, Token: 3, Lease: 15 * time.Second, Heartbeat: 3 * time.Second}
		c.say("held by %s", evil)
		c.warn("%s", evil)
		c.show("%s", evil)
		c.show("%s", c.fitting(waitingTexts(evil, st, true, time.Second)...))
		c.log.Error("lost", "owner", evil, "error", errors.New(evil), "lock", evil)
		c.log.With("lock", evil).Info(evil)
		c.fail(errors.New(evil), "")
		c.stderr.Close(time.Minute)
		text := b.String()
		if n := strings.Count(text, "\n"); n != 5 {
			t.Errorf("%q makes %d lines, want 5:\n%q", evil, n, text)
		}
		if strings.Contains(text, "\x1b[31mPWN") {
			t.Errorf("%q colours text: %q", evil, text)
		}
		for line := range strings.Lines(ours.ReplaceAllString(text, "")) {
			if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%q is shown as %q", evil, line)
			}
		}
	}
}

func TestTableOfHostileText(t *testing.T) {
	evil := "x\n\x1b[2Jfake  held  root\r\u202e"
	rows := []row{rowOf(tenure.Status{Name: evil, Held: true, Owner: evil, Token: 1, Host: evil, Label: evil})}
	for _, st := range []style{plain, {colour: true, width: 60, live: true}} {
		text := ours.ReplaceAllString(table(rows, st), "")
		if n := strings.Count(text, "\n"); n != 2 || strings.ContainsAny(text, "\x1b\r\u202e") || strings.Contains(text, "fake  held") {
			t.Errorf("shown as\n%q", text)
		}
	}
}
