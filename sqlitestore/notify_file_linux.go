// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"syscall"
)

// FILE-notify is a small file beside the database through which processes
// notify each other of changes that another process waits for. It holds nothing
// that matters: it may be deleted at any time, and is created again.
//
// After a header it is an array of slots. A process that releases a key, reserves
// it or sends its holder a request fills the key's slot with random bytes, and a
// watcher compares all slots with what they were: a change is seen even if a later
// one has overwritten the file meanwhile, and a watcher is woken only for its own
// keys. The file never grows.
const (
	notifySuffix = "-notify"
	notifyHeader = "tenure notify 1\n"
	notifySlots  = 512
	slotSize     = 8
	notifySize   = len(notifyHeader) + notifySlots*slotSize
)

// slot returns the place of the key's slot, which is the same in all processes.
func slot(key string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return len(notifyHeader) + int(h.Sum32()%notifySlots)*slotSize
}

// notify notifies the other processes of the keys of a batch that changed so.
// An error is dropped: then they find out at their next poll.
func (s *Store) notify(batch []*write) {
	var file *os.File
	for _, w := range batch {
		if !w.wake {
			continue
		}
		if file == nil {
			var err error
			if file, err = openNotify(s.file); err != nil {
				return
			}
			defer func() { _ = file.Close() }()
			if _, err := file.WriteAt([]byte(notifyHeader), 0); err != nil { // it may be empty
				return
			}
		}
		var mark [slotSize]byte
		_, _ = rand.Read(mark[:])
		_, _ = file.WriteAt(mark[:], int64(slot(w.key)))
	}
}

// openNotify opens the file of a database, and creates it if it is missing, with
// the permissions of the database, so that the same users may use both. It is
// opened for each use, so that no process goes on with a file that was replaced.
func openNotify(database string) (*os.File, error) {
	name := database + notifySuffix
	file, err := openOwn(name)
	if !errors.Is(err, os.ErrNotExist) {
		return file, err
	}
	info, err := os.Stat(database)
	if err != nil {
		return nil, err
	}
	if err := makeFile(name, info.Mode().Perm(), info); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	return openOwn(name)
}

// openOwn opens a file of ours, and nothing else: a user that may write the folder
// may put anything in its place, at any moment. A link may lead anywhere, and a
// pipe would block; a file that has another name, or another header, belongs to
// another program, and was put here to be overwritten. The owner of the file does
// not matter: users who share a database share this one.
func openOwn(name string) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || links(info) != 1) {
		err = fmt.Errorf("%q was not created by this program (%v, %d names)", name, info.Mode(), links(info))
	}
	if err == nil {
		var header [len(notifyHeader)]byte
		_, err = file.ReadAt(header[:], 0)
		if err == nil && string(header[:]) != notifyHeader && header != [len(notifyHeader)]byte{} {
			err = fmt.Errorf("%q was not created by this program", name)
		}
		if errors.Is(err, io.EOF) && info.Size() == 0 {
			err = nil // just made
		}
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// slots is what a watcher saw in the file.
type slots [notifySize]byte

// look reads the file and returns a function that reports whether the slot of
// a key has changed.
func (old *slots) look(database string) (func(key string) bool, error) {
	file, err := openNotify(database)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var now slots
	_, _ = file.ReadAt(now[:], 0) // a short file ends in zeros
	before := *old
	*old = now
	return func(key string) bool {
		i := slot(key)
		return !bytes.Equal(now[i:i+slotSize], before[i:i+slotSize])
	}, nil
}
