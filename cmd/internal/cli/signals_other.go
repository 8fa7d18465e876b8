// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package cli

import (
	"os"
	"syscall"
)

// harmless is false for the signals of this system: all of them end a program.
func harmless(syscall.Signal) bool { return false }

// ownGroup is not known on this system, so killGroup kills a single process.
func ownGroup() *syscall.SysProcAttr { return nil }

func killGroup(p *os.Process) error { return p.Kill() }

// suspendable does nothing: there is no Ctrl-Z on this system.
func suspendable(_, _ func()) (stop func()) { return func() {} }
