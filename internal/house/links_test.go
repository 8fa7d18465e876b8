// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode"
)

// pagesOf returns the Markdown files of the tree.
func pagesOf(fsys fs.FS) ([]string, error) { return textFiles(fsys, ".md") }

// textFiles returns the files whose names end in one of the endings, without
// the folders that Go and people ignore.
func textFiles(fsys fs.FS, endings ...string) ([]string, error) {
	var list []string
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules"):
			return fs.SkipDir
		case !d.IsDir() && slices.ContainsFunc(endings, func(e string) bool { return strings.HasSuffix(name, e) }):
			list = append(list, name)
		}
		return nil
	})
	return list, err
}

var (
	linkPattern = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	codePattern = regexp.MustCompile("`[^`]*`")
	// pagePattern finds the paths of our pages in source, scripts and messages.
	pagePattern = regexp.MustCompile(`\bdocs/[A-Za-z0-9_/-]+\.md\b`)
)

// checkLinks finds relative links of the pages that lead nowhere: to no file,
// or to no heading of it.
func checkLinks(fsys fs.FS) ([]string, error) {
	pages, err := pagesOf(fsys)
	if err != nil {
		return nil, err
	}
	var r report
	for _, page := range pages {
		text, err := fs.ReadFile(fsys, page)
		if err != nil {
			return nil, err
		}
		for i, line := range prose(string(text)) {
			for _, link := range linkPattern.FindAllStringSubmatch(line, -1) {
				if why := broken(fsys, page, link[1]); why != "" {
					r.add(page, i+1, "the link to %s: %s", link[1], why)
				}
			}
		}
	}
	return r, nil
}

// broken says what is wrong with a link of the page, "" if nothing.
func broken(fsys fs.FS, page, link string) string {
	if strings.Contains(link, ":") {
		return "" // another site: the network is not asked
	}
	file, anchor, hasAnchor := strings.Cut(link, "#")
	target := page
	if file != "" {
		target = path.Join(path.Dir(page), file)
	}
	info, err := fs.Stat(fsys, target)
	switch {
	case err != nil:
		return "there is no such file"
	case !hasAnchor:
		return ""
	case info.IsDir() || !strings.HasSuffix(target, ".md"):
		return "only pages have headings"
	}
	text, err := fs.ReadFile(fsys, target)
	if err != nil {
		return err.Error()
	}
	if !slices.Contains(anchors(string(text)), anchor) {
		return "that page has no such heading"
	}
	return ""
}

// anchors returns the names under which GitHub shows the headings of a page.
func anchors(page string) []string {
	var list []string
	seen := map[string]int{}
	for _, line := range prose(page) {
		heading := strings.TrimLeft(line, "#")
		if len(heading) == len(line) || !strings.HasPrefix(heading, " ") {
			continue
		}
		name := strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			}
			return -1
		}, strings.TrimSpace(linkPattern.ReplaceAllString(heading, "]")))
		if n := seen[name]; n > 0 {
			list = append(list, fmt.Sprintf("%s-%d", name, n))
		} else {
			list = append(list, name)
		}
		seen[name]++
	}
	return list
}

// prose returns the lines of a page; those of code blocks are empty.
func prose(page string) []string {
	lines := strings.Split(page, "\n")
	inside := false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence {
			inside = !inside
		}
		if inside || fence {
			lines[i] = ""
		}
	}
	return lines
}

// checkNamedPages finds names of pages, in code and scripts, that are not
// there.
func checkNamedPages(fsys fs.FS, except ...string) ([]string, error) {
	files, err := textFiles(fsys, ".go", ".md", ".txt", ".txtar", "Makefile", ".tla", ".yml", ".yaml")
	if err != nil {
		return nil, err
	}
	var r report
	for _, file := range files {
		if slices.Contains(except, file) {
			continue
		}
		text, err := fs.ReadFile(fsys, file)
		if err != nil {
			return nil, err
		}
		for i, line := range strings.Split(string(text), "\n") {
			for _, page := range pagePattern.FindAllString(line, -1) {
				if _, err := fs.Stat(fsys, page); err != nil {
					r.add(file, i+1, "there is no page %s", page)
				}
			}
		}
	}
	return r, nil
}

