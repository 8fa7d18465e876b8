// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package daemon is the command tenured: the lock service on a store.
//
// It serves package server over HTTP, and the dashboard, until a signal ends it. It logs to
// standard error, line by line, without ever delaying a heartbeat.
package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	xterm "golang.org/x/term"

	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/lines"
	"github.com/tenurelock/tenure/cmd/internal/printable"
)

// grammar is the command line.
type grammar struct {
	Serve serveCmd `cmd:"" default:"withargs" hidden:""`
	Check checkCmd `cmd:""`
	Token tokenCmd `cmd:""`
}

// console is where the command writes to.
type console struct {
	stdout   io.Writer
	stderr   *lines.Lines
	terminal bool // standard error is a terminal
	attended bool // a user may be there
}

// said is the prefix of messages to people.
const said = "tenured: "

func (c *console) warn(format string, args ...any) {
	_, _ = fmt.Fprintf(c.stderr, "%s%s\n", said, printable.Text(fmt.Sprintf(format, args...)))
}

// Main runs the command line without the name of the program, and returns the exit
// status.
func Main(args []string) int {
	out := flags.NewOutput(os.Stdout)
	c := &console{stdout: out, stderr: lines.New(os.Stderr), terminal: isTerminal(os.Stderr)}
	defer c.stderr.Close(time.Second)
	c.attended = slices.ContainsFunc([]*os.File{os.Stdin, os.Stdout, os.Stderr},
		func(f *os.File) bool { return xterm.IsTerminal(int(f.Fd())) })
	var err error
	if text, asked := help(args); asked {
		_, _ = fmt.Fprint(c.stdout, text)
	} else if slices.Contains(args, "--version") {
		_, _ = fmt.Fprintln(c.stdout, flags.Version("tenured"))
	} else {
		err = execute(c, args)
	}
	err = out.Or(err)
	status := flags.StatusOf(err)
	if flags.Told(err) {
		return status
	}
	text := flags.OneLine(err)
	if status == flags.StatusUsage {
		text += " (see " + strings.TrimSpace("tenured "+subject(args)) + " --help)"
	}
	c.warn("%s", text)
	return status
}

func execute(c *console, args []string) error {
	for _, word := range args {
		if !utf8.ValidString(word) { // the parser would change it silently
			return flags.Usage("%q is not valid UTF-8", word)
		}
	}
	parser, err := kong.New(new(grammar), kong.Name("tenured"), kong.NoDefaultHelp(), flags.ValueMappers(), kong.Bind(c))
	if err != nil {
		return err // the grammar is wrong
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return flags.Usage("%w", explained(err))
	}
	return parsed.Run()
}

// explained says in our words what kong says about words that are missing or misplaced.
func explained(err error) error {
	var parse *kong.ParseError
	if !errors.As(err, &parse) {
		return err
	}
	word, unexpected := strings.CutPrefix(parse.Error(), "unexpected argument ")
	word, _, _ = strings.Cut(word, ", did you mean ")
	switch {
	case unexpected:
		return fmt.Errorf("unexpected argument %.20q: the commands are check and token", word)
	case strings.HasSuffix(parse.Error(), flags.Exclusive):
		return errors.New(strings.TrimSuffix(parse.Error(), flags.Exclusive) + " exclude each other")
	}
	return err
}

// subject returns the command that the command line is about, "" for the service itself.
func subject(args []string) string {
	for _, word := range args {
		if word == "check" || word == "token" {
			return word
		}
	}
	return ""
}
