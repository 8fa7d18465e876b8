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
