// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"embed"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/pattern"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/shard"
)

// The scripts ask this program for matching words, so that they need not know
// commands and flags, and never become outdated. (The libraries that do this for
// kong depend on packages that have not been maintained for years.)
//
//go:embed completion
var completionScripts embed.FS

// completeWord is the hidden command that the scripts call, with the words
// after the program's name, up to the word that is being written.
const completeWord = "__complete"

type completionCmd struct {
	Shell string `arg:""`
}

// Run prints the script of a shell.
func (f *completionCmd) Run(c *console) error {
	script, err := completionScripts.ReadFile("completion/tenure." + f.Shell)
	if err != nil || !slices.Contains(shells, f.Shell) {
		return usage("shell %.20q is not known: want bash, zsh or fish", f.Shell)
	}
	c.put(string(script))
	return nil
}

var shells = []string{"bash", "fish", "zsh"}

// candidates returns the words that can complete the last of the given words. It returns
// no words where a file or an unknown word may follow: the shell then completes files.
func candidates(words []string) []string {
	if len(words) == 0 || slices.Contains(words[:len(words)-1], "--") {
		return nil
	}
	parser, err := newParser(new(grammar))
	if err != nil {
		return nil
	}
	var apart []string // "--flag=value" as two words; the second word begins with "="
	for _, w := range words {
		if at := strings.Index(w, "="); at > 0 && w[0] == '-' {
			apart, w = append(apart, w[:at]), w[at:]
		}
		apart = append(apart, w)
	}
	before, last := apart[:len(apart)-1], apart[len(apart)-1]
	word := strings.TrimPrefix(last, "=")
	root := parser.Model.Node
	command, store := root, os.Getenv("TENURE_STORE")
	var given []string  // after the command
	var flag *kong.Flag // whose value comes next
	for _, w := range before {
		switch {
		case flag != nil:
			if flag.Name == "store" {
				store = strings.TrimPrefix(w, "=")
			}
			flag = nil
		case strings.HasPrefix(w, "="): // of a flag that is on or off
		case strings.HasPrefix(w, "-"):
			flag = valueFlag(command, w)
		case command == root && w == "help":
			return fitting(names(root), word)
		case len(command.Children) > 0:
			at := slices.IndexFunc(command.Children, func(n *kong.Node) bool { return n.Name == w })
			if at < 0 {
				return nil
			}
			command = command.Children[at]
		default:
			given = append(given, w)
		}
	}
	var list []string
	switch {
	case flag != nil:
		list = values(flag, store, given)
	case last != word:
	case command == root && strings.HasPrefix(word, "-"):
		list = []string{"--help", "--version"}
	case command == root:
		list = append(names(root), "help")
	case strings.HasPrefix(word, "-"):
		list = append(list, "--help")
		for _, f := range command.Flags {
			list = append(list, "--"+f.Name)
		}
	case len(command.Children) > 0:
		list = names(command)
	default:
		list = operandsOf(command, len(given), store)
	}
	list = fitting(list, word)
	for i := range list {
		list[i] = strings.TrimSuffix(words[len(words)-1], word) + list[i]
	}
	return list
}

// operandsOf returns the words that can follow the given operands of a command.
func operandsOf(command *kong.Node, given int, store string) []string {
	most, suffix := 1, ""
	switch command.Name {
	case "shard":
		suffix = shard.SpecName("")
	case "once":
		suffix = once.LockName("")
	case "every":
		most, suffix = 2, once.EveryLockName("")
	case "status", "exporter", "reap":
		most = math.MaxInt
	}
	switch {
	case len(command.Positional) == 0 || given >= most:
		return nil
	case command.Name == "completion":
		return shells
	}
	return namesIn(store, suffix)
}

func names(command *kong.Node) []string {
	var list []string
	for _, n := range command.Children {
		if !n.Hidden {
			list = append(list, n.Name)
		}
	}
	return list
}

// valueFlag returns the command's flag of that name if it takes a value, nil otherwise.
func valueFlag(command *kong.Node, word string) *kong.Flag {
	for _, f := range command.Flags {
		if !f.IsBool() && (word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short)) {
			return f
		}
	}
	return nil
}

// values are the values that a flag can begin with. A store is mostly a path. The proposed
// targets of a hand-over are former holders, because no record shows who waits for a lock.
func values(f *kong.Flag, store string, given []string) []string {
	switch f.Name {
	case "store":
		return []string{
			"sqlite:", "dynamodb://", "etcd://", "kubernetes://", "mysql://", "postgres://", "redis://", "zookeeper://",
			"memory:", "default:",
		}
	case "holder":
		return slices.Collect(maps.Keys(holderLabels))
	case "to":
		return heldBy(store, given, func(t tenure.Term) string { return t.Owner })
	case "to-label":
		return heldBy(store, given, func(t tenure.Term) string { return t.Label })
	}
	return nil
}

func fitting(list []string, word string) []string {
	var fit []string
	for _, s := range list {
		if strings.HasPrefix(s, word) {
			fit = append(fit, s)
		}
	}
	slices.Sort(fit)
	return fit
}

// plainName is a name that no shell needs to quote.
var plainName = pattern.Lazy(`^[A-Za-z0-9][A-Za-z0-9._/@%+-]*$`)

