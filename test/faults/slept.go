// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && faults_suspend

package main

import (
	"fmt"
	"os"
	"unsafe"

	"github.com/tenurelock/tenure/test/harness/proc"
)

// suspended is the runtime's, of a program that was built to sleep.
//
//go:linkname suspended runtime.suspended
var suspended *int64

func init() {
	name := os.Getenv(suspendEnv)
	if name == "" {
		return
	}
	bytes, err := proc.Map(name, 8)
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
	suspended = (*int64)(unsafe.Pointer(&bytes[0])) // never unmapped
}
