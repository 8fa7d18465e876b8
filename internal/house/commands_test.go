// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// helpDir has a text for each command. A test beside it holds the flags that
// the texts list to those that the command has.
const helpDir = "cmd/internal/cli/help"

var flagPattern = regexp.MustCompile(`(?m)^  (?:(-\w), |    )(--[a-z-]+)`)

// flagsOf returns the flags of each command, by its name.
func flagsOf(fsys fs.FS) (map[string][]string, error) {
	texts, err := fs.Glob(fsys, helpDir+"/*.txt")
	if err != nil {
		return nil, err
	}
	flags := map[string][]string{}
	for _, name := range texts {
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		list := []string{"--help"}
		_, section, _ := strings.Cut(string(text), "\nFlags:\n")
		section, _, _ = strings.Cut(section, "\n\n")
		for _, m := range flagPattern.FindAllStringSubmatch(section, -1) {
			list = append(list, m[1:]...)
		}
		flags[strings.TrimSuffix(path.Base(name), ".txt")] = list
	}
	delete(flags, "tenure") // the overview
	delete(flags, "events") // of "tenure help"
	return flags, nil
}

// checkCommands finds commands, and flags of commands, that the files show and
// that there are not. It also returns how many commands it has looked up.
func checkCommands(fsys fs.FS, files ...string) (found []string, seen int, err error) {
	flags, err := flagsOf(fsys)
	if err != nil {
		return nil, 0, err
	}
	var r report
	for _, file := range files {
		text, err := fs.ReadFile(fsys, file)
		if err != nil {
			return nil, 0, err
		}
		for _, code := range codeOf(string(text), strings.HasSuffix(file, ".md")) {
			for _, words := range invocations(code.text) {
				seen++
				if why := unknown(flags, words); why != "" {
					r.add(file, code.line, "%s", why)
				}
			}
		}
	}
	return r, seen, nil
}

var (
	spanPattern = regexp.MustCompile("`([^`]+)`")
	continued   = regexp.MustCompile(`[ \t]*\\\n[ \t]*`)
)

// codeOf returns the lines of code of a page, lines that a backslash continues
// as one, and the code inside of its text. A help text has no marks; there a
// line of code begins with white space and the command, or is one of cron.
func codeOf(page string, markdown bool) (code []located) {
	page = continued.ReplaceAllString(page, "\v")
	fenced := false
	n := 0
	for line := range strings.Lines(page) {
		n++
		at := n
		n += strings.Count(line, "\v")
		line = strings.ReplaceAll(line, "\v", " ")
		trimmed := strings.TrimSpace(line)
		switch {
		case markdown && strings.HasPrefix(trimmed, "```"):
			fenced = !fenced
		case !markdown:
			if strings.HasPrefix(line, " ") && (strings.HasPrefix(trimmed, "tenure ") || strings.Contains(line, "* tenure ")) {
				code = append(code, located{trimmed, at})
			}
		case fenced, strings.HasPrefix(line, "    "):
			code = append(code, located{trimmed, at})
		default:
			for _, span := range spanPattern.FindAllStringSubmatch(line, -1) {
				code = append(code, located{span[1], at})
			}
		}
	}
	return code
}

var (
	// commandPattern finds the command where a shell would run it.
	commandPattern = regexp.MustCompile(`(?:^|[|;&(\s]|\$ |/)tenure\s+`)
	// endPattern ends a command: an operator of the shell, a comment, the
	// command of the child, or three dots of a page.
	endPattern = regexp.MustCompile(`\s--(?:\s|$)|[|;&]|\s\s|\s#|…|\)`)
	quoted     = regexp.MustCompile(`'[^']*'|"[^"]*"`)
)

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
	switch {
	case slices.Contains([]string{"--help", "--version", "help", "COMMAND"}, strings.TrimRight(first, ".,:")):
		return ""
	case !regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(first):
		return "" // prose, or an output: "tenure: …"
	}
	known, ok := flags[first]
	if !ok {
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

func TestCommands(t *testing.T) {
	tree := os.DirFS("../..")
	files, err := readerFiles(tree)
	if err != nil {
		t.Fatal(err)
	}
	found, seen, err := checkCommands(tree, files...)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range found {
		t.Error(problem)
	}
	if seen < 100 {
		t.Errorf("only %d commands were found in %d files", seen, len(files))
	}
	flags, err := flagsOf(tree)
	if err != nil {
		t.Fatal(err)
	}
	if run := flags["run"]; !slices.Contains(run, "--wait") || !slices.Contains(run, "-E") || len(flags) < 10 {
		t.Errorf("read the flags %q of run, of the commands %q", run, slices.Sorted(maps.Keys(flags)))
	}
}

func TestCheckCommands(t *testing.T) {
	const help = "tenure x\n\nFlags:\n      --wait DURATION    how long\n  -E, --exit N\n                         -z --other is none\n\nExit status:\n      --none\n"
	for page, want := range map[string]string{
		"    tenure run --wait 0 -E 0 nightly -- ./x --other":          "",
		"    5 3 * * *  /usr/local/bin/tenure run -E 0 x -- y":         "",
		"```console\n$ tenure status | jq --raw-output .\n```":         "",
		"`tenure run [flags] NAME`, `tenure status|run`":               "",
		"    tenure run x --exit 'a --b'":                              "",
		"    go run ./cmd/tenure status":                               "",
		"The tenure walked --far.":                                     "",
		"`tenure: \"x\": held`, `tenure --help`, `tenure help events`": "",
		"    go run ./cmd/tenure walks":                                `a.md:1: there is no command "walks"`,
		"x\n\n    tenure walk NAME":                                    `a.md:3: there is no command "walk"`,
		"Use `tenure run --none x -- y`.":                              "a.md:1: tenure run has no flag --none",
		"    x && tenure run -z":                                       "a.md:1: tenure run has no flag -z",
		"    tenure run x \\\n      --wait 0 \\\n      --far\n":        "a.md:1: tenure run has no flag --far",
		"    tenure run x; tenure status --wait 3 x":                   "a.md:1: tenure status has no flag --wait",
	} {
		fsys := fstest.MapFS{
			"a.md":                  {Data: []byte(page)},
			helpDir + "/run.txt":    {Data: []byte(help)},
			helpDir + "/status.txt": {Data: []byte("tenure status\n\n  tenure status x\n")},
			helpDir + "/tenure.txt": {Data: []byte(help)},
		}
		found, _, err := checkCommands(fsys, "a.md")
		if got := strings.Join(found, "; "); err != nil || got != want {
			t.Errorf("page %q: %q, %v; want %q", page, got, err, want)
		}
	}
}
