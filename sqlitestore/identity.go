// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// identity is the files that the database consists of while it is open.
type identity struct {
	names [3]string
	infos [3]os.FileInfo
	// given is the caller's name of the file, if it leads to the file by symbolic
	// links; otherwise it is empty.
	given string
}

// identify returns the files of an open database; before is the file that its
// name led to before it was opened. SQLite does not say which file it has open;
// if the name led to another file in between, identify returns errSwapped.
func identify(file string, before os.FileInfo) (id identity, err error) {
	id.names = [3]string{file, file + "-wal", file + "-shm"}
	for i, name := range id.names {
		if id.infos[i], err = os.Lstat(name); err != nil {
			return id, err
		}
	}
	if !os.SameFile(before, id.infos[0]) {
		return id, errSwapped
	}
	return id, nil
}

var errSwapped = errors.New("it was replaced while it was being opened; try again")

// check returns an error unless the names still lead to the files that were
// opened. A process that went on with files that others no longer find would
// hold a lock while a process that opened the new files holds it too. The log
// and its index are checked as well: SQLite's locks are in the index, and
// SQLite never deletes or replaces either while a process has the database
// open. A symbolic link counts as another file: others look for the log beside
// its target.
//
// The error matches driver.ErrReplaced if others find another file, or find
// none and create it. They do neither while the folder is out of reach.
func (id *identity) check() error {
	for i, name := range id.names {
		info, err := os.Lstat(name)
		if err == nil && os.SameFile(info, id.infos[i]) {
			continue
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fault(id.names[0], err)
		}
		if err != nil {
			if _, folder := os.Stat(filepath.Dir(name)); folder != nil {
				return driver.Permanent(fmt.Errorf("sqlite file %q: its folder was moved or deleted while in use: %w", id.names[0], unnamed(name, err)))
			}
		}
		what := "it"
		if i > 0 {
			what = fmt.Sprintf("%q beside it", filepath.Base(name))
		}
		return driver.Replaced(fmt.Errorf("sqlite file %q: %s was moved, replaced or deleted while in use,"+
			" and a process that opens it now has other locks; restart every program that uses it", id.names[0], what))
	}
	return id.checkLinks()
}

// checkLinks returns an error unless the symbolic links in the file's name still
// lead to it: a process that follows them later opens what they lead to then.
func (id *identity) checkLinks() error {
	if id.given == "" {
		return nil
	}
	info, err := os.Stat(id.given)
	if err == nil && os.SameFile(info, id.infos[0]) {
		return nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fault(id.given, err)
	}
	if err != nil {
		_, folder := os.Stat(filepath.Dir(id.given))
		if _, dangles := os.Lstat(id.given); folder != nil || dangles == nil { // no process can create it there
			return driver.Permanent(fmt.Errorf("sqlite file %q: a symbolic link in its name leads to nothing any more: %w", id.given, unnamed(id.given, err)))
		}
	}
	return driver.Replaced(fmt.Errorf("sqlite file %q: a symbolic link in its name led to %q, and leads elsewhere now;"+
		" a process that opens it now has other locks; restart every program that uses it", id.given, id.names[0]))
}

// fate is whether a store was replaced. That is final, even if the files are
// put back: others may have used new files in between.
type fate struct {
	mu    sync.Mutex
	err   error
	ended chan struct{}
}

// check checks the files, unless they were found replaced before.
func (s *Store) check() error {
	s.fate.mu.Lock()
	err := s.fate.err
	s.fate.mu.Unlock()
	if err != nil {
		return err
	}
	if err = s.files.check(); !errors.Is(err, driver.ErrReplaced) {
		return err
	}
	s.fate.mu.Lock()
	defer s.fate.mu.Unlock()
	if s.fate.err == nil {
		s.fate.err = err
		close(s.fate.ended)
	}
	return s.fate.err
}

// Replaced returns a channel that is closed once the store was replaced: its file,
// or the log or index beside it, was moved or deleted, or another one has its
// name. On Linux the kernel reports that within milliseconds, once the store has been open for 100
// ms, unless no inotify instance is available, or a folder above or a mount was changed. Otherwise
// the next call finds out, or a watch, once every [Options.PollPeriod].
func (s *Store) Replaced() <-chan struct{} { return s.fate.ended }

const (
	// A name that is being created (see makeFile) is checked again.
	linkLooks = 10
	linkPause = 5 * time.Millisecond
)

// refuseOtherNames returns the file that the name leads to, or an error if the
// file has another visible name. Log and index are beside the name, not the file:
// a process that uses another name finds others, and has separate locks.
//
// It is called when the file is opened, and not at each call: a backup that
// links the file ends no lease.
func refuseOtherNames(file string) (os.FileInfo, error) {
	for look := 1; ; look++ {
		info, err := os.Lstat(file)
		if err != nil {
			return nil, fault(file, err)
		}
		n := links(info)
		switch {
		case n > 1 && look < linkLooks:
			<-time.After(linkPause)
			continue
		case n > 1:
			return nil, driver.Permanent(fmt.Errorf("sqlite file %q: it has %d names (hard links), and a process that opens it by another name has"+
				" separate locks; remove the other names, which find -samefile finds", file, n))
		case isMount(file):
			return nil, driver.Permanent(fmt.Errorf("sqlite file %q: it is a mount itself, and a process that opens the original has separate locks;"+
				" mount its folder (docker run -v FOLDER:FOLDER), never the file", file))
		}
		return info, nil
	}
}
