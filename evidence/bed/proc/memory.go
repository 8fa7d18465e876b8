// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proc

import (
	"os"
	"syscall"
)

// Map makes a file a part of memory, which all processes share that have mapped it,
// and makes the file if it is not there. What a process has written is there when it
// is killed in the next instant. The caller unmaps it, or the end of the process.
func Map(path string, size int) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the mapping stays
	if err := f.Truncate(int64(size)); err != nil {
		return nil, err
	}
	return syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}
