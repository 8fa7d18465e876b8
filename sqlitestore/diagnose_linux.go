// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenurelock/tenure/driver"
)

const (
	// leastFree is the least space for a database, its log and a checkpoint, and logRoom the
	// space that the log may need in a burst, before a checkpoint.
	leastFree = 100 << 20
	logRoom   = 16 << 20
	// overlay is the type of overlayfs, see statfs(2).
	overlay = 0x794c7630
	// A writer that is seen in so many checks blocks others.
	blockLooks = 3
	blockPause = 300 * time.Millisecond
)

// Diagnose examines a database file from outside, whether a store opens on it or not: its
// permissions and its place, and which processes have it open. It never opens it: closing
// it again would drop the locks that SQLite has on it in this process. It takes most of a
// second.
func Diagnose(ctx context.Context, file string) []driver.Finding {
	info, err := os.Stat(file)
	if err != nil {
		return []driver.Finding{driver.Bad("file", "%v", err).Advise("tenure run and tenure lead create it; " +
			"see the folder's permissions")}
	}
	all := []driver.Finding{driver.OK("file", "%s, %d kB, %v", file, (info.Size()+1023)>>10, info.Mode())}
	all = append(all, modes(file, info)...)
	// Open sees only the names that exist when it is called.
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
		all = append(all, driver.Bad("file", "it has %d names (hard links): a program that opens it by "+
			"another name has separate locks", st.Nlink).
			Advise("find the names (find / -xdev -samefile %s) and remove all but one; programs that have it open "+
				"go on, others are refused", file))
	}
	all = append(all, room(filepath.Dir(file))...)
	return append(all, users(ctx, file)...)
}

