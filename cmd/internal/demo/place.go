// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// freshLock is the name of the lock in a file of the demo's own, storeFile the file.
const (
	freshLock = "demo"
	storeFile = "demo.db"
)

// place is where the lock of a demo is kept.
type place struct {
	at     storeurl.Location
	lock   string
	folder string // that of a fresh file, which goes with it; "": the store was named
}

// newPlace returns a fresh file, or the store of the URL with a lock that nobody
// else has.
func newPlace(url string) (place, error) {
	if url != "" {
		at, err := storeurl.Parse(url)
		if err == nil && at.Preset() {
			err = storeurl.MakeFolder(at)
		}
		return place{at: at, lock: freshLock + "-" + strings.ToLower(rand.Text()[:10])}, err
	}
	folder, err := os.MkdirTemp("", "tenure-demo-")
	if err != nil {
		return place{}, fmt.Errorf("make a folder for the demo: %w", err)
	}
	at, err := storeurl.Parse("sqlite:" + filepath.Join(folder, storeFile))
	return place{at: at, lock: freshLock, folder: folder}, err
}

// String says where that is, for people.
func (p place) String() string {
	if p.folder != "" {
		return "a fresh SQLite file"
	}
	return fmt.Sprintf("%q on %s", p.lock, p.at.Shown())
}

// open opens the store.
func (p place) open() (driver.Store, error) {
	store, err := p.at.Open()
	if err != nil {
		return nil, &StoreError{err}
	}
	return store, nil
}

// clear removes the file, or the records of the lock and its history: nobody uses
// them any more.
func (p place) clear() error {
	if p.folder != "" {
		return os.RemoveAll(p.folder)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	store, err := p.open()
	if err != nil {
		return fmt.Errorf("lock %q may be left in the store: %w", p.lock, err)
	}
	remove := func(key string) driver.Record {
		rec, got := store.Get(ctx, key, driver.Strong)
		if got == nil {
			got = store.Delete(ctx, rec)
		}
		if !errors.Is(got, driver.ErrNotFound) {
			err = errors.Join(err, got)
		}
		return rec
	}
	last := remove(p.lock)
	for token := uint64(1); token < last.Token; token++ {
		remove(protocol.HistoryKey(p.lock, token))
	}
	if err = errors.Join(err, store.Close()); err != nil {
		return fmt.Errorf("lock %q is left in the store: %w", p.lock, err)
	}
	return nil
}

// StoreError is returned when the store of the demo cannot be used.
type StoreError struct{ Err error }

func (e *StoreError) Error() string { return e.Err.Error() }
func (e *StoreError) Unwrap() error { return e.Err }

// ExitCode returns the status of all commands whose store cannot be used.
func (e *StoreError) ExitCode() int { return 69 }
