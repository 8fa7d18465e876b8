// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
)

// Flags that another page explains share a line.
var flagInHelp = regexp.MustCompile(`(?m)^  (?:(-\w), |    )(--[a-z-]+(?:, --[a-z-]+)*)`)

// The help is written by hand; the flags that it lists are those that there are, and no
// line is wider than a terminal.
func TestHelpListsFlags(t *testing.T) {
	parser, err := kong.New(new(grammar), kong.NoDefaultHelp())
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range parser.Model.Children {
		topic := command.Name
		if command.Name == "serve" {
			topic = ""
		}
		text := helpOf(topic)
		if text == "" || !strings.Contains(text, "\nExit status:\n") || !strings.Contains(text, "\nExamples:\n") {
			t.Errorf("%q has no help with exit statuses and examples", topic)
		}
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("help of %q: %d columns: %s", topic, n, line)
			}
		}
		if command.Name == "check" {
			continue // it refers to those of the service, which it embeds
		}
		var want, have []string
		for _, f := range command.Flags {
			short := ""
			if f.Short != 0 {
				short = "-" + string(f.Short)
			}
			want = append(want, short+" --"+f.Name)
		}
		_, list, _ := strings.Cut(text, "\nFlags:\n")
		list, _, _ = strings.Cut(list, "\n\n")
		for _, m := range flagInHelp.FindAllStringSubmatch(list, -1) {
			for flag := range strings.SplitSeq(m[2], ", ") {
				have = append(have, m[1]+" "+flag)
			}
		}
		slices.Sort(want)
		slices.Sort(have)
		if d := cmp.Diff(want, have); d != "" {
			t.Errorf("flags of %q (- are, + in the help):\n%s", topic, d)
		}
	}
}
