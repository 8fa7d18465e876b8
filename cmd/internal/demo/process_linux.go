// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import "syscall"

// detached puts a replica into a process group of its own, so that Ctrl-C goes
// to the demo alone, which ends the replicas; and it has the kernel kill the
// replica if the demo dies. (What counts is the thread that started it. Go ends
// a thread early only if a goroutine that is locked to it ends: none here.)
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
