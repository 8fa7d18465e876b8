// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// inotify receives events about the files of a database, and about its notify
// file while there is a watch. It is one instance for all, since a user has
// few.
type inotify struct {
	database string
	file     *os.File // read through the runtime's poller
	raw      syscall.RawConn
	files    map[int]bool // the watches of the database's own files
	buf      [4096]byte

	mu     sync.Mutex
	notify int // the watch of the notify file, 0 if the file is missing
	seen   slots
}

const (
	// Events that take the name from an open file. (The file is not deleted
	// before it is closed; its number of links shows a deletion.)
	renamed = syscall.IN_ATTRIB | syscall.IN_DELETE_SELF | syscall.IN_MOVE_SELF
	written = syscall.IN_MODIFY
)

func openKernel(files identity) (kernel, error) {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	k := &inotify{database: files.names[0], file: os.NewFile(uintptr(fd), "inotify"), files: map[int]bool{}}
	k.raw, err = k.file.SyscallConn()
	for _, name := range files.names {
		var wd int
		if err == nil {
			wd, err = k.add(name, renamed|syscall.IN_DONT_FOLLOW)
			k.files[wd] = true
		}
	}
	if err != nil {
		_ = k.file.Close()
		return nil, err
	}
	return k, nil
}

func (k *inotify) add(name string, mask uint32) (wd int, err error) {
	closed := k.raw.Control(func(fd uintptr) {
		wd, err = syscall.InotifyAddWatch(int(fd), name, mask)
	})
	if closed != nil {
		return 0, closed
	}
	return wd, os.NewSyscallError("inotify_add_watch", err)
}

func (k *inotify) listen() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.listenLocked()
}

// listenLocked watches the current notify file, and creates it if it is missing.
// The watch is on the opened file, not on a later file of that name; losing the
// name afterwards is an event.
func (k *inotify) listenLocked() error {
	k.unlistenLocked()
	file, err := openNotify(k.database)
	if err != nil {
		return err
	}
	wd, err := k.add(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), renamed|written)
	if err != nil { // there may be no /proc
		wd, err = k.add(k.database+notifySuffix, renamed|written|syscall.IN_DONT_FOLLOW)
	}
	_ = file.Close()
	if err != nil {
		return err
	}
	k.notify = wd
	if _, err = k.seen.look(k.database); err != nil {
		k.unlistenLocked()
	}
	return err
}

func (k *inotify) unlisten() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unlistenLocked()
}

func (k *inotify) unlistenLocked() {
	if k.notify == 0 {
		return
	}
	wd := uint32(k.notify)
	k.notify = 0
	_ = k.raw.Control(func(fd uintptr) { _, _ = syscall.InotifyRmWatch(int(fd), wd) })
}

// wait takes all pending events: many writes are one change.
func (k *inotify) wait() (n news, err error) {
	count, err := k.file.Read(k.buf[:])
	if err != nil {
		// The kernel takes 10 ms to end it, and seconds where many are ended at once.
		go func() { _ = k.file.Close() }()
		return n, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	look, listen := false, false
	for rest := k.buf[:count]; len(rest) >= syscall.SizeofInotifyEvent; {
		event := (*syscall.InotifyEvent)(unsafe.Pointer(&rest[0]))
		switch {
		case event.Mask&syscall.IN_Q_OVERFLOW != 0: // events were lost
			n.files, listen = true, true
		case k.files[int(event.Wd)]:
			n.files = true
		case int(event.Wd) != k.notify: // a watch that was ended
		case event.Mask == written:
			look = true
		default:
			listen = true
		}
		rest = rest[syscall.SizeofInotifyEvent+int(event.Len):]
	}
	if k.notify == 0 {
		return n, nil
	}
	if look && !listen {
		n.changed, err = k.seen.look(k.database)
		listen = err != nil
	}
	if listen {
		// The file was replaced. Writes before the new watch are unknown, so
		// any key may have changed.
		n.changed = anyKey
		n.overflown = k.listenLocked() != nil
	}
	return n, nil
}

func (k *inotify) close() {
	if err := k.file.SetReadDeadline(time.Unix(1, 0)); err != nil {
		_ = k.file.Close()
	}
}
