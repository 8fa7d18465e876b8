// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"io"
	"syscall"
)

// detached keeps Ctrl-C from a replica: it goes to the demo alone, which ends
// the replicas.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// ask asks the replica to end. Windows has no SIGTERM: a line does it.
func (p *process) ask() error {
	_, err := io.WriteString(p.stdin, "end\n")
	return err
}
