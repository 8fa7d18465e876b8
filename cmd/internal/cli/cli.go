// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package cli is the command tenure: its commands, flags, messages and exit
// statuses.
//
// What people read goes to standard error, line by line, and never holds up a
// lease: see [lines]. Standard output is the child's in run and lead, and what
// was asked for in status.
package cli

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/guard"
	"github.com/tenurelock/tenure/cmd/internal/schedule"
)

// grammar is the command line. A command is a struct with a Run method, whose
// parameters, if it has any, are bound in execute: *console, and operands. Only
// those with the tag "words" take operands. For tags of flags see checkFlags.
type grammar struct {
	runLine
	leadLine
	onceLine
	everyLine

	Status statusCmd `cmd:"" words:""`

	History  historyCmd  `cmd:""`
	StepDown stepDownCmd `cmd:""`
	Release  releaseCmd  `cmd:""`

	Shard    shardCmd    `cmd:""`
	Exporter exporterCmd `cmd:"" words:""`
	Reap     reapCmd     `cmd:"" words:""`
	Sweep    sweepCmd    `cmd:""`
	Tokens   tokensCmd   `cmd:""`

	Table  tableCmd  `cmd:""`
	Doctor doctorCmd `cmd:""`

	Completion completionCmd `cmd:""`
	Man        manCmd        `cmd:""`

	Crashed crashedCmd `cmd:"" hidden:""` // crashedWord
}

// Some parts of the grammar are parsed separately: see commandLine.
type (
	runLine struct {
		Run runCmd `cmd:"" words:""`
	}
	leadLine struct {
		Lead leadCmd `cmd:"" words:""`
	}
	onceLine struct {
		Once onceCmd `cmd:"" words:""`
	}
	everyLine struct {
		Every everyCmd `cmd:"" words:""`
	}
)

// operands are the words after the first "--", which are not parsed as flags.
type operands struct {
	given bool
	words []string
}

// Main runs the command line without the name of the program, and returns the
// exit status.
func Main(args []string) int {
	if len(args) > 0 && args[0] == completeWord {
		for _, word := range candidates(args[1:]) {
			fmt.Fprintln(os.Stdout, word)
		}
		return 0
	}
	_ = schedule.SetLocal() // occurrence reports the error where it matters
	c := newConsole(os.Stdout, os.Stderr)
	defer c.close(time.Second)
	head, rest := split(args)
	command, hint := subject(head)
	if text, asked := help(head, command); asked {
		_, _ = fmt.Fprint(c.stdout, text)
		return c.fail(c.output(nil), hint)
	}
	if len(head) > 0 && head[0] == "help" {
		head = head[1:] // about something that there is not
	}
	if slices.Contains(head, "--version") && command == "" {
		_, _ = fmt.Fprintln(c.stdout, flags.Version("tenure"))
		return c.fail(c.output(nil), hint)
	}
	return c.fail(c.output(execute(c, head, rest)), hint)
}

func execute(c *console, head []string, rest operands) error {
	for _, word := range head {
		if !utf8.ValidString(word) { // the parser would change it silently
			return usage("%q is not valid UTF-8: only the command after \"--\" may be", word)
		}
	}
	parser, err := newParser(commandLine(head), kong.Bind(c, rest))
	if err != nil {
		return err // the grammar is wrong
	}
	if len(head) == 0 {
		return usage("no command given: use run, lead, status or another one")
	}
	parsed, err := parser.Parse(head)
	if err != nil {
		return usage("%w", explained(err))
	}
	c.set(outputOf(parsed))
	if rest.given && !parsed.Selected().Tag.Has("words") {
		return usage(`this command runs nothing: leave out "--" and what follows`)
	}
	if err := checkFlags(parsed.Flags()); err != nil {
		return err
	}
	return parsed.Run()
}

func outputOf(parsed *kong.Context) (f outputFlags) {
	fields := map[string]*bool{"json": &f.JSON, "quiet": &f.Quiet, "verbose": &f.Verbose}
	for _, flag := range parsed.Flags() {
		if field := fields[flag.Name]; field != nil {
			*field = flag.Target.Bool()
		}
	}
	return f
}

// newParser returns the parser of a pointer to the grammar, or to a part of it.
func newParser(grammar any, options ...kong.Option) (*kong.Kong, error) {
	return kong.New(grammar, append(options, kong.Name("tenure"), kong.NoDefaultHelp(), flags.ValueMappers())...)
}

// commandLine returns a pointer to that part of the grammar that a command line needs. To make
// the parser of all of it takes as long as to take a lock.
func commandLine(head []string) any {
	switch {
	case len(head) == 0:
	case head[0] == "run":
		return new(runLine)
	case head[0] == "lead":
		return new(leadLine)
	case head[0] == "once":
		return new(onceLine)
	case head[0] == "every":
		return new(everyLine)
	}
	return new(grammar)
}

// split takes the command line apart at the first "--".
func split(args []string) (head []string, rest operands) {
	i := slices.Index(args, "--")
	if i < 0 {
		return args, operands{}
	}
	return args[:i], operands{given: true, words: args[i+1:]}
}

