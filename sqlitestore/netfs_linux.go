// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import "syscall"

// fileSystem returns the type of the file system that holds a folder, 0 if it
// cannot be known.
func fileSystem(folder string) uint32 {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(folder, &stat); err != nil {
		return 0
	}
	return uint32(stat.Type)
}

// noSpace says that the file system of a folder has no room for the index of the log, which
// is the first that SQLite makes.
func noSpace(folder string) bool {
	const index = 32 << 10
	var stat syscall.Statfs_t
	return syscall.Statfs(folder, &stat) == nil && stat.Bavail*uint64(stat.Bsize) < index
}
