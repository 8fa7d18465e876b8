// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// helpDir has a text for each command. A test beside it holds the flags that
// the texts list to those that the command has.
const helpDir = "cmd/internal/cli/help"

var flagPattern = regexp.MustCompile(`(?m)^  (?:(-\w), |    )(--[a-z-]+(?:, --[a-z-]+)*)`)

// flagsOf returns the flags of each command, by its name.
func flagsOf(t *tree) map[string][]string {
	flags := map[string][]string{}
	for _, name := range t.names(".txt") {
		if path.Dir(name) != helpDir {
			continue
		}
		list := []string{"--help"}
		_, section, _ := strings.Cut(t.text[name], "\nFlags:\n")
		section, _, _ = strings.Cut(section, "\n\n")
		for _, m := range flagPattern.FindAllStringSubmatch(section, -1) {
			list = append(append(list, m[1]), strings.Split(m[2], ", ")...)
		}
		flags[strings.TrimSuffix(path.Base(name), ".txt")] = list
	}
	delete(flags, "tenure") // the overview
	delete(flags, "events") // of "tenure help"
	delete(flags, "tuning") // likewise
	return flags
}

// checkCommands finds commands, and flags of commands, that pages and help texts show and that
// there are not.
func checkCommands(t *tree) (r report) {
	flags, seen := flagsOf(t), 0
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
				text = strings.Trim(strings.ReplaceAll(strings.TrimSpace(text), "\x00", ""), "`")
				for _, words := range invocations(text) {
					seen++
					if why := unknown(flags, words); why != "" {
						r.add(file, line, "%s", why)
					}
				}
				line++
			}
		}
	}
	if t.work != nil && seen < 100 {
		r.add(helpDir, 1, "only %d commands were found", seen)
	}
	return r
}

var (
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
	hold(t, checkCommands)
	const help = "tenure x\n\nFlags:\n      --wait DURATION    how long\n  -E, --exit N\n                         -z --other is none\n\nExit status:\n      --none\n"
	for page, want := range map[string][]string{
		"    tenure run --wait 0 -E 0 nightly -- ./x --other":          nil,
		"    5 3 * * *  /usr/local/bin/tenure run -E 0 x -- y":         nil,
		"```console\n$ tenure status | jq --raw-output .\n```":         nil,
		"`tenure run [flags] NAME`, `tenure status|run`":               nil,
		"    tenure run x --exit 'a --b'":                              nil,
		"    go run ./cmd/tenure status":                               nil,
		"The tenure walked --far.":                                     nil,
		"`tenure: \"x\": held`, `tenure --help`, `tenure help events`": nil,
		"    go run ./cmd/tenure walks":                                {`docs/a.md:1: there is no command "walks"`},
		"x\n\n    tenure walk NAME":                                    {`docs/a.md:3: there is no command "walk"`},
		"Use `tenure run --none x -- y`.":                              {"docs/a.md:1: tenure run has no flag --none"},
		"    x && tenure run -z":                                       {"docs/a.md:1: tenure run has no flag -z"},
		"    tenure run x \\\n      --wait 0 \\\n      --far\n":        {"docs/a.md:1: tenure run has no flag --far"},
		"    tenure run x; tenure status --wait 3 x":                   {"docs/a.md:1: tenure status has no flag --wait"},
	} {
		find(t, checkCommands, map[string]string{
			"docs/a.md":             page,
			helpDir + "/run.txt":    help,
			helpDir + "/status.txt": "tenure status\n\n  tenure status x\n",
			helpDir + "/tenure.txt": help,
		}, want...)
	}
}
