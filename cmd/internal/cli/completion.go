// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/shard"
)

// The scripts ask this program for the words that fit, so that they know
// nothing of commands and flags, and never grow old. (The libraries that do
// this for kong rest on packages that nobody has kept for years.)
//
//go:embed completion
var completionScripts embed.FS

// completeWord is the hidden command that the scripts call, with the words
// behind the program's name, up to the one that is being written.
const completeWord = "__complete"

// completionCmd is tenure completion.
type completionCmd struct {
	Shell string `arg:""`
}

// Run prints the script of a shell.
func (f *completionCmd) Run(c *console, rest operands) error {
	if rest.given {
		return usage(`this command runs nothing: leave out "--" and what follows`)
	}
	script, err := fs.ReadFile(completionScripts, "completion/tenure."+f.Shell)
	if err != nil || !slices.Contains(shells, f.Shell) {
		return usage("shell %.20q is not known: want bash, zsh or fish", f.Shell)
	}
	if _, err := c.stdout.Write(script); err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	return nil
}

var shells = []string{"bash", "fish", "zsh"}

// complete prints the words that can stand for the last of the given ones, one
// a line. It prints none where a file may stand, or nobody knows: the shell
// completes files then.
func complete(w io.Writer, words []string) {
	for _, word := range candidates(words) {
		fmt.Fprintln(w, word)
	}
}

func candidates(words []string) []string {
	if len(words) == 0 || slices.Contains(words[:len(words)-1], "--") {
		return nil
	}
	before, word := words[:len(words)-1], words[len(words)-1]
	parser, err := newParser()
	if err != nil {
		return nil
	}
	var command *kong.Node
	store := os.Getenv("TENURE_STORE")
	locksGiven, lock := 0, "" // behind the command; the first of them
	for i := 0; i < len(before); i++ {
		switch {
		case command == nil && !strings.HasPrefix(before[i], "-"):
			at := slices.IndexFunc(parser.Model.Children, func(n *kong.Node) bool { return n.Name == before[i] })
			if at < 0 && before[i] != "help" {
				return nil
			}
			if before[i] == "help" {
				return fitting(commands(parser), word)
			}
			command = parser.Model.Children[at]
		case len(command.Children) > 0 && !strings.HasPrefix(before[i], "-"):
			at := slices.IndexFunc(command.Children, func(n *kong.Node) bool { return n.Name == before[i] })
			if at < 0 {
				return nil
			}
			command = command.Children[at]
		case strings.HasPrefix(before[i], "-") && command != nil:
			flag, value, joined := strings.Cut(before[i], "=")
			f := flagOf(command, flag)
			if f == nil || f.IsBool() {
				continue
			}
			if !joined {
				if i++; i == len(before) {
					return values(f, word, func() (string, string) { return store, lock })
				}
				value = before[i]
			}
			if f.Name == "store" {
				store = value
			}
		default:
			if locksGiven++; locksGiven == 1 {
				lock = before[i]
			}
		}
	}
	switch {
	case command == nil && strings.HasPrefix(word, "-"):
		return fitting([]string{"--help", "--version"}, word)
	case command == nil:
		return fitting(append(commands(parser), "help"), word)
	case strings.HasPrefix(word, "--") && strings.Contains(word, "="):
		flag, value, _ := strings.Cut(word, "=")
		f := flagOf(command, flag)
		if f == nil || f.IsBool() {
			return nil
		}
		var list []string
		for _, v := range values(f, value, func() (string, string) { return store, lock }) {
			list = append(list, flag+"="+v)
		}
		return list
	case strings.HasPrefix(word, "-"):
		return fitting(flagWords(command), word)
	case len(command.Children) > 0:
		return fitting(names(command), word)
	case command.Name == "completion" && locksGiven == 0:
		return fitting(shells, word)
	case command.Name == "shard" && locksGiven == 0:
		return fitting(namesIn(store, groupOf), word)
	case command.Name == "once" && locksGiven == 0:
		return fitting(namesIn(store, ledgerOf(once.LockName(""))), word)
	case command.Name == "every" && locksGiven < 2:
		return fitting(namesIn(store, ledgerOf(once.EveryLockName(""))), word)
	case len(command.Positional) > 0 && (locksGiven == 0 || command.Name == "status" || command.Name == "exporter" || command.Name == "reap"):
		return fitting(namesIn(store, func(lock string) string { return lock }), word)
	}
	return nil
}

