// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// checkSnippets finds the Go snippets of pages that do not stand, line by line, in an Example
// of some test file: what readers copy must be what compiles.
func checkSnippets(t *tree) (r report) {
	var examples strings.Builder
	for _, f := range t.files {
		if f.test() && strings.HasPrefix(path.Base(f.path), "example") {
			examples.WriteString("\n" + flatten(string(f.source)))
		}
	}
	for _, page := range t.names(".md") {
		if page != "README.md" && !within(page, "docs") && !within(page, "adapters") {
			continue
		}
		for _, at := range snippet.FindAllStringSubmatchIndex(t.text[page], -1) {
			if !strings.Contains(examples.String(), "\n"+flatten(t.text[page][at[2]:at[3]])) {
				line := 1 + strings.Count(t.text[page][:at[2]], "\n")
				r.add(page, line, "this snippet is not in any example_test.go: copy it from one")
			}
		}
	}
	return r
}

// snippet is a block of Go code in a page.
var snippet = regexp.MustCompile("(?ms)^```go[^\n]*\n(.*?)^```")

// flatten drops indentation and empty lines: a page shows the body of an
// Example without its function.
func flatten(code string) string {
	var b strings.Builder
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

func TestSnippets(t *testing.T) {
	hold(t, checkSnippets)
	for snippet, want := range map[string][]string{
		"```go\na()\nif b {\n\tc()\n}\n```\n": nil,
		"```go\na()\n\nif b {\n```\n":         nil,
		"```sh\nother()\n```\n":               nil,
		"```go\na()\nc()\n```\n":              {"README.md:2: this snippet"},
		"x\n```go\nother()\n```\n":            {"README.md:3: this snippet"},
		"```go\n()\n```\n":                    {"README.md:2: this snippet"},
	} {
		find(t, checkSnippets, map[string]string{
			"README.md":       snippet,
			"example_test.go": "package x\n\nfunc ExampleA() {\n\n\ta()\n\tif b {\n\t\tc()\n\t}\n}\n",
			"other_test.go":   "package x\n\nfunc f() {\n\tother()\n}\n",
		}, want...)
	}
}
