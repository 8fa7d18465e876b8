// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package enginetest

import "syscall"

// Stop has the process hang.
func (e *Engine) Stop() { e.Signal(syscall.SIGSTOP) }

// Continue ends a Stop.
func (e *Engine) Continue() { e.Signal(syscall.SIGCONT) }
