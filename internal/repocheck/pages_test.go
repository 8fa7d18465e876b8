// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	linkPattern   = regexp.MustCompile(`\]\(([^()\s:]+)\)`) // with a colon it is one of another site
	codePattern   = regexp.MustCompile("`[^`]*`")
	fencedPattern = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```.*?$")
	// pagePattern finds the paths of our pages in source, scripts and messages.
	pagePattern = regexp.MustCompile(`\bdocs/[A-Za-z0-9_/-]+\.md\b`)
	unanchored  = regexp.MustCompile(`[^\p{L}\p{Nd} _-]+`)
	// generated are the parts of pages that programs make from measurements.
	generated = regexp.MustCompile(`(?s)<!-- made by.*?<!-- to here`)
	// snippet is a block of Go code in a page.
	snippet = regexp.MustCompile("(?ms)^```go[^\n]*\n(.*?)^```")
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
				if _, ok := t.text[page]; !ok {
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

// checkSnippets finds the Go snippets of pages that do not stand, line by line, in an Example
// of some test file: what readers copy must be what compiles.
func checkSnippets(t *tree) (r report) {
	var examples strings.Builder
	for _, f := range t.files {
		if f.test() && strings.HasPrefix(path.Base(f.path), "example") {
			examples.WriteString("\n" + flatten(t.text[f.path]))
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

// flatten drops indentation and empty lines: a page shows the body of an
// Example without its function.
func flatten(code string) (flat string) {
	var b strings.Builder
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// checkWords finds the words that words.txt refuses, one regular expression per line, in pages,
// help texts and Go. It splits Go names at capital letters. It ignores a quoted single word,
// which is a column or a key of a record format and must not change.
func checkWords(t *tree) (r report) {
	var words []string
	for line := range strings.Lines(t.text["internal/repocheck/words.txt"]) {
		if word := strings.TrimSpace(line); word != "" && word[0] != '#' {
			words = append(words, word)
		}
	}
	refused := regexp.MustCompile(`(?i)\b(?:` + strings.Join(words, "|") + `)\b`)
	find := func(file string, i int, line string) {
		if word := refused.FindString(line); word != "" {
			r.add(file, i+1, "%q: there is a plainer word, see internal/repocheck/words.txt", word)
		}
	}
	for _, file := range t.readerFiles() {
		for i, line := range prose(generated.ReplaceAllStringFunc(t.text[file], blank)) {
			find(file, i, codePattern.ReplaceAllString(line, "CODE"))
		}
	}
	for _, file := range t.names(".go") {
		for i, line := range strings.Split(strings.ReplaceAll(t.text[file], "ooKeeper", "ookeeper"), "\n") {
			find(file, i, capital.ReplaceAllString(formatName.ReplaceAllString(line, "NAME"), "$1 $2"))
		}
	}
	return r
}

var (
	formatName = regexp.MustCompile(`"[a-z_]+(,omitempty|,omitzero)?"`)
	capital    = regexp.MustCompile(`([a-z0-9])([A-Z])`)
)

var (
	goTest = regexp.MustCompile(`^(?:\./(?:(.*)/)?)?((?:Test|Fuzz|Example)\w*)(?:/(\S+))?$`)
	// An item of a list ends with its tests; the line above the list names their folder.
	testFolder = regexp.MustCompile("(?:^|, )[Ii]n `([^`]+)`:$")
	testItem   = regexp.MustCompile("^- .*?: (?:only: )?((?:`[^`]+`(?:, |$))+|none: its code is gone)$")
)

// checkNamedTests finds tests that the pages about bugs and capabilities name and that there
// are not, and bugs and capabilities without a test.
func checkNamedTests(t *tree) (r report) {
	for _, page := range []string{"docs/evidence/capabilities.md", "docs/evidence/bugs-found.md"} {
		dir := ""
		for i, line := range strings.Split(t.text[page], "\n") {
			if m := testFolder.FindStringSubmatch(line); m != nil {
				dir = path.Clean(m[1])
			}
			tests := testItem.FindStringSubmatch(line)
			if tests == nil {
				if strings.HasPrefix(line, "- ") {
					r.add(page, i+1, "this item names no test")
				}
				continue
			}
			for _, name := range codePattern.FindAllString(tests[1], -1) {
				if name = strings.Trim(name, "`"); !t.hasTest(dir, name) {
					r.add(page, i+1, "there is no test %s", name)
				}
			}
		}
	}
	return r
}

// hasTest reports whether there is a Go test, a client's test or a script of the name.
func (t *tree) hasTest(dir, name string) bool {
	if m := goTest.FindStringSubmatch(name); m != nil {
		if strings.HasPrefix(name, "./") {
			dir = path.Clean(m[1])
		}
		declared, sub := false, m[3] == ""
		for _, f := range t.files {
			in := f.test() && f.dir() == dir
			declared = declared || in && strings.Contains(t.text[f.path], "\nfunc "+m[2]+"(")
			sub = sub || (in || f.dir() == "drivertest") && strings.Contains(t.text[f.path], `"`+path.Base(m[3]))
		}
		return declared && sub
	}
	file, test, _ := strings.Cut(name, ": ")
	for _, pattern := range []string{
		name, dir + "/testdata/" + name, "clients/*/*/" + file, "clients/*/*/*/*/*/*/*/" + file,
	} {
		files, _ := fs.Glob(t, path.Clean(pattern))
		for _, file := range files {
			text, err := fs.ReadFile(t, file)
			if err == nil && (test == "" || regexp.MustCompile(`(def |class |void |> |\(")`+test+`\b`).Match(text)) {
				return true
			}
		}
	}
	return false
}

// helpDir has a text for each command. A test beside it holds the flags that
// the texts list to those that the command has.
const helpDir = "cmd/internal/cli/help"

var (
	flagPattern = regexp.MustCompile(`(?m)^  (?:(-\w), |    )(--[a-z-]+(?:, --[a-z-]+)*)`)
	// shown finds the code of a page: blocks between fences, lines that are indented, and spans.
	shown = regexp.MustCompile("(?ms:^[ \t]*```.*?^[ \t]*```)|(?m:^    .*$)|`[^`\n]+`")
	// shownInHelp finds that of a help text: lines of the command, or of cron.
	shownInHelp = regexp.MustCompile(`(?m)^ +tenure .*$|^ .*\* tenure .*$`)
	// continued is what a backslash at the end of a line continues.
	continued = regexp.MustCompile(`[ \t]*\\\n[ \t]*`)
	// commandPattern finds the command where a shell would run it.
	commandPattern = regexp.MustCompile(`(?:^|[|;&(\s]|\$ |/)tenure\s+`)
	// endPattern ends a command: an operator of the shell, a comment, the
	// command of the child, or three dots of a page.
	endPattern  = regexp.MustCompile(`\s--(?:\s|$)|[|;&]|\s\s|\s#|…|\)`)
	quoted      = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	commandName = regexp.MustCompile(`^[a-z][a-z-]*$`)
)

// checkCommands finds commands, and flags of commands, that pages and help texts show and that
// there are not.
func checkCommands(t *tree) (r report) {
	flags := map[string][]string{} // by command
	for _, file := range t.names(".txt") {
		if path.Dir(file) == helpDir && !strings.Contains("tenure.txt events.txt tuning.txt", path.Base(file)) {
			_, section, _ := strings.Cut(t.text[file], "\nFlags:\n")
			section, _, _ = strings.Cut(section, "\n\n")
			list := []string{"--help"}
			for _, m := range flagPattern.FindAllStringSubmatch(section, -1) {
				list = append(append(list, m[1]), strings.Split(m[2], ", ")...)
			}
			flags[strings.TrimSuffix(path.Base(file), ".txt")] = list
		}
	}
	for _, file := range t.readerFiles() {
		code := shown
		if strings.HasSuffix(file, ".txt") {
			code = shownInHelp
		}
		page := continued.ReplaceAllStringFunc(t.text[file], func(end string) string {
			return " " + strings.Repeat("\x00", len(end)-1) // so that what follows is where it was
		})
		for _, at := range code.FindAllStringIndex(page, -1) {
			line := 1 + strings.Count(t.text[file][:at[0]], "\n")
			for text := range strings.Lines(page[at[0]:at[1]]) {
				for _, words := range invocations(strings.Trim(strings.ReplaceAll(strings.TrimSpace(text), "\x00", ""), "`")) {
					if why := unknown(flags, words); why != "" {
						r.add(file, line, "%s", why)
					}
				}
				line++
			}
		}
	}
	return r
}

// invocations returns the words behind each "tenure" of the code.
func invocations(code string) (list [][]string) {
	code = quoted.ReplaceAllString(code, "QUOTED")
	for _, at := range commandPattern.FindAllStringIndex(code, -1) {
		rest := code[at[1]:]
		if end := endPattern.FindStringIndex(rest); end != nil {
			rest = rest[:end[0]]
		}
		if words := strings.Fields(strings.NewReplacer("[", " ", "]", " ").Replace(rest)); len(words) > 0 {
			list = append(list, words)
		}
	}
	return list
}

// unknown says what there is not in the words of a command, "" if all is there.
func unknown(flags map[string][]string, words []string) string {
	first := strings.Split(words[0], "|")[0]
	known, ok := flags[first]
	switch {
	case first == "help" || !commandName.MatchString(first):
		return "" // prose, or an output: "tenure: …"
	case !ok:
		return fmt.Sprintf("there is no command %q", first)
	}
	for _, word := range words[1:] {
		name, _, _ := strings.Cut(word, "=")
		name = strings.TrimRight(name, ".,:")
		if strings.Trim(name, "-") != "" && strings.HasPrefix(name, "-") && !slices.Contains(known, name) {
			return fmt.Sprintf("tenure %s has no flag %s", first, name)
		}
	}
	return ""
}
