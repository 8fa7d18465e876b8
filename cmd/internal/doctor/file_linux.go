// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

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
)

const (
	// leastFree is what a database, its log and a checkpoint need at the least.
	leastFree = 100 << 20
	// logRoom is what the log may need before it is folded in, in a burst.
	logRoom = 16 << 20
	// overlay is the type of overlayfs, see statfs(2).
	overlay = 0x794c7630
)

// file looks at the file from outside. It never opens it: closing it again would
// drop the locks that SQLite has on it in this process.
func (p *Patient) file() {
	folder := filepath.Dir(p.File)
	info, err := os.Stat(p.File)
	if err != nil {
		p.Tell(Finding{"file", Bad, err.Error(), "tenure run and tenure lead create it; see the folder's permissions"})
		return
	}
	p.Tell(Finding{"file", OK, fmt.Sprintf("%s, %d kB, %v", p.File, (info.Size()+1023)>>10, info.Mode()), ""})
	p.modes(folder, info)
	p.names(info)
	if err := unix.Access(folder, unix.W_OK); err != nil {
		p.Tell(Finding{"file", Bad, fmt.Sprintf("the folder %s cannot be written: %v", folder, err), "SQLite keeps files beside the database: chmod, or another folder"})
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(folder, &fs); err != nil {
		p.Tell(Finding{"file", Warn, fmt.Sprintf("the file system cannot be asked: %v", err), ""})
		return
	}
	if uint32(fs.Type) == overlay {
		p.Tell(Finding{
			"file", Warn, fmt.Sprintf("the folder %s is on an overlay, as a container's own files are: another container that begins with the same file has its own, and grants the same locks", folder),
			"give all containers one folder of the host (docker run -v FOLDER:FOLDER); an overlay that all of them share is as good",
		})
	}
	free := fs.Bavail * uint64(fs.Bsize)
	f := Finding{"file", OK, fmt.Sprintf("%d MB are free", free>>20), ""}
	if free < leastFree {
		f.Level, f.Advice = Warn, fmt.Sprintf(
			"on a full disk heartbeats fail, and leases end: the log alone needs up to %d MB beside the database; keep %d MB free", logRoom>>20, leastFree>>20)
	}
	p.Tell(f)
}

// modes says what the permissions let others do.
func (p *Patient) modes(folder string, info os.FileInfo) {
	switch mode := info.Mode().Perm(); {
	case mode&0o002 != 0:
		p.Tell(Finding{"file", Warn, "anybody can write it, and so take any lock", "chmod 600, or 660 for a group"})
	case mode&0o004 != 0:
		p.Tell(Finding{
			"file", Warn, "anybody can read it: that is enough to lock the files beside it, keep everybody from writing, and so end every lease",
			"chmod 600, or 660 for a group: the file, and those beside it",
		})
	case mode&0o060 != 0:
		p.Tell(Finding{"file", OK, "its group can use it: every member can take any lock, and end any lease", ""})
	}
	for _, suffix := range []string{"-wal", "-shm", "-notify"} {
		beside, err := os.Lstat(p.File + suffix)
		if err != nil {
			continue
		}
		switch wider := beside.Mode().Perm() &^ info.Mode().Perm(); {
		case suffix == "-notify" && !beside.Mode().IsRegular():
			p.Tell(Finding{
				"file", Warn, fmt.Sprintf("%s%s is no file (%v), and is left alone: waiters hear of no release, and poll instead", filepath.Base(p.File), suffix, beside.Mode()),
				"delete it, and check which users can write the folder",
			})
		case wider != 0:
			p.Tell(Finding{
				"file", Warn, fmt.Sprintf("%s%s lets others do more than the database does (%v): any user that can read or write it can end every lease", filepath.Base(p.File), suffix, beside.Mode()),
				fmt.Sprintf("chmod %o", info.Mode().Perm()),
			})
		}
	}
	if about, err := os.Stat(folder); err == nil && about.Mode().Perm()&0o002 != 0 {
		p.Tell(Finding{
			"file", Warn, fmt.Sprintf("anybody can write the folder %s (%v), and put other files beside the database, or in its place", folder, about.Mode()),
			"a folder that only its users can write: chmod o-w, or another folder",
		})
	}
}

// names looks for a second name of the file, of which Open sees what is there at
// that moment.
func (p *Patient) names(info os.FileInfo) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
		p.Tell(Finding{
			"file", Bad, fmt.Sprintf("it has %d names (hard links): a program that opens it by another one has locks of its own, beside these", st.Nlink),
			fmt.Sprintf("find them (find / -xdev -samefile %s) and remove them; programs that have it open go on, others are refused", p.File),
		})
	}
}

// User is a process that has locks on a database.
type User struct {
	PID     int
	Name    string
	Writing bool // it is in the middle of a write, and keeps others out
}

// SQLite locks these bytes of FILE-shm: see "WAL-Mode File Format" in its
// documentation.
const (
	writeLock = 120
	sharedMap = 128 // by everybody who has the database open
)

// Users returns the processes that have locks on the database, as the kernel
// tells, but this one.
func Users(file string) ([]User, error) {
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
	users := map[int]User{}
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
		u := users[pid]
		u.PID = pid
		first, _ := strconv.Atoi(words[6])
		last, err := strconv.Atoi(words[7])
		if err != nil {
			last = 1 << 30 // "EOF"
		}
		if isMap && words[3] == "WRITE" && first <= writeLock && writeLock <= last {
			u.Writing = true
		}
		users[pid] = u
	}
	list := make([]User, 0, len(users))
	for pid, u := range users {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil {
			name = []byte("gone")
		}
		u.Name = strings.TrimSpace(string(name))
		list = append(list, u)
	}
	slices.SortFunc(list, func(a, b User) int { return a.PID - b.PID })
	return list, nil
}

const (
	// A writer that is seen in so many looks is no passing one.
	blockLooks = 3
	blockPause = 300 * time.Millisecond
)

// blockers says who has the file open, and who keeps others from writing it.
func (p *Patient) blockers(ctx context.Context, busy bool) {
	if p.File == "" {
		return
	}
	var users []User
	writing := map[int]int{}
	for i := range blockLooks {
		if i > 0 {
			select {
			case <-time.After(blockPause):
			case <-ctx.Done():
				return
			}
		}
		var err error
		if users, err = Users(p.File); err != nil {
			p.Tell(Finding{"users", Warn, "the kernel does not tell who uses the file: " + err.Error(), ""})
			return
		}
		for _, u := range users {
			if u.Writing {
				writing[u.PID]++
			}
		}
	}
	for _, u := range users {
		f := Finding{"users", OK, fmt.Sprintf("process %d (%s) has the file open", u.PID, u.Name), ""}
		if writing[u.PID] == blockLooks {
			f.Level, f.Finding = Warn, fmt.Sprintf("process %d (%s) has kept all others from writing for %v and more", u.PID, u.Name, (blockLooks-1)*blockPause)
			f.Advice = "no heartbeat comes through meanwhile: a transaction is open in it; end that, or the process"
			if busy {
				f.Level = Bad
			}
		}
		p.Tell(f)
	}
	if busy && len(writing) == 0 {
		p.Tell(Finding{"users", Warn, "no process is seen that blocks the file", "it may be a process of another container, or of another machine"})
	}
}
