// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"embed"
	"slices"
)

// The help is written by hand, in the folder help; a test compares it with the flags that
// there are.
//
//go:embed help/*.txt
var helpTexts embed.FS

// helpOf returns the help of a command, "" being the service itself.
func helpOf(command string) string {
	b, _ := helpTexts.ReadFile("help/" + cmp.Or(command, "tenured") + ".txt") // a test ensures that it exists
	return string(b)
}

// help returns the help that the command line asks for, if it does.
func help(args []string) (text string, asked bool) {
	asked = slices.ContainsFunc(args, func(word string) bool { return word == "--help" || word == "-h" }) ||
		len(args) > 0 && args[0] == "help"
	if !asked {
		return "", false
	}
	return helpOf(subject(args)), true
}
