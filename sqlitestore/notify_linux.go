// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"os"
	"syscall"
	"unsafe"
)

// events hears the bell through inotify.
type events struct {
	database string
	fd       int
	file     *os.File // fd, read through the runtime's poller
	seen     slots
	buf      [4096]byte
}

// bellEvents are writing, and whatever takes the name from the file: then the
// watch is on a file that nobody rings any more.
const bellEvents = syscall.IN_MODIFY | syscall.IN_ATTRIB | syscall.IN_DELETE_SELF | syscall.IN_MOVE_SELF

func openEvents(database string) (source, error) {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	e := &events{database: database, fd: fd, file: os.NewFile(uintptr(fd), "inotify")}
	if err := e.listen(); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

// listen makes the bell if it is missing, and watches it. Adding a watch that
// is there already changes nothing.
func (e *events) listen() error {
	file, err := openBell(e.database, os.O_RDONLY)
	if err != nil {
		return err
	}
	_ = file.Close()
	if _, err = syscall.InotifyAddWatch(e.fd, e.database+bellSuffix, bellEvents); err != nil {
		return os.NewSyscallError("inotify_add_watch", err)
	}
	_, err = e.seen.look(e.database)
	return err
}

// wait takes all events that have come: many rings are one change.
func (e *events) wait() (func(key string) bool, error) {
	n, err := e.file.Read(e.buf[:])
	if err != nil {
		return nil, err
	}
	for rest := e.buf[:n]; len(rest) >= syscall.SizeofInotifyEvent; {
		event := (*syscall.InotifyEvent)(unsafe.Pointer(&rest[0]))
		if event.Mask != syscall.IN_MODIFY {
			// The file is another now, or events were lost. What was rung
			// before the new watch is unknown, so it may be anything.
			return anyKey, e.listen()
		}
		rest = rest[syscall.SizeofInotifyEvent+int(event.Len):]
	}
	return e.seen.look(e.database)
}

func (e *events) close() { _ = e.file.Close() }
