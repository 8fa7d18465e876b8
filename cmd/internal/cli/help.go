// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"embed"
	"io/fs"
	"slices"

	"github.com/tenurelock/tenure/cmd/internal/flags"
)

// The help is written by hand, in the folder help; a test compares it with the
// flags that there are.
//
//go:embed help/*.txt
var helpTexts embed.FS

// helpOf returns the help of a command, "" being the whole program.
func helpOf(command string) (text string, known bool) {
	switch command {
	case "":
		command = "tenure"
	case "tenure":
		return "", false
	}
	b, err := fs.ReadFile(helpTexts, "help/"+command+".txt")
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

func version() string { return flags.Version("tenure") }
