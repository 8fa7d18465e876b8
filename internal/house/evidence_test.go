// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	goTest = regexp.MustCompile(`^(?:\./(?:(.*)/)?)?((?:Test|Fuzz|Example)\w*)(?:/(\S+))?$`)
	// An item of a list ends with its tests; the line above the list names their folder.
	testFolder = regexp.MustCompile("(?:^|, )[Ii]n `([^`]+)`:$")
	testItem   = regexp.MustCompile("^- .*?: (?:only: )?((?:`[^`]+`(?:, |$))+|none: its code is gone)$")
)

// hasTest reports whether there is a Go test, a client's test or a script of the name.
func hasTest(repo *tree, dir, name string) bool {
	if m := goTest.FindStringSubmatch(name); m != nil {
		if strings.HasPrefix(name, "./") {
			dir = path.Clean(m[1])
		}
		declared, sub := false, m[3] == ""
		for _, f := range repo.files {
			in := f.test() && f.dir() == dir
			declared = declared || in && bytes.Contains(f.source, []byte("\nfunc "+m[2]+"("))
			sub = sub || (in || f.dir() == "drivertest") && bytes.Contains(f.source, []byte(`"`+path.Base(m[3])))
		}
		return declared && sub
	}
	file, test, _ := strings.Cut(name, ": ")
	for _, pattern := range []string{name, dir + "/testdata/" + name, "clients/*/*/" + file, "clients/*/*/*/*/*/*/*/" + file} {
		files, _ := filepath.Glob("../../" + pattern)
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err == nil && (test == "" || regexp.MustCompile(`(def |class |void |> |\(")`+test+`\b`).Match(text)) {
				return true
			}
		}
	}
	return false
}

func TestNamedTestsAreThere(t *testing.T) {
	repo, err := checkout()
	if err != nil {
		t.Fatal(err)
	}
	if repo.work == nil && os.Getenv("TENURE_REQUIRE_ENGINES") == "" {
		t.Skip("not a checkout: the tests of other modules are not there")
	}
	for _, page := range []string{"docs/evidence/capabilities.md", "docs/evidence/bugs-found.md"} {
		text, err := os.ReadFile("../../" + page)
		items, dir := 0, ""
		for i, line := range strings.Split(string(text), "\n") {
			if m := testFolder.FindStringSubmatch(line); m != nil {
				dir = path.Clean(m[1])
			}
			if !strings.HasPrefix(line, "- ") {
				continue
			}
			items++
			tests := testItem.FindStringSubmatch(line)
			if tests == nil {
				t.Errorf("%s:%d: this item names no test", page, i+1)
				continue
			}
			for _, name := range codePattern.FindAllString(tests[1], -1) {
				if name = strings.Trim(name, "`"); !hasTest(repo, dir, name) {
					t.Errorf("%s:%d: there is no test %s", page, i+1, name)
				}
			}
		}
		if err != nil || items < 200 {
			t.Errorf("%s: only %d items were found: %v", page, items, err)
		}
	}
}
