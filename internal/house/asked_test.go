// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// askedPage says what users of other libraries ask for, and which test shows it.
const askedPage = "docs/evidence/asked-for.md"

var (
	// wish begins an entry of the page.
	wish = regexp.MustCompile(`^## (\d+)\. `)
	// namedTests are tests, in code and separated by words, with the file in which they are.
	namedTests = regexp.MustCompile("(`Test\\w+`(?:(?:,|\\s+and)\\s+`Test\\w+`)*)\\s+\\(`([^`]+)`\\)")
	testName   = regexp.MustCompile("`(Test\\w+)`")
	// answer is in each entry.
	answer = regexp.MustCompile(`\*\*(Yes|In part|No)\*\*`)
)

// checkAsked returns a finding for each test that the page names and that is not in the file
// it names, and for each wish without an answer, without a thread, or without a test. It also
// returns how many tests it has found.
func checkAsked(fsys fs.FS, page string) (found []string, seen int, err error) {
	text, err := fs.ReadFile(fsys, page)
	if err != nil {
		return nil, 0, err
	}
	var r report
	parts := strings.Split(string(text), "\n## ")
	line := 1 + strings.Count(parts[0], "\n")
	for i, part := range parts[1:] {
		line++
		entry := "## " + part
		if m := wish.FindStringSubmatch(entry); m == nil || m[1] != fmt.Sprint(i+1) {
			r.add(page, line, "this entry is not number %d", i+1)
		}
		if !answer.MatchString(entry) {
			r.add(page, line, "this wish has no answer: write **Yes**, **In part** or **No**")
		}
		if !strings.Contains(entry, "#") || !regexp.MustCompile(`[\w.-]+/[\w.-]+#\d+`).MatchString(entry) {
			r.add(page, line, "this wish names no thread")
		}
		named := map[string]bool{}
		for _, m := range namedTests.FindAllStringSubmatch(entry, -1) {
			source, err := fs.ReadFile(fsys, path.Clean(m[2]))
			if err != nil {
				r.add(page, line, "%s is named, and is not there", m[2])
			}
			for _, test := range testName.FindAllStringSubmatch(m[1], -1) {
				named[test[1]] = true
				if strings.Contains(string(source), "\nfunc "+test[1]+"(t *testing.T) {") {
					seen++
				} else if err == nil {
					r.add(page, line, "%s has no %s", m[2], test[1])
				}
			}
		}
		if len(named) == 0 {
			r.add(page, line, "this wish has no test: name one as `TestName` (`file_test.go`)")
		}
		for _, test := range testName.FindAllStringSubmatch(entry, -1) {
			if !named[test[1]] {
				r.add(page, line, "%s is named without its file", test[1])
			}
		}
		line += strings.Count(part, "\n")
	}
	return r, seen, nil
}

func TestAskedFor(t *testing.T) {
	repo, err := checkout()
	if err != nil {
		t.Fatal(err)
	}
	if repo.work == nil && os.Getenv("TENURE_REQUIRE_ENGINES") == "" {
		t.Skip("not a checkout: the tests of other modules are not there")
	}
	found, seen, err := checkAsked(os.DirFS("../.."), askedPage)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
	if seen < 40 {
		t.Errorf("only %d tests were found", seen)
	}
}

func TestCheckAsked(t *testing.T) {
	const good = "## 1. A wish\n\n3 threads: a/b#1.\n\n**Yes**. `TestA` and\n`TestB` (`x/a_test.go`).\n"
	for _, c := range []struct {
		name, old, new, want string
	}{
		{"good", "", "", ""},
		{"another number", "## 1.", "## 2.", "page.md:2: this entry is not number 1"},
		{"no answer", "**Yes**.", "Yes.", "page.md:2: this wish has no answer"},
		{"no thread", "a/b#1", "a/b", "page.md:2: this wish names no thread"},
		{"no such test", "`TestB`", "`TestC`", "page.md:2: x/a_test.go has no TestC"},
		{"no such file", "x/a_test.go", "x/b_test.go", "page.md:2: x/b_test.go is named"},
		{"not the whole name", "`TestB`", "`TestBefore`", "page.md:2: x/a_test.go has no TestBefore"},
		{"a test without its file", "3 threads", "`TestA`; 3 threads: `TestD`", "page.md:2: TestD is named without its file"},
		{"no test", " `TestA` and\n`TestB` (`x/a_test.go`).", "", "page.md:2: this wish has no test"},
	} {
		fsys := fstest.MapFS{
			"page.md":       {Data: []byte("Title\n" + strings.Replace(good, c.old, c.new, 1))},
			"x/a_test.go":   {Data: []byte("package x\n\nfunc TestA(t *testing.T) {\n}\n\nfunc TestB(t *testing.T) {\n}\n")},
			"another/x.txt": {},
		}
		found, _, err := checkAsked(fsys, "page.md")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(found, "\n"); c.want == "" && got != "" || !strings.HasPrefix(got, c.want) || strings.Contains(got, "\n") {
			t.Errorf("%s: found %q, want %q", c.name, got, c.want)
		}
	}
}
