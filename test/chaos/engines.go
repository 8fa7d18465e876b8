// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver of the nemesis

	"github.com/tenurelock/tenure/sqlitestore"
	"github.com/tenurelock/tenure/test/bed/wait"
)

// engine is what the locks of a round are kept in.
type engine interface {
	// store returns the URL of the store for a seat, through its gate if there
	// are gates; past all of them if that is negative.
	store(seat int) string
	// faults are those that this engine can have.
	faults() []fault
	// strike brings one about: for one seat, or for all if that is negative. The error is
	// errBusy if there is another.
	strike(ctx context.Context, f fault, length time.Duration, seat int) error
	// heal ends all faults of the engine.
	heal() error
	// lost is how many pieces of bytes have vanished on the way.
	lost() int
	close() error
}

// fileEngine is the name of the engine that is a file.
const fileEngine = "sqlite"

// engineNames are all that -engines takes.
func engineNames() []string {
	return append([]string{fileEngine}, slices.Sorted(maps.Keys(servers))...)
}

// checkEngine returns an error unless there is the engine, and its program.
func checkEngine(name string) error {
	kind, ok := servers[name]
	switch {
	case name == fileEngine:
		return nil
	case !ok:
		return fmt.Errorf("engine %q is not known: there are %s", name, strings.Join(engineNames(), ", "))
	}
	_, err := kind("")
	return err
}

// open makes a fresh engine, with its data below dir.
func (p plan) open(ctx context.Context, dir string) (engine, error) {
	if err := checkEngine(p.Engine); err != nil {
		return nil, err
	}
	if p.Engine == fileEngine {
		return openSQLite(dir)
	}
	kind, err := servers[p.Engine](dir)
	if err != nil {
		return nil, err
	}
	s, err := openServed(ctx, kind, dir, p.Seats)
	if err != nil {
		return nil, err // not the nil *served in an interface
	}
	return s, nil
}

// sqlite is a file that all replicas open. It has no process and no socket.
type sqlite struct {
	file string
	db   *sql.DB       // of the nemesis
	busy chan struct{} // full while it has the file locked
}

func openSQLite(dir string) (*sqlite, error) {
	s := &sqlite{file: filepath.Join(dir, "locks.db"), busy: make(chan struct{}, 1)}
	store, err := sqlitestore.Open(s.file, nil) // makes the file
	if err != nil {
		return nil, err
	}
	if err := store.Close(); err != nil {
		return nil, err
	}
	s.db, err = sql.Open("sqlite", "file:"+s.file+"?_pragma=busy_timeout(2000)")
	return s, err
}

func (s *sqlite) store(int) string { return "sqlite:" + s.file }
func (s *sqlite) heal() error      { return nil }
func (s *sqlite) lost() int        { return 0 }
func (s *sqlite) close() error     { return s.db.Close() }

func (s *sqlite) faults() []fault {
	return []fault{
		{lockFile, nobody, 0.2, 0.7},
		{lockFile, nobody, 0.8, 1.8},
	}
}

func (s *sqlite) strike(ctx context.Context, _ fault, length time.Duration, _ int) error {
	return exclusive(s.busy, func() error { return s.lock(ctx, length) })
}

// exclusive does something unless something else is done.
func exclusive(busy chan struct{}, do func() error) error {
	select {
	case busy <- struct{}{}:
		defer func() { <-busy }()
		return do()
	default:
		return errBusy
	}
}

// lock keeps all others from writing the file for d.
func (s *sqlite) lock(ctx context.Context, d time.Duration) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // given back
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return errors.Join(errBusy, err) // others write all the time
	}
	wait.Rest(ctx, d)
	_, err = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	return err
}
