// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	_ "modernc.org/sqlite" // the driver of the nemesis

	"github.com/tenurelock/tenure/evidence/bed/wait"
)

// lockFile keeps all others from writing the store's file for a while.
func (x *stage) lockFile(ctx context.Context, length time.Duration) error {
	db, err := sql.Open("sqlite", "file:"+x.file+"?_pragma=busy_timeout(2000)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // given back
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return nil //nolint:nilerr // the replicas write all the time: it was not got in two seconds
	}
	wait.Rest(ctx, length)
	_, err = conn.ExecContext(ctx, "ROLLBACK")
	return err
}
