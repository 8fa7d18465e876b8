// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sqlitestore

import (
	"errors"
	"os"
	"syscall"
)

// chownLike gives file to the owner of the file that info describes, as SQLite
// does with its log: root must not take the notify file from the users of the file.
func chownLike(file *os.File, info os.FileInfo) {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		_ = file.Chown(int(stat.Uid), int(stat.Gid))
	}
}

// access returns an error if this user may not read and write a file or folder.
// It does not open it: closing a file drops the locks that SQLite has on it in
// this process.
func access(name string) error {
	const readWrite = 4 | 2 // R_OK and W_OK of unistd.h
	return syscall.Access(name, readWrite)
}

// noFiles returns why this process cannot open as many files as a connection
// needs, nil if it can. SQLite does not say.
func noFiles() error {
	var reason error
	for range 4 {
		file, err := os.Open(os.DevNull)
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			reason = unnamed(os.DevNull, err)
			break
		}
		if err == nil {
			defer func() { _ = file.Close() }()
		}
	}
	return reason
}
