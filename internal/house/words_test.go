// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// glossaryPage defines our words, and lists those that we avoid.
const glossaryPage = "docs/reference/glossary.md"

// A glossary is what glossaryPage says: the words that it defines, each with
// its other forms, and the phrases that it refuses.
type glossary struct {
	words   []string
	refused []string
}

var (
	boldPattern   = regexp.MustCompile(`^\| \*\*([^*]+)\*\*`)
	refusedColumn = regexp.MustCompile("^\\| (`[^|]+) \\|")
)

// readGlossary reads the two tables of the page.
func readGlossary(page string) (glossary, error) {
	var g glossary
	refusing := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "## ") {
			refusing = strings.Contains(line, "avoid")
		}
		if m := boldPattern.FindStringSubmatch(line); m != nil && !refusing {
			g.words = append(g.words, m[1])
		}
		if m := refusedColumn.FindStringSubmatch(line); m != nil && refusing {
			for _, phrase := range codePattern.FindAllString(m[1], -1) {
				if phrase = strings.Trim(phrase, "`"); phrase != "who" { // see freeWho
					g.refused = append(g.refused, phrase)
				}
			}
		}
	}
	if len(g.words) == 0 || len(g.refused) == 0 {
		return g, errors.New("no words, or no refused ones, in " + glossaryPage)
	}
	return g, nil
}

// freeWho finds "who" where English has "anyone who", "whoever" or a noun: at
// the beginning of a sentence that is no question, behind a preposition, and
// where a clause begins.
var freeWho = regexp.MustCompile(`(?:^|[.:!;] |\| |- |\*\*)Who [^.?|]*[.|]|(?:^|[.:!;] |- )Who [^.?|]*$|(?i)\b(?:for|by|to|from|with|than|so|because|but) who\b|; who\b`)

// words returns the text of a page as one line for each paragraph, heading,
// row or item, without code; and the line of the page at which each begins.
func paragraphs(page string, markdown bool) (texts []string, lines []int) {
	all := strings.Split(page, "\n")
	if markdown {
		all = prose(page)
	}
	open, generated := false, false
	for i, line := range all {
		if markdown {
			switch { // tables that a program makes from measurements
			case strings.HasPrefix(line, "<!-- made by"):
				generated = true
			case strings.HasPrefix(line, "<!-- to here"):
				generated = false
			}
			if generated {
				line = ""
			}
			if strings.HasPrefix(line, "    ") {
				line = ""
			}
			line = codePattern.ReplaceAllString(line, "CODE")
		}
		line = strings.TrimSpace(line)
		begins := strings.HasPrefix(line, "#") || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "- ")
		switch {
		case line == "":
			open = false
		case open && !begins:
			texts[len(texts)-1] += " " + line
		default:
			texts, lines = append(texts, line), append(lines, i+1)
			open = !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "#")
		}
	}
	return texts, lines
}

// checkWords finds the words that the glossary refuses, in the pages and the
// help texts.
func checkWords(fsys fs.FS, g glossary, files ...string) ([]string, error) {
	quoted := make([]string, len(g.refused))
	for i, phrase := range g.refused {
		quoted[i] = regexp.QuoteMeta(phrase)
	}
	refused := regexp.MustCompile(`(?i)\b(?:` + strings.Join(quoted, "|") + `)\b`)
	var r report
	for _, file := range files {
		text, err := fs.ReadFile(fsys, file)
		if err != nil {
			return nil, err
		}
		texts, lines := paragraphs(string(text), strings.HasSuffix(file, ".md"))
		for i, paragraph := range texts {
			for _, word := range refused.FindAllString(paragraph, -1) {
				r.add(file, lines[i], "%q: the glossary has another word", word)
			}
			if strings.HasPrefix(paragraph, "#") {
				continue // a heading may ask
			}
			for _, phrase := range freeWho.FindAllString(paragraph, -1) {
				r.add(file, lines[i], "%q: say anyone who, or name them", strings.TrimSpace(phrase))
			}
		}
	}
	return r, nil
}

// checkUsed finds words of the glossary that no other page uses.
func checkUsed(fsys fs.FS, g glossary, files ...string) ([]string, error) {
	var all strings.Builder
	for _, file := range files {
		text, err := fs.ReadFile(fsys, file)
		if err != nil {
			return nil, err
		}
		all.WriteString(strings.Join(strings.Fields(strings.ToLower(string(text))), " ") + "\n")
	}
	var r report
	for _, word := range g.words {
		used := regexp.MustCompile(`\b` + regexp.QuoteMeta(strings.ToLower(word)) + `(?:s|ed|d|ing)?\b`)
		if !used.MatchString(all.String()) {
			r.add(glossaryPage, 1, "nothing uses the word %q", word)
		}
	}
	return r, nil
}