func commands(parser *kong.Kong) []string { return names(parser.Model.Node) }

// names are those of the commands that a command has.
func names(command *kong.Node) []string {
	var list []string
	for _, n := range command.Children {
		if !n.Hidden {
			list = append(list, n.Name)
		}
	}
	return list
}

func flagWords(command *kong.Node) []string {
	list := []string{"--help"}
	for _, f := range command.Flags {
		list = append(list, "--"+f.Name)
	}
	return list
}

func flagOf(command *kong.Node, word string) *kong.Flag {
	for _, f := range command.Flags {
		if word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short) {
			return f
		}
	}
	return nil
}

// values are those that a flag can begin with. A store is a path, mostly. Those to whom a lock
// can be handed over are the ones who had it before: who waits for it is written nowhere.
func values(f *kong.Flag, word string, given func() (store, lock string)) []string {
	switch f.Name {
	case "store":
		return fitting([]string{"sqlite:", "dynamodb://", "etcd://", "kubernetes://", "postgres://", "zookeeper://", "memory:", "default:"}, word)
	case "holder":
		return fitting(holders, word)
	case "to":
		store, lock := given()
		return fitting(heldBy(store, lock, func(t tenure.Tenure) string { return t.Owner }), word)
	case "to-label":
		store, lock := given()
		return fitting(heldBy(store, lock, func(t tenure.Tenure) string { return t.Label }), word)
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
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/@%+-]*$`)

const (
	// completionPatience is how long somebody who pressed a key is kept waiting.
	completionPatience = 500 * time.Millisecond
	mostCompleted      = 1000
)

// groupOf returns the group of which a lock says which partitions it has, "" if
// it is another lock.
func groupOf(lock string) string {
	group, ok := strings.CutSuffix(lock, shard.SpecName(""))
	if !ok {
		return ""
	}
	return group
}

// ledgerOf returns the name of a ledger whose lock ends so, "" for another lock.
func ledgerOf(suffix string) func(lock string) string {
	return func(lock string) string {
		name, ok := strings.CutSuffix(lock, suffix)
		if !ok {
			return ""
		}
		return name
	}
}

// namesIn returns the names in a store, as they are shown for its locks.
func namesIn(url string, shown func(lock string) string) []string {
	return ask(url, func(ctx context.Context, client *tenure.Client) (names []string) {
		for st, err := range client.Locks(ctx, "") {
			if name := shown(st.Name); err == nil && plainName.MatchString(name) {
				names = append(names, name)
			}
			if len(names) == mostCompleted {
				break
			}
		}
		return names
	})
}

// heldBy returns what is shown of the tenures of a lock, each once.
func heldBy(url, lock string, shown func(tenure.Tenure) string) []string {
	if lock == "" {
		return nil
	}
	return ask(url, func(ctx context.Context, client *tenure.Client) (names []string) {
		history, err := client.History(ctx, lock)
		if err != nil {
			return nil
		}
		for _, t := range history {
			if name := shown(t); plainName.MatchString(name) && !slices.Contains(names, name) {
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
	go func() { // a store that does not answer is left behind: the program ends
		store, err := at.Open()
		if err != nil {
			answer <- nil
			return
		}
		client, err := tenure.New(store, nil)
		if err != nil {
			answer <- nil
			return
		}
		found := find(context.Background(), client)
		_ = client.Close(context.Background()) // it holds nothing
		_ = store.Close()
		answer <- found
	}()
	select {
	case found := <-answer:
		return found
	case <-time.After(completionPatience):
		return nil
	}
}
