// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"regexp"
	"strings"
)

// manCmd is tenure man.
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
	parser, err := newParser()
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
			return "", fmt.Errorf("no help of %s", topic) // a test sees to it
		}
		title, _, _ := strings.Cut(text, ":")
		b.WriteString(".SH " + strings.ToUpper(escaped(title)) + "\n")
		roff(&b, text)
	}
	return b.String(), nil
}

var (
	// heading begins a part of its own.
	heading = regexp.MustCompile(`^(Usage|Flags|Exit status|Examples):$`)
	// entry is the first line of something that is explained: an exit status, a
	// variable.
	entry = regexp.MustCompile(`^  (\S+(?: \S+)*)(?:  +(\S.*))?$`)
	// flagEntry is the same for a flag, or for several that another page explains.
	flagEntry = regexp.MustCompile(`^ {2,6}((?:-\w, )?--[a-z-]+(?:(?:, --[a-z-]+)+,?|(?: [A-Z=]+)?))(?: +(\S.*))?$`)
	// more is a further line of the explanation.
	more = regexp.MustCompile(`^ {7,}(\S.*)$`)
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
		m := entry.FindStringSubmatch(line)
		if part == "Flags" {
			m = flagEntry.FindStringSubmatch(line)
		}
		switch {
		case line == "" && part == "Examples":
			set(false)
			b.WriteString(".PP\n")
		case line == "":
			set(false)
			b.WriteString(".PP\n")
			listing = false
		case heading.MatchString(line):
			set(false)
			part, listing = strings.TrimSuffix(line, ":"), false
			b.WriteString(".SS " + escaped(part) + "\n")
		case part == "Examples" && strings.HasPrefix(line, "    "),
			(part == "Usage" || part == "Examples") && strings.HasPrefix(line, "  tenure"):
			set(true)
			b.WriteString(escaped(line) + "\n")
		case part == "Examples":
			set(false)
			b.WriteString(escaped(strings.TrimSpace(line)) + "\n")
		case listing && more.MatchString(line):
			b.WriteString(escaped(strings.TrimSpace(line)) + "\n")
		case m != nil:
			set(false)
			listing = true
			b.WriteString(".TP\n\\fB" + escaped(m[1]) + "\\fR\n")
			if m[2] != "" {
				b.WriteString(escaped(m[2]) + "\n")
			}
		default:
			set(false)
			if listing {
				b.WriteString(".PP\n")
			}
			listing = false
			b.WriteString(escaped(strings.TrimSpace(line)) + "\n")
		}
	}
	set(false)
}

// escaped returns text as roff shows it: dashes as they are typed, no requests.
func escaped(text string) string {
	text = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `~`, `\(ti`, `^`, `\(ha`, `'`, `\(aq`, "`", `\(ga`).Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}
