// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os/exec"
	"strings"
	"testing"
)

// The manual page has every command and every flag, and groff has nothing to
// say against it.
func TestManual(t *testing.T) {
	page, err := manual()
	if err != nil {
		t.Fatal(err)
	}
	parser, err := newParser()
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
