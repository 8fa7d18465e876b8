// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	linkPattern   = regexp.MustCompile(`\]\(([^()\s:]+)\)`) // with a colon it is one of another site
	codePattern   = regexp.MustCompile("`[^`]*`")
	fencedPattern = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```.*?$")
	// pagePattern finds the paths of our pages in source, scripts and messages.
	pagePattern = regexp.MustCompile(`\bdocs/[A-Za-z0-9_/-]+\.md\b`)
	unanchored  = regexp.MustCompile(`[^\p{L}\p{Nd} _-]+`)
)

// prose returns the lines of a page; those of code blocks are empty.
func prose(page string) []string {
	return strings.Split(fencedPattern.ReplaceAllStringFunc(page, blank), "\n")
}

// blank returns as many empty lines.
func blank(text string) string { return strings.Repeat("\n", strings.Count(text, "\n")) }

// checkLinks finds relative links of pages that lead to no file, or to no heading of it, names
// of pages in source that are not there, and pages that no index of docs leads to.
func checkLinks(t *tree) (r report) {
	indexed := map[string]bool{"docs/README.md": true}
	for _, page := range t.names(".md") {
		for i, line := range prose(t.text[page]) {
			for _, link := range linkPattern.FindAllStringSubmatch(line, -1) {
				file, anchor, hasAnchor := strings.Cut(link[1], "#")
				target := page
				if file != "" {
					target = path.Join(path.Dir(page), file)
				}
				if _, err := fs.Stat(t, target); err != nil {
					r.add(page, i+1, "the link to %s: there is no such file", link[1])
				} else if hasAnchor && !slices.Contains(anchors(t.text[target]), anchor) {
					r.add(page, i+1, "the link to %s: there is no such heading", link[1])
				}
				indexed[target] = indexed[target] || path.Base(page) == "README.md" && within(page, "docs")
			}
		}
	}
	for _, file := range t.names("") {
		for i, line := range strings.Split(t.text[file], "\n") {
			for _, page := range pagePattern.FindAllString(line, -1) {
				if _, ok := t.text[page]; !ok && path.Dir(file) != "internal/house" {
					r.add(file, i+1, "there is no page %s", page)
				}
			}
		}
		if path.Ext(file) == ".md" && within(file, "docs") && !indexed[file] {
			r.add(file, 1, "no index of docs leads to this page")
		}
	}
	return r
}

// anchors returns the names under which GitHub shows the headings of a page.
func anchors(page string) (names []string) {
	seen := map[string]int{}
	for _, line := range prose(page) {
		if heading, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			name := unanchored.ReplaceAllString(linkPattern.ReplaceAllString(heading, "]"), "")
			name = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), " ", "-")
			if seen[name]++; seen[name] > 1 {
				name = fmt.Sprintf("%s-%d", name, seen[name]-1)
			}
			names = append(names, name)
		}
	}
	return names
}

func TestLinks(t *testing.T) {
	hold(t, checkLinks)
	for page, want := range map[string][]string{
		"[a](docs/a.md#one), [b](docs), [c](x.png)":                             nil,
		"[a](docs/a.md#x---y-what-and-why) [b](docs/a.md#two-1)":                nil,
		"# Here [it](docs) is\n\n[a](#here-it-is) [b](https://example.com/a#b)": nil,
		"```\n[a](none.md)\n```\n[a](none.md)":                                  {"README.md:4: the link to none.md: there is no such file"},
		"[a](docs/a.md#no-heading)":                                             {"README.md:1: the link to docs/a.md#no-heading: there is no such heading"},
		"[a](docs/a.md#two-2)":                                                  {"README.md:1: the link to docs/a.md#two-2: there is no such heading"},
		"See docs/b.md":                                                         {"README.md:1: there is no page docs/b.md"},
	} {
		find(t, checkLinks, map[string]string{
			"README.md":      page,
			"x.png":          "",
			"docs/README.md": "[a](a.md)",
			"docs/a.md":      "# One\n\n## `x --y`: what, and why?\n\n## Two\n\n## Two\n\n```sh\n# no heading\n```\n",
		}, want...)
	}
	find(t, checkLinks, map[string]string{"docs/README.md": "[a](a.md)", "docs/a.md": "[b](b.md)", "docs/b.md": ""},
		"docs/b.md:1: no index of docs")
}
