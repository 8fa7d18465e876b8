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

var goTest = regexp.MustCompile(`^(?:\./(?:(.*)/)?)?((?:Test|Fuzz|Example)\w*)(?:/(\S+))?$`)

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

// The last cell of each row names tests, and that of the table's head their folder.
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
		rows, dir, lines := 0, "", strings.Split(string(text), "\n")
		for i, line := range lines {
			cells := strings.Split(line, " | ")
			names := codePattern.FindAllString(cells[len(cells)-1], -1)
			if len(cells) < 2 || strings.HasPrefix(line, "| ---") {
				continue
			}
			if strings.HasPrefix(lines[i+1], "| ---") {
				dir = path.Clean(strings.Trim(strings.Join(names, ""), "`"))
				continue
			}
			if rows++; len(names) == 0 && !strings.Contains(line, "| none: its code is gone") {
				t.Errorf("%s:%d: this row names no test", page, i+1)
			}
			for _, name := range names {
				if name = strings.Trim(name, "`"); !hasTest(repo, dir, name) {
					t.Errorf("%s:%d: there is no test %s", page, i+1, name)
				}
			}
		}
		if err != nil || rows < 200 {
			t.Errorf("%s: only %d rows were found: %v", page, rows, err)
		}
	}
}
