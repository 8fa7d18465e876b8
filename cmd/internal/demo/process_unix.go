// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package demo

import "syscall"

// ask asks the replica to end.
func (p *process) ask() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