// readerFiles are the pages and help texts that people read. The files that a
// program makes from measurements are that program's.
func readerFiles(fsys fs.FS) ([]string, error) {
	files, err := textFiles(fsys, ".md", ".txt")
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(files, func(file string) bool {
		switch {
		case file == glossaryPage, file == "docs/evidence/faults.md":
			return true
		case file == "README.md", file == "CONTRIBUTING.md", strings.HasPrefix(file, "docs/") && path.Ext(file) == ".md":
			return false
		}
		return path.Dir(file) != "cmd/internal/cli/help" && path.Dir(file) != "cmd/internal/daemon/help"
	}), nil
}

// checkComments finds a free "who" in comments. Tests are left out.
func checkComments(t *tree) []string {
	var r report
	for _, f := range t.files {
		if f.test() {
			continue
		}
		for _, group := range f.syntax.Comments {
			texts, lines := paragraphs(group.Text(), false)
			for i, text := range texts {
				for _, phrase := range freeWho.FindAllString(text, -1) {
					r.add(f.path, f.line(group.Pos())+lines[i]-1, "%q: say anyone who, or name them", strings.TrimSpace(phrase))
				}
			}
		}
	}
	return r
}

func TestComments(t *testing.T) {
	testCheck(t, checkComments, []badTree{
		{
			"at the beginning",
			map[string]string{"driver/x.go": spdx + "package driver\n\n// X is it.\n//\n// Who waits for it\n// waits.\nvar X int\n"},
			[]string{`driver/x.go:8: "Who waits for it waits."`},
		},
		{
			"behind a preposition",
			map[string]string{"driver/x.go": spdx + "package driver\n\nvar x int // for who waits\n"},
			[]string{`driver/x.go:6: "for who"`},
		},
		{
			"in the root package",
			map[string]string{"x.go": spdx + "package tenure\n\n// For who waits.\n"},
			[]string{`x.go:6: "For who"`},
		},
		{
			"questions, code and tests",
			map[string]string{
				"driver/x.go":      spdx + "package driver\n\n// X says who waits. Who else could?\nvar X = \"for who\"\n",
				"driver/x_test.go": spdx + "package driver\n\n// For who waits.\n",
			},
			nil,
		},
	})
	repo, err := checkout()
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range checkComments(repo) {
		t.Error(problem)
	}
}

func TestWords(t *testing.T) {
	tree := os.DirFS("../..")
	page, err := fs.ReadFile(tree, glossaryPage)
	if err != nil {
		t.Fatal(err)
	}
	g, err := readGlossary(string(page))
	if err != nil {
		t.Fatal(err)
	}
	files, err := readerFiles(tree)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(files, "README.md") || !slices.Contains(files, "cmd/internal/cli/help/run.txt") || !slices.Contains(files, "cmd/internal/daemon/help/tenured.txt") || len(files) < 30 {
		t.Fatalf("these are not the files that people read: %q", files)
	}
	found, err := checkWords(tree, g, files...)
	if err != nil {
		t.Fatal(err)
	}
	unused, err := checkUsed(tree, g, files...)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range append(found, unused...) {
		t.Error(problem)
	}
}

func TestCheckWords(t *testing.T) {
	g, err := readGlossary("## Words\n\n| **lock** | a name |\n| **step down** | make way |\n\n## Words that we avoid\n\n| not | but |\n| --- | --- |\n" +
		"| `mend`, `one look` | fix, poll |\n| `who` | anyone who |\n")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(g.words, []string{"lock", "step down"}) || !slices.Equal(g.refused, []string{"mend", "one look"}) {
		t.Fatalf("read %q", g)
	}
	for page, want := range map[string]int{
		"Fix it in one poll.":                      0,
		"Mend it.":                                 1,
		"The lease and one\nlook.":                 1,
		"`mend` and\n\n    mend\n\n```\nmend\n```": 0,
		"A recommendation.":                        0,
		"Who waits gets it.":                       1,
		"It waits. Who comes\nlater waits longer.": 1,
		"- Who waits gets it":                      1,
		"| Who waits gets it. | x |":               1,
		"Written for who reads it.":                1,
		"It is held; who waits gets it.":           1,
		"<!-- made by x -->\n| one look |\n<!-- to here -->\none look": 1,
		"By whom? Who holds it now?":                                   0,
		"Whoever waits gets it, and anyone who asks.":                  0,
		"It shows who holds it, and those who wait.":                   0,
		"## Who comes next":                                            0,
	} {
		found, err := checkWords(fstest.MapFS{"a.md": {Data: []byte(page)}}, g, "a.md")
		if err != nil || len(found) != want {
			t.Errorf("page %q: %q, %v; want %d", page, found, err, want)
		}
	}
	for page, want := range map[string]int{"Locks. He steps down.": 1, "A lock; stepping down": 1, "Locks; to step\ndown": 0, "": 2} {
		found, err := checkUsed(fstest.MapFS{"a.md": {Data: []byte(page)}}, g, "a.md")
		if err != nil || len(found) != want {
			t.Errorf("page %q: %q, %v; want %d unused", page, found, err, want)
		}
	}
}
