// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// Default returns the location of who names none: an SQLite file in the user's
// state folder. It creates nothing; see [MakeFolder].
func Default() (Location, error) {
	folder, err := StateFolder()
	if err != nil {
		return Location{}, fmt.Errorf("the default store has no place: %w: name one with --store or TENURE_STORE", err)
	}
	l := sqliteAt(filepath.Join(folder, "locks.db"), 0)
	l.preset = true
	return l, nil
}

// StateFolder returns where Tenure keeps what it makes for this user. It creates
// nothing.
func StateFolder() (string, error) {
	folder, err := stateFolder()
	if err != nil {
		return "", err
	}
	return filepath.Join(folder, "tenure"), nil
}

// stateFolder follows the XDG Base Directory Specification, by which a
// relative XDG_STATE_HOME is ignored.
func stateFolder() (string, error) {
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return state, nil
	}
	if runtime.GOOS == "windows" {
		return os.UserCacheDir() // %LocalAppData%
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	if !filepath.IsAbs(home) {
		return "", errors.New("the home folder is unknown")
	}
	return filepath.Join(home, ".local", "state"), nil
}

// MakeFolder creates the folder of a default location, for this user alone.
// The folder of a location that was named is its owner's to create: a path
// that is mistyped must not become a store of its own.
func MakeFolder(l Location) error {
	return os.MkdirAll(filepath.Dir(l.file), 0o700)
}