// room examines the folder and its file system.
func room(folder string) (all []driver.Finding) {
	if err := unix.Access(folder, unix.W_OK); err != nil {
		all = append(all, driver.Bad("file", "the folder %s cannot be written: %v", folder, err).
			Advise("SQLite creates files beside the database: chmod the folder, or use another one"))
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(folder, &fs); err != nil {
		return append(all, driver.Warn("file", "the state of the file system cannot be read: %v", err))
	}
	if uint32(fs.Type) == overlay {
		all = append(all, driver.Warn("file", "the folder %s is on an overlay, as a container's own files are: "+
			"another container that starts with the same file has its own copy, and grants the same locks", folder).
			Advise("give all containers one folder of the host (docker run -v FOLDER:FOLDER); an overlay "+
				"that all of them share is as good"))
	}
	free := fs.Bavail * uint64(fs.Bsize)
	f := driver.OK("file", "%d MB are free", free>>20)
	if free < leastFree {
		f.Level = driver.LevelWarn
		f = f.Advise("on a full disk heartbeats fail, and leases end: the log alone needs up to %d MB "+
			"beside the database; keep %d MB free",
			logRoom>>20, leastFree>>20)
	}
	return append(all, f)
}

// modes says what the permissions let others do.
func modes(file string, info os.FileInfo) (all []driver.Finding) {
	switch mode := info.Mode().Perm(); {
	case mode&0o002 != 0:
		all = append(all, driver.Warn("file", "any user can write it, and so take any lock").Advise("chmod 600, or 660 for a group"))
	case mode&0o004 != 0:
		all = append(all, driver.Warn("file", "any user can read it: that is enough to lock the files beside "+
			"it, keep all others from writing, and so end every lease").
			Advise("chmod 600, or 660 for a group: the file, and those beside it"))
	case mode&0o060 != 0:
		all = append(all, driver.OK("file", "its group can use it: every member can take any lock, and end any lease"))
	}
	for _, suffix := range []string{"-wal", "-shm", "-notify"} {
		beside, err := os.Lstat(file + suffix)
		if err != nil {
			continue
		}
		name := filepath.Base(file) + suffix
		switch wider := beside.Mode().Perm() &^ info.Mode().Perm(); {
		case suffix == "-notify" && !beside.Mode().IsRegular():
			all = append(all, driver.Warn("file", "%s is not a regular file (%v), and is left alone: waiters are "+
				"not notified of a release, and poll instead", name, beside.Mode()).
				Advise("delete it, and check which users can write the folder"))
		case wider != 0:
			all = append(all, driver.Warn("file", "%s lets others do more than the database does (%v): any "+
				"user that can read or write it can end every lease",
				name, beside.Mode()).Advise("chmod %o", info.Mode().Perm()))
		}
	}
	folder := filepath.Dir(file)
	if about, err := os.Stat(folder); err == nil && about.Mode().Perm()&0o002 != 0 {
		all = append(all, driver.Warn("file", "any user can write the folder %s (%v), and put other files "+
			"beside the database, or in its place", folder, about.Mode()).
			Advise("let only its users write it: chmod o-w, or use another folder"))
	}
	return all
}

// user is a process that has locks on a database.
type user struct {
	pid     int
	name    string
	writing bool // it is in the middle of a write, and keeps others out
}

// SQLite locks these bytes of FILE-shm: see "WAL-Mode File Format" in its
// documentation.
const (
	writeLock = 120
	sharedMap = 128 // by all processes that have the database open
)

// openBy returns the processes, except this one, that have locks on the
// database, as the kernel reports.
func openBy(file string) ([]user, error) {
	text, err := os.ReadFile("/proc/locks")
	if err != nil {
		return nil, err
	}
	places := map[string]bool{} // major:minor:inode, and whether it is the shared map
	for _, suffix := range []string{"", "-wal", "-shm"} {
		var st unix.Stat_t
		if err := unix.Stat(file+suffix, &st); err != nil {
			continue
		}
		places[fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)] = suffix == "-shm"
	}
	all := map[int]user{}
	for line := range strings.Lines(string(text)) {
		// 1: POSIX  ADVISORY  WRITE 4711 fd:00:1234 120 120
		words := strings.Fields(line)
		if len(words) < 8 || words[1] == "->" {
			continue // a waiter
		}
		isMap, ours := places[words[5]]
		pid, err := strconv.Atoi(words[4])
		if !ours || err != nil || pid <= 0 || pid == os.Getpid() {
			continue
		}
		u := all[pid]
		u.pid = pid
		first, _ := strconv.Atoi(words[6])
		last, err := strconv.Atoi(words[7])
		if err != nil {
			last = 1 << 30 // "EOF"
		}
		if isMap && words[3] == "WRITE" && first <= writeLock && writeLock <= last {
			u.writing = true
		}
		all[pid] = u
	}
	list := make([]user, 0, len(all))
	for pid, u := range all {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil {
			name = []byte("gone")
		}
		u.name = strings.TrimSpace(string(name))
		list = append(list, u)
	}
	slices.SortFunc(list, func(a, b user) int { return a.pid - b.pid })
	return list, nil
}

// users says which processes have the file open, and which keep others from writing it.
func users(ctx context.Context, file string) (all []driver.Finding) {
	var open []user
	writing := map[int]int{}
	for i := range blockLooks {
		if i > 0 {
			select {
			case <-time.After(blockPause):
			case <-ctx.Done():
				return nil
			}
		}
		var err error
		if open, err = openBy(file); err != nil {
			return []driver.Finding{driver.Warn("users", "the kernel does not show which processes use the file: %v", err)}
		}
		for _, u := range open {
			if u.writing {
				writing[u.pid]++
			}
		}
	}
	if len(open) == 0 {
		return []driver.Finding{driver.OK("users", "no other visible process has the file open").
			Advise("processes of other containers and machines are not visible")}
	}
	for _, u := range open {
		f := driver.OK("users", "process %d (%s) has the file open", u.pid, u.name)
		if writing[u.pid] == blockLooks {
			f = driver.Warn("users", "process %d (%s) has kept all others from writing for %v and more", u.pid, u.name, (blockLooks-1)*blockPause).
				Advise("no heartbeat can be written meanwhile: a transaction is open in it; end the transaction, or the process")
		}
		all = append(all, f)
	}
	return all
}