func TestLinks(t *testing.T) {
	tree := os.DirFS("../..")
	found, err := checkLinks(tree)
	if err != nil {
		t.Fatal(err)
	}
	named, err := checkNamedPages(tree,
		// Its bad trees name pages that are not there.
		"internal/house/links_test.go",
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range append(found, named...) {
		t.Error(problem)
	}
}

// TestReadingOrder holds the index of the documentation to name each page.
func TestReadingOrder(t *testing.T) {
	found, err := checkIndex(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range found {
		t.Error(problem)
	}
}

// checkIndex finds the pages of docs that no index leads to: docs/README.md
// names each page, but for those that the index of their own folder names.
func checkIndex(fsys fs.FS) ([]string, error) {
	pages, err := pagesOf(fsys)
	if err != nil {
		return nil, err
	}
	named := map[string]bool{}
	for _, index := range pages {
		if path.Base(index) != "README.md" || !strings.HasPrefix(index, "docs/") {
			continue
		}
		text, err := fs.ReadFile(fsys, index)
		if err != nil {
			return nil, err
		}
		for _, link := range linkPattern.FindAllStringSubmatch(string(text), -1) {
			file, _, _ := strings.Cut(link[1], "#")
			named[path.Join(path.Dir(index), file)] = true
		}
	}
	var r report
	for _, page := range pages {
		if strings.HasPrefix(page, "docs/") && page != "docs/README.md" && !named[page] {
			r.add(page, 1, "no index of docs leads to this page")
		}
	}
	return r, nil
}

func TestCheckLinks(t *testing.T) {
	tree := func(page string) fstest.MapFS {
		return fstest.MapFS{
			"README.md":    {Data: []byte(page)},
			"docs/a.md":    {Data: []byte("# One\n\n## `x --y`: what, and why?\n\n## Two\n\n## Two\n\n```sh\n# no heading\n```\n")},
			"docs/code.go": {Data: []byte("package docs\n")},
		}
	}
	for page, want := range map[string]string{
		"[a](docs/a.md), [b](docs), [c](docs/code.go)":         "",
		"[a](docs/a.md#one) [b](docs/a.md#x---y-what-and-why)": "",
		"[a](docs/a.md#two-1)":                                 "",
		"# Here [it](docs) is\n\n[a](#here-it-is)":             "",
		"[a](https://example.com/none#none) [b](mailto:a@b.c)": "",
		"```\n[a](none.md)\n```":                               "",
		"[a](none.md)":                                         "README.md:1: the link to none.md: there is no such file",
		"x\n\n[a](docs/b.md#one)":                              "README.md:3: the link to docs/b.md#one: there is no such file",
		"[a](docs/a.md#three)":                                 "README.md:1: the link to docs/a.md#three: that page has no such heading",
		"[a](docs/a.md#no-heading)":                            "README.md:1: the link to docs/a.md#no-heading: that page has no such heading",
		"[a](docs/a.md#two-2)":                                 "README.md:1: the link to docs/a.md#two-2: that page has no such heading",
		"[a](#one)":                                            "README.md:1: the link to #one: that page has no such heading",
		"[a](docs/code.go#x)":                                  "README.md:1: the link to docs/code.go#x: only pages have headings",
		"```\n[a](none.md)\n```\n[a](../up.md)":                "README.md:4: the link to ../up.md: there is no such file",
	} {
		found, err := checkLinks(tree(page))
		if got := strings.Join(found, "; "); err != nil || got != want {
			t.Errorf("page %q: %q, %v; want %q", page, got, err, want)
		}
	}
}

func TestCheckNamedPages(t *testing.T) {
	fsys := fstest.MapFS{
		"docs/a.md": {Data: []byte("docs/a.md\n")},
		"x.go":      {Data: []byte("// See docs/a.md,\n// and docs/guides/b.md.\n")},
		"y.go":      {Data: []byte("// docs/c.md")},
		"Makefile":  {Data: []byte("page: ## writes docs/d.md\n")},
	}
	found, err := checkNamedPages(fsys, "y.go")
	want := "Makefile:1: there is no page docs/d.md; x.go:2: there is no page docs/guides/b.md"
	if got := strings.Join(found, "; "); err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

func TestCheckIndex(t *testing.T) {
	fsys := fstest.MapFS{
		"docs/README.md":     {Data: []byte("[a](a.md#x) [sub](sub/README.md)")},
		"docs/a.md":          {Data: []byte("[c](c.md)")},
		"docs/c.md":          {},
		"docs/sub/README.md": {Data: []byte("[d](d.md)")},
		"docs/sub/d.md":      {},
		"docs/sub/e.md":      {},
	}
	found, err := checkIndex(fsys)
	want := "docs/c.md:1: no index of docs leads to this page; docs/sub/e.md:1: no index of docs leads to this page"
	if got := strings.Join(found, "; "); err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}
