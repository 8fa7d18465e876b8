// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"os"

	"golang.org/x/sys/windows"
)

// interpretsEscapes reports whether the console understands escape sequences,
// once it is told to.
func interpretsEscapes(out *os.File) bool {
	h := windows.Handle(out.Fd())
	var mode uint32
	if err := windows.GetConsoleMode(h, &mode); err != nil {
		return false
	}
	return windows.SetConsoleMode(h, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}

// takeKeys does nothing: a console echoes only while a program reads from it.
func takeKeys(*os.File) (restore func()) { return func() {} }

func localeIsUTF8(func(string) string) bool { return true }