// subject returns the command that the command line is about, "" if that is not
// clear, and the help to read about it.
func subject(head []string) (command, hint string) {
	i := slices.IndexFunc(head, func(word string) bool { return word != "help" && !strings.HasPrefix(word, "-") })
	if i < 0 || head[i] == "" {
		return "", "see tenure --help"
	}
	if _, known := helpOf(head[i]); !known {
		return "", "see tenure --help"
	}
	return head[i], "see tenure " + head[i] + " --help"
}

// explained says in our words what kong says about words that are missing or
// misplaced.
func explained(err error) error {
	var parse *kong.ParseError
	if !errors.As(err, &parse) || parse.Context == nil {
		return err
	}
	word, unexpected := strings.CutPrefix(parse.Error(), "unexpected argument ")
	word, meant, _ := strings.Cut(word, ", did you mean ")
	selected := parse.Context.Selected()
	switch {
	case selected == nil && unexpected && meant != "" && word != "":
		return fmt.Errorf("unknown command %.20q, did you mean %s", word, meant)
	case selected == nil && unexpected:
		return fmt.Errorf("unknown command %.20q: use run, lead, status or another one", word)
	case selected != nil && len(selected.Children) > 0 && unexpected:
		return fmt.Errorf("unknown argument %.20q: want %s", word, parts(selected))
	case selected != nil && len(selected.Children) > 0 && strings.HasPrefix(parse.Error(), "expected "):
		return fmt.Errorf("an argument is missing: want %s", parts(selected))
	case selected != nil && unexpected && len(selected.Positional) == 0:
		return fmt.Errorf("unexpected argument %.20q: %s takes only flags",
			word, strings.TrimPrefix(selected.FullPath(), "tenure "))
	case selected != nil && unexpected && !selected.Tag.Has("words"):
		return fmt.Errorf("unexpected argument %.20q: only one %s goes with %s",
			word, strings.ToUpper(selected.Positional[0].Name), selected.Name)
	case selected != nil && unexpected:
		return fmt.Errorf(`unexpected argument %.20q: put the command and its arguments after "--"`, word)
	case strings.HasPrefix(parse.Error(), `expected "<shell>"`):
		return errors.New("no shell named: want bash, zsh or fish")
	case strings.HasPrefix(parse.Error(), `expected "<group>"`):
		return errors.New("no group named: GROUP is missing")
	case strings.HasPrefix(parse.Error(), `expected "<words>`):
		return errors.New("the period and the NAME are missing: write tenure every 1h NAME")
	case strings.HasPrefix(parse.Error(), `expected "<name>"`):
		return errors.New("no lock named: NAME is missing")
	case strings.HasSuffix(parse.Error(), flags.Exclusive):
		return errors.New(strings.TrimSuffix(parse.Error(), flags.Exclusive) + " exclude each other")
	}
	return err
}

func parts(command *kong.Node) string {
	var all []string
	for _, part := range command.Children {
		all = append(all, part.FullPath())
	}
	if len(all) == 1 {
		return all[0]
	}
	return strings.Join(all[:len(all)-1], ", ") + " or " + all[len(all)-1]
}

// The help is written by hand, in the folder help; a test compares it with the
// flags that there are.
//
//go:embed help/*.txt
var helpTexts embed.FS

func helpOf(command string) (text string, known bool) {
	if command == "tenure" {
		return "", false
	}
	b, err := helpTexts.ReadFile("help/" + cmp.Or(command, "tenure") + ".txt")
	return string(b), err == nil
}

// help returns the help that the command line asks for, if it does.
func help(head []string, command string) (text string, asked bool) {
	asks := slices.ContainsFunc(head, func(word string) bool { return word == "--help" || word == "-h" })
	if !asks && (len(head) == 0 || head[0] != "help") {
		return "", false
	}
	if !asks && len(head) > 1 && command == "" {
		return "", false // help for a command that there is not
	}
	return helpOf(command)
}

// Exit statuses in addition to the child's own, and those of package flags. 75 is "temporary
// failure, try again" of sysexits.h, 126 and 127 are the shell's.
const (
	statusUsage     = flags.StatusUsage
	statusStore     = flags.StatusStore
	statusLost      = 73
	statusHeld      = 75
	statusTimeout   = 124 // as timeout(1) has it
	statusCannotRun = 126
	statusNotFound  = 127
)

func failed(status int, err error) error { return flags.Failed(status, err) }

// ended ends the program with a status about which nothing is left to say. It
// is never nil, since 0 may be the status of a lock that was not acquired.
func ended(status int) error { return flags.Failed(status, nil) }

func usage(format string, args ...any) error { return flags.Usage(format, args...) }

// tempFail is for what may succeed later: another process has it, or is doing it.
func tempFail(format string, args ...any) error {
	return failed(statusHeld, fmt.Errorf(format, args...))
}

func storeFailed(err error) error { return failed(statusStore, err) }

// cannotRun is for errors of guard.Start and of looking a command up.
func cannotRun(err error) error {
	if status := guard.StartStatus(err); status != 0 {
		return failed(status, err)
	}
	return failed(statusCannotRun, err)
}

// fail says what went wrong, in one line, and returns the exit status.
func (c *console) fail(err error, hint string) int {
	status := flags.StatusOf(err)
	if flags.Told(err) {
		return status
	}
	text := flags.OneLine(err)
	if c.json {
		c.emit(record{Event: eventError, Status: &status, Error: text})
		return status
	}
	if status == statusUsage {
		text += " (" + hint + ")"
	}
	c.write(prefix+"%s", text)
	return status
}
