// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// checkSnippets returns a finding for each Go snippet of a page that does not
// stand, line by line, in an Example of some test file: what readers copy must
// be what compiles.
func checkSnippets(fsys fs.FS, pages ...string) ([]string, error) {
	examples, err := exampleText(fsys)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, page := range pages {
		text, err := fs.ReadFile(fsys, page)
		if err != nil {
			return nil, err
		}
		for line, snippet := range snippets(string(text)) {
			if !strings.Contains(examples, "\n"+flatten(snippet)) {
				found = append(found, fmt.Sprintf("%s:%d: this snippet is not in any example_test.go: copy it from one", page, line))
			}
		}
	}
	return found, nil
}

// exampleText returns all files named example*_test.go, flattened.
func exampleText(fsys fs.FS) (string, error) {
	var all strings.Builder
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() || !strings.HasPrefix(base, "example") || !strings.HasSuffix(base, "_test.go") {
			return nil
		}
		b, err := fs.ReadFile(fsys, name)
		all.WriteString("\n" + flatten(string(b)))
		return err
	})
	return all.String(), err
}

// snippets returns the Go code blocks of a page by the line at which they begin.
func snippets(page string) map[int]string {
	found := map[int]string{}
	start := 0
	var block strings.Builder
	for i, line := range strings.Split(page, "\n") {
		switch {
		case start == 0 && strings.HasPrefix(line, "```go"):
			start = i + 2
			block.Reset()
		case start != 0 && strings.HasPrefix(line, "```"):
			found[start] = block.String()
			start = 0
		case start != 0:
			block.WriteString(line + "\n")
		}
	}
	return found
}

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

func TestSnippetsAreExamples(t *testing.T) {
	tree := os.DirFS("../..")
	pages, err := pagesOf(tree)
	if err != nil {
		t.Fatal(err)
	}
	pages = slices.DeleteFunc(pages, func(page string) bool {
		return page != "README.md" && !strings.HasPrefix(page, "docs/") && !strings.HasPrefix(page, "adapters/")
	})
	if len(pages) < 10 {
		t.Fatalf("only the pages %q were found", pages)
	}
	found, err := checkSnippets(tree, pages...)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if len(snippets(string(text))) == 0 {
		t.Error("README.md shows no Go code")
	}
}

func TestCheckSnippets(t *testing.T) {
	tree := func(page string) fstest.MapFS {
		return fstest.MapFS{
			"README.md":       {Data: []byte(page)},
			"example_test.go": {Data: []byte("func ExampleA() {\n\n\ta()\n\tif b {\n\t\tc()\n\t}\n}\n")},
			"other_test.go":   {Data: []byte("\tother()\n")},
		}
	}
	for page, want := range map[string]int{
		"text":                                  0,
		"```go\na()\nif b {\n\tc()\n}\n```\n":   0,
		"```go\na()\n\nif b {\n```\n":           0,
		"```go\na()\nc()\n```\n":                1,
		"```go\nother()\n```\n":                 1,
		"```go\n()\n```\n":                      1,
		"```sh\nother()\n```\n":                 0,
		"x\n```go\nno()\n```\n```go\nno()\n```": 2,
	} {
		found, err := checkSnippets(tree(page), "README.md")
		if err != nil || len(found) != want {
			t.Errorf("page %q: findings %q, %v; want %d", page, found, err, want)
		}
	}
}
