// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"context"
	"sync/atomic"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/sqlitestore"
)

// engine is what a URL says of a store that is no file.
type engine interface {
	// connect returns the store without asking its engine whether it can be used.
	connect(ctx context.Context) (driver.Store, error)
}

// Connect returns the store without asking its engine whether it can be used: for what must
// work where [Location.Open] fails. It is for a store that is no file, and not in memory.
func (l Location) Connect(ctx context.Context) (driver.Store, error) {
	return l.engine.connect(ctx)
}

// Diagnose returns what is found of the store's engine, whether it opens or not: see
// [driver.Diagnoser]. What keeps it from being reached [Location.Open] tells.
func (l Location) Diagnose(ctx context.Context, t driver.Timing) []driver.Finding {
	if l.file != "" {
		return sqlitestore.Diagnose(ctx, l.file)
	}
	if l.engine == nil {
		return nil
	}
	store, err := l.Connect(ctx)
	if err != nil {
		return nil
	}
	defer store.Close() //nolint:errcheck // nothing was kept in it
	if d, ok := store.(driver.Diagnoser); ok {
		return d.Diagnose(ctx, t)
	}
	return nil
}

// Unasked returns the store for what asks its engine nothing, such as [driver.Granter]: it
// needs no credentials.
func (l Location) Unasked(ctx context.Context) (driver.Store, error) {
	if e, ok := l.engine.(interface{ unasked() (driver.Store, error) }); ok {
		return e.unasked()
	}
	return l.Connect(ctx)
}

// User returns the user of a database that the URL names, "" if it names none.
func (l Location) User() string {
	p, _ := l.engine.(Postgres)
	return p.User
}

// Brief returns an error of the store in one line, with what to do.
func (l Location) Brief(err error) error {
	if _, ok := l.engine.(Postgres); ok {
		return BriefPostgres(err)
	}
	return err
}

// found is the URL of a store with what its environment has named, or the part of it that was
// looked for: a command that gets the URL may have another environment, and the same name
// elsewhere has other locks.
type found struct{ text atomic.Pointer[string] }

func (f *found) note(text string) { f.text.Store(&text) }

// or returns what was found, and what was written as long as nothing was.
func (f *found) or(written string) string {
	if text := f.text.Load(); text != nil {
		return *text
	}
	return written
}
