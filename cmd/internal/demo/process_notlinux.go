// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package demo

import "syscall"

// detached puts a replica into a process group of its own, so that Ctrl-C goes
// to the demo alone, which ends the replicas.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
