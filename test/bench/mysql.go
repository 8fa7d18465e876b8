// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-sql-driver/mysql"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/mysqlstore"
	"github.com/tenurelock/tenure/test/harness/must"
)

// mysqlWays are Tenure, and two plain updates that are as durable, on a server that flushes, like a
// server in production. Both have 32 connections.
func mysqlWays(ctx context.Context, r *harness, _ string) []way {
	const conns = 32
	dir := r.folder()
	data, port := filepath.Join(dir, "data"), must.Have(launcher.Port())
	must.Do(errors.Join(os.Mkdir(data, 0o700), launcher.InitMariaDB(data)))
	server := must.Have(launcher.MariaDB(data, port, "--innodb-flush-method=fsync"))
	process := must.Have(server.Start(filepath.Join(dir, "log")))
	r.After(process.Kill)
	must.Do(process.Await(ctx))
	config := mysql.NewConfig()
	config.Net, config.Addr, config.User, config.InterpolateParams = "tcp", fmt.Sprintf("127.0.0.1:%d", port), "root", true
	connect := func() *sql.DB {
		db := sql.OpenDB(must.Have(mysql.NewConnector(config)))
		db.SetMaxOpenConns(conns)
		db.SetMaxIdleConns(conns)
		r.After(func() { _ = db.Close() })
		return db
	}
	r.Run(func() { must.Have(connect().ExecContext(ctx, "CREATE DATABASE bench")) })
	config.DBName = "bench"
	open := func() driver.Store {
		return must.Have(mysqlstore.Connect(config, &mysqlstore.Options{MaxConns: conns}))
	}
	r.Run(func() {
		s := open()
		r.After(func() { _ = s.Close() })
		must.Have(s.(driver.Provisioner).Create(ctx, driver.CreateOptions{}))
		must.Have(connect().ExecContext(ctx, "CREATE TABLE plain (name varbinary(64) PRIMARY KEY, owner varchar(64))"))
	})
	updates := func() take {
		db := connect()
		update := func(ctx context.Context, name, owner string) int64 {
			done := must.Have(db.ExecContext(ctx, "UPDATE plain SET owner = ? WHERE name = ?", owner, name))
			return must.Have(done.RowsAffected())
		}
		return func(ctx context.Context, name string) func(context.Context) error {
			if update(ctx, name, "me") == 0 {
				must.Have(db.ExecContext(ctx, "INSERT INTO plain VALUES (?, 'me')", name))
			}
			return func(ctx context.Context) error {
				update(ctx, name, "")
				return nil
			}
		}
	}
	return []way{r.tenure(true, open), {name: "updates", open: updates}}
}
