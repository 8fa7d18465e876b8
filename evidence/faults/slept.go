// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && faults_suspend

package main

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"
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
	if err := mapSlept(name); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

func mapSlept(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // the mapping stays
	bytes, err := syscall.Mmap(int(file.Fd()), 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return err
	}
	suspended = (*int64)(unsafe.Pointer(&bytes[0])) // never unmapped
	return nil
}