const (
	// completionPatience is how long a user who pressed a key has to wait.
	completionPatience = 500 * time.Millisecond
	mostCompleted      = 1000
)

// namesIn returns the names of the locks in a store that end with the suffix, without it.
func namesIn(url, suffix string) []string {
	return ask(url, func(ctx context.Context, client *tenure.Client) (names []string) {
		for st, err := range client.Locks(ctx, nil) {
			if name, ok := strings.CutSuffix(st.Name, suffix); ok && err == nil && plainName().MatchString(name) {
				names = append(names, name)
			}
			if len(names) == mostCompleted {
				break
			}
		}
		return names
	})
}

// heldBy returns what shown returns for the terms of the given lock, each value once.
func heldBy(url string, given []string, shown func(tenure.Term) string) []string {
	if len(given) == 0 {
		return nil
	}
	return ask(url, func(ctx context.Context, client *tenure.Client) (names []string) {
		history, err := client.History(ctx, given[0])
		if err != nil {
			return nil
		}
		for _, t := range history {
			if name := shown(t); plainName().MatchString(name) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		return names
	})
}

// ask returns what is found in a store, nothing if it cannot be read at once. It does not
// create a store.
func ask(url string, find func(context.Context, *tenure.Client) []string) []string {
	at, err := storeurl.Default()
	if url != "" {
		at, err = storeurl.Parse(url)
	}
	if err != nil || at.Private() || mustExist(at) != nil {
		return nil
	}
	answer := make(chan []string, 1)
	go func() { // it may go on waiting for a store that does not answer: the program ends
		var found []string
		if v, err := clientAt(nil, at, nil, nil); err == nil {
			found = find(v.ctx, v.client)
			v.close()
		}
		answer <- found
	}()
	select {
	case found := <-answer:
		return found
	case <-time.After(completionPatience):
		return nil
	}
}

type manCmd struct{}

// Run prints the manual page.
func (manCmd) Run(c *console) error {
	page, err := manual()
	if err != nil {
		return err
	}
	c.put(page)
	return nil
}

// manual returns the help of all commands as one page in man(7).
func manual() (string, error) {
	parser, err := newParser(new(grammar))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(".\\\" SPDX-FileCopyrightText: The Tenure Authors\n.\\\" SPDX-License-Identifier: Apache-2.0\n")
	b.WriteString(".TH TENURE 1 \"\" \"Tenure\" \"User Commands\"\n.SH NAME\ntenure \\- one process at a time\n")
	text, _ := helpOf("")
	b.WriteString(".SH DESCRIPTION\n")
	roff(&b, text)
	for _, topic := range append(names(parser.Model.Node), "tuning", "events") {
		text, known := helpOf(topic)
		if !known {
			return "", fmt.Errorf("no help of %s", topic) // a test ensures that it exists
		}
		title, _, _ := strings.Cut(text, ":")
		b.WriteString(".SH " + strings.ToUpper(escaped(title)) + "\n")
		roff(&b, text)
	}
	return b.String(), nil
}

var (
	// heading begins a part of its own.
	heading = pattern.Lazy(`^(Usage|Flags|Exit status|Examples):$`)
	// entry is the first line of something that is explained: an exit status, a
	// variable.
	entry = pattern.Lazy(`^  (\S+(?: \S+)*)(?:  +(\S.*))?$`)
	// flagEntry is the same for a flag, or for several that another page explains.
	flagEntry = pattern.Lazy(`^ {2,6}((?:-\w, )?--[a-z-]+(?:(?:, --[a-z-]+)+,?|(?: [A-Z=]+)?))(?: +(\S.*))?$`)
	// more is a further line of the explanation.
	more = pattern.Lazy(`^ {7,}(\S.*)$`)
)

// roff writes a help text: paragraphs, lists in two columns, and examples as
// they are.
func roff(b *strings.Builder, text string) {
	_, text, _ = strings.Cut(text, "\n\n") // the title is the section's
	part, verbatim, listing := "", false, false
	set := func(on bool) {
		if on != verbatim {
			b.WriteString(map[bool]string{true: ".PP\n.EX\n", false: ".EE\n"}[on])
		}
		verbatim = on
	}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		m := entry().FindStringSubmatch(line)
		if part == "Flags" {
			m = flagEntry().FindStringSubmatch(line)
		}
		example := part == "Examples" && strings.HasPrefix(line, "    ") ||
			(part == "Usage" || part == "Examples") && strings.HasPrefix(line, "  tenure")
		set(example)
		text := escaped(strings.TrimSpace(line))
		switch {
		case line == "":
			text, listing = ".PP", false
		case heading().MatchString(line):
			part, listing = strings.TrimSuffix(line, ":"), false
			text = ".SS " + escaped(part)
		case example:
			text = escaped(line)
		case part == "Examples", listing && more().MatchString(line):
		case m != nil:
			listing = true
			text = ".TP\n\\fB" + escaped(m[1]) + "\\fR"
			if m[2] != "" {
				text += "\n" + escaped(m[2])
			}
		case listing:
			text, listing = ".PP\n"+text, false
		}
		b.WriteString(text + "\n")
	}
	set(false)
}

func escaped(text string) string {
	text = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `~`, `\(ti`, `^`, `\(ha`, `'`, `\(aq`, "`", `\(ga`).Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}
