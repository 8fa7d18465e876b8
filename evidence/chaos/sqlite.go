// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"database/sql"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // the driver of the nemesis

	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/sqlitestore"
)

// fileEngine is the name of the engine that is a file.
const fileEngine = "sqlite"

// sqlite is a file that all replicas open. It has no process and no socket.
type sqlite struct {
	file string
	db   *sql.DB // of the nemesis
}

func openSQLite(dir string) (*sqlite, error) {
	s := &sqlite{file: filepath.Join(dir, "locks.db")}
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
		{kind: lockFile, on: nobody, least: 0.2, most: 0.7},
		{kind: lockFile, on: nobody, least: 0.8, most: 1.8},
	}
}

func (s *sqlite) strike(ctx context.Context, _ fault, length time.Duration, _ int) error {
	return s.lock(ctx, length)
}

// lock keeps all others from writing the file for d.
func (s *sqlite) lock(ctx context.Context, d time.Duration) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // given back
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	wait.Rest(ctx, d)
	_, err = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	return err
}
