// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
	"github.com/mattn/go-runewidth"

	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/guard"
)

// Flags that another page explains share a line.
var flagInHelp = regexp.MustCompile(`(?m)^  (?:(-\w), |    )(--[a-z-]+(?:, --[a-z-]+)*)`)

// The help is written by hand; the flags that it lists are those that there
// are, and no line is wider than a terminal.
func TestHelpListsFlags(t *testing.T) {
	var g grammar
	parser, err := kong.New(&g, kong.NoDefaultHelp())
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range parser.Model.Children {
		text, known := helpOf(command.Name)
		if command.Hidden {
			if known {
				t.Errorf("%s is hidden, and has help", command.Name)
			}
			continue
		}
		if !known {
			t.Errorf("%s has no help", command.Name)
			continue
		}
		var want, have []string
		for _, f := range allFlags(command) {
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
		want = slices.Compact(want) // of parts that share one
		slices.Sort(have)
		if d := cmp.Diff(want, have); d != "" {
			t.Errorf("flags of %s (- are, + in the help):\n%s", command.Name, d)
		}
		if !strings.Contains(text, "\nExit status:\n") || !strings.Contains(text, "\nExamples:\n") {
			t.Errorf("the help of %s lacks exit statuses or examples", command.Name)
		}
	}
	files, err := helpTexts.ReadDir("help")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		command := strings.TrimSuffix(file.Name(), ".txt")
		b, err := helpTexts.ReadFile("help/" + file.Name())
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("help of %q: %d columns: %s", command, n, line)
			}
		}
	}
}

// allFlags returns the flags of a command, and of the commands that it has.
func allFlags(command *kong.Node) []*kong.Flag {
	all := slices.Clone(command.Flags)
	for _, part := range command.Children {
		all = append(all, allFlags(part)...)
	}
	return all
}

func TestPauseDoubles(t *testing.T) {
	for _, tc := range []struct {
		pause    time.Duration
		failures int
		want     time.Duration
	}{
		{time.Second, 0, time.Second},
		{time.Second, 1, time.Second},
		{time.Second, 2, 2 * time.Second},
		{time.Second, 4, 8 * time.Second},
		{time.Second, 7, time.Minute},
		{time.Second, 1 << 40, time.Minute},
		{0, 1000, 0},
		{time.Hour, 3, time.Hour}, // a longer pause that was asked for stays
	} {
		l := leadCmd{Pause: tc.pause}
		if d := l.pause(tc.failures); d != tc.want {
			t.Errorf("pause %v after %d failures is %v, want %v", tc.pause, tc.failures, d, tc.want)
		}
	}
}

// A Chinese character takes two columns, and a combining character takes none.
func TestWideCharacters(t *testing.T) {
	lines := layout([][]string{
		{"LOCK", "STATE", "OWNER"}, {"東京", "held", "a"}, {"e\u0301te\u0301", "held", "b"}, {"x", "held", "c"},
	}, 0)
	want := []string{"LOCK  STATE  OWNER", "東京  held   a", "e\u0301te\u0301   held   b", "x     held   c"}
	if d := cmp.Diff(want, lines); d != "" {
		t.Errorf("columns (- want, + got):\n%s", d)
	}
	for width := 2; width < 14; width++ {
		text := fit("東京東京東京", width)
		if n := runewidth.StringWidth(text); n >= width || width < 13 && !strings.HasSuffix(text, "…") {
			t.Errorf("fit to %d: %q has %d columns", width, text, n)
		}
	}
}

// A parser that repaired such a name would make one lock of two.
func TestInvalidUTF8IsRefused(t *testing.T) {
	for _, head := range [][]string{{"run", "z\xfe"}, {"status", "--store", "sqlite:b\xff.db"}} {
		err := execute(newConsole(os.Stdout, os.Stderr), head, operands{given: true, words: []string{"true"}})
		if flags.StatusOf(err) != statusUsage || !strings.Contains(err.Error(), "is not valid UTF-8") {
			t.Errorf("%q: %v", head, err)
		}
	}
}

// The manual page has every command and every flag, and groff has nothing to
// say against it.
func TestManual(t *testing.T) {
	page, err := manual()
	if err != nil {
		t.Fatal(err)
	}
	parser, err := newParser(new(grammar))
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for section := range strings.SplitSeq(page, "\n.SH ") {
		title, text, _ := strings.Cut(section, "\n")
		sections[title] = text
	}
	for _, name := range names(parser.Model.Node) {
		title := strings.ToUpper(escaped("tenure " + name))
		text, ok := sections[title]
		if !ok {
			t.Errorf("no section %q", title)
			continue
		}
		for _, n := range parser.Model.Children {
			for _, f := range allFlags(n) {
				if n.Name != name {
					continue
				}
				flag := escaped("--" + f.Name)
				if !strings.Contains(text, "\\fB"+flag) && !strings.Contains(text, ", "+flag) {
					t.Errorf("%s: no entry for --%s", name, f.Name)
				}
			}
		}
		if !strings.Contains(text, "\n.SS Exit status\n") || !strings.Contains(text, "\n.EX\n") {
			t.Errorf("%s: no exit statuses, or no examples", name)
		}
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("groff is not installed: the page was not formatted")
	}
	cmd := exec.CommandContext(t.Context(), groff, "-man", "-ww", "-Tutf8", "-z")
	cmd.Stdin = strings.NewReader(page)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("groff: %v\n%s", err, out)
	}
}

// The command is killed half a grace before others may begin: killing takes time, too.
func TestLimits(t *testing.T) {
	const now = guard.Instant(1000)
	for _, test := range []struct{ remaining, grace time.Duration }{
		{10 * time.Second, 2 * time.Second}, {time.Nanosecond, time.Minute}, {time.Hour, 1}, {time.Second, 0},
	} {
		l, ok := limitsAt(now, test.remaining, test.grace)
		if !ok {
			t.Errorf("%+v: refused", test)
		}
		expiry := now.Add(test.remaining + test.grace)
		want := guard.Limits{Term: now.Add(test.remaining), Kill: expiry.Add(-test.grace / 2), Expiry: expiry}
		if l != want {
			t.Errorf("%+v: %+v, want %+v", test, l, want)
		}
		if l.Term > l.Kill || l.Kill > l.Expiry {
			t.Errorf("%+v: out of order: %+v", test, l)
		}
	}
	for _, remaining := range []time.Duration{0, -1} {
		if l, ok := limitsAt(now, remaining, time.Second); ok {
			t.Errorf("with %v left it may live until %+v", remaining, l)
		}
	}
}

// What --on-elected may have set up, --on-lost undoes, also if the limits passed during the start.
func TestMayHaveBegun(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{nil, true},
		{fmt.Errorf("here: %w", guard.ErrOverdue), true},
		{guard.ErrTooLate, false},
		{guard.ErrGuardian, false},
		{guard.ErrNotFound, false},
	} {
		if got := mayHaveBegun(tc.err); got != tc.want {
			t.Errorf("%v: %v, want %v", tc.err, got, tc.want)
		}
	}
}
