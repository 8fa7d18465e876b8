// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package demo

import (
	"cmp"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

func interpretsEscapes(*os.File) bool { return true }

// takeKeys has the terminal not show what is typed, which would disturb the
// panel, and takes its meaning from Ctrl-Z: a demo that is suspended times
// nothing. Ctrl-C works as ever. In the background it does nothing: the terminal
// belongs to another program then, and would stop this one.
func takeKeys(in *os.File) (restore func()) {
	fd := int(in.Fd())
	foreground := func() bool {
		group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		return err == nil && group == unix.Getpgrp()
	}
	if !foreground() {
		return func() {}
	}
	before, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return func() {}
	}
	mute := *before
	mute.Lflag &^= unix.ECHO
	mute.Cc[unix.VSUSP] = noKey
	if err := unix.IoctlSetTermios(fd, setTermios, &mute); err != nil {
		return func() {}
	}
	return func() {
		if foreground() {
			_ = unix.IoctlSetTermios(fd, setTermios, before) // the terminal may be gone
		}
	}
}

// localeIsUTF8 looks at the variables in the order in which C libraries do.
func localeIsUTF8(env func(string) string) bool {
	locale := strings.ToLower(cmp.Or(env("LC_ALL"), env("LC_CTYPE"), env("LANG")))
	return strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
}
