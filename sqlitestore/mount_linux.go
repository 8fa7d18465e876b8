// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// isMount reports whether a file is a mount itself. A device that differs from
// its folder's would prove nothing: it also differs in a container's own
// layers.
func isMount(file string) bool {
	var stat unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, file, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, 0, &stat)
	if err == nil && stat.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
	}
	return listedAsMount(file) // Linux before 5.8
}

// listedAsMount asks the list of mounts. See proc_pid_mountinfo(5).
func listedAsMount(file string) bool {
	list, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	name := strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(file)
	for line := range strings.Lines(string(list)) {
		// 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
		if words := strings.Fields(line); len(words) > 4 && words[4] == name {
			return true
		}
	}
	return false
}
