// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"bytes"
	"crypto/rand"
	"hash/fnv"
	"os"
)

// The bell is a small file beside the database, FILE-notify, through which
// processes tell each other of changes that somebody waits for. It holds nothing
// that matters: it may be deleted at any time, and is made anew.
//
// It is an array of slots. Whoever frees a key, reserves it or asks its holder
// for something fills the key's slot with random bytes, and whoever watches compares all slots with what they were: a change
// is seen even if a later one has gone over the file meanwhile, and a watcher
// is woken for its own keys, not for each of everybody's. The file never grows.
const (
	bellSuffix = "-notify"
	bellSlots  = 512
	slotSize   = 8
	bellSize   = bellSlots * slotSize
)

// slot returns the number of the slot that is key's in all processes.
func slot(key string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum32() % bellSlots)
}

// ring tells the other processes which keys of a batch changed so. An error
// is dropped: then they find out when they look next.
func (s *Store) ring(batch []*write) {
	var file *os.File
	for _, w := range batch {
		if !w.wake {
			continue
		}
		if file == nil {
			var err error
			if file, err = openBell(s.file, os.O_WRONLY); err != nil {
				return
			}
			defer func() { _ = file.Close() }()
		}
		var mark [slotSize]byte
		_, _ = rand.Read(mark[:])
		_, _ = file.WriteAt(mark[:], int64(slot(w.key)*slotSize))
	}
}

// openBell opens the bell of a database, and makes it if it is missing: with
// the permissions of the database, so that whoever may use that may ring. It
// is opened for each use, so that a file that was replaced does not go on
// being rung by those who had the former one open.
func openBell(database string, flag int) (*os.File, error) {
	name := database + bellSuffix
	if info, err := os.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return nil, os.ErrInvalid // a link may lead anywhere, a pipe would block
	}
	file, err := os.OpenFile(name, flag, 0)
	if !os.IsNotExist(err) {
		return file, err
	}
	info, err := os.Stat(database)
	if err != nil {
		return nil, err
	}
	file, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if os.IsExist(err) {
		return os.OpenFile(name, flag, 0)
	}
	if err == nil {
		_ = file.Chmod(info.Mode().Perm())
		chownLike(file, info)
	}
	return file, err
}

// slots is what a watcher saw in the bell.
type slots [bellSize]byte

// look reads the bell and returns a function that tells whether the slot of a
// key differs from what it was.
func (old *slots) look(database string) (func(key string) bool, error) {
	file, err := openBell(database, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var now slots
	_, _ = file.ReadAt(now[:], 0) // a short file ends in zeros
	before := *old
	*old = now
	return func(key string) bool {
		i := slot(key) * slotSize
		return !bytes.Equal(now[i:i+slotSize], before[i:i+slotSize])
	}, nil
}
