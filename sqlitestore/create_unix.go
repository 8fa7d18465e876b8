// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sqlitestore

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// createMode is how SQLite opens a missing database: makeFile has created it.
const createMode = "rw"

// makeFile creates an empty file with these permissions, regardless of the umask,
// and root gives it to the owner of the file that like describes, if that is not
// nil. It changes nothing, and returns an error that matches os.ErrExist, if the
// name exists, even as a dangling link.
//
// The file is never visible with other permissions, and it is not open under its
// name: closing it would drop the locks that SQLite may have on it in this
// process already.
func makeFile(name string, perm os.FileMode, like os.FileInfo) error {
	temp, err := os.CreateTemp(filepath.Dir(name), ".tenure-*")
	if err != nil {
		return err
	}
	if like != nil {
		chownLike(temp, like)
	}
	err = errors.Join(temp.Chmod(perm), temp.Close())
	if err == nil {
		err = renameNew(temp.Name(), name)
	}
	if err == nil {
		return nil
	}
	if !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOSYS) && !errors.Is(err, errors.ErrUnsupported) {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	// For a moment it has two names; see refuseOtherNames.
	err = os.Link(temp.Name(), name)
	if removed := os.Remove(temp.Name()); err == nil || errors.Is(err, os.ErrExist) {
		return errors.Join(err, removed)
	}
	// A file system without links.
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	return file.Close()
}
