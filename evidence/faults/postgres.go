// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// postgresEnv names the URL of a PostgreSQL whose user may make databases.
const postgresEnv = "TENURE_TEST_POSTGRES"

// riverDatabase is a database for River's tables, which have a schema for each lock.
type riverDatabase struct {
	server string // its URL
	name   string
	pool   *pgxpool.Pool
}

func newRiverDatabase(ctx context.Context, server string) (*riverDatabase, error) {
	d := &riverDatabase{server: server, name: "tenure_faults_" + strings.ToLower(rand.Text())}
	if err := d.onServer(ctx, "CREATE DATABASE "+d.name); err != nil {
		return nil, err
	}
	at, err := d.url("")
	if err == nil {
		d.pool, err = pgxpool.New(ctx, at)
	}
	return d, err
}

func (d *riverDatabase) onServer(ctx context.Context, statement string) error {
	pool, err := pgxpool.New(ctx, d.server)
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = pool.Exec(ctx, statement)
	return err
}

// url returns the URL of the database, by way of a host and port if that is not empty.
func (d *riverDatabase) url(address string) (string, error) {
	u, err := url.Parse(d.server)
	if err != nil {
		return "", err
	}
	u.Path = "/" + d.name
	if address != "" {
		u.Host = address
	}
	return u.String(), nil
}

// address is the server's host and port.
func (d *riverDatabase) address() (string, error) {
	u, err := url.Parse(d.server)
	if err != nil {
		return "", err
	}
	port := u.Port()
	if port == "" {
		port = "5432"
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

func (d *riverDatabase) close(ctx context.Context) error {
	d.pool.Close()
	return d.onServer(ctx, "DROP DATABASE "+d.name+" WITH (FORCE)")
}

// riverSchema is where River has the tables of a lock.
func riverSchema(lock string) string { return strings.ReplaceAll(lock, "-", "_") }

// prepare makes the tables of a lock.
func (d *riverDatabase) prepare(ctx context.Context, lock string) error {
	if _, err := d.pool.Exec(ctx, "CREATE SCHEMA "+riverSchema(lock)); err != nil {
		return err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(d.pool), &rivermigrate.Config{Schema: riverSchema(lock), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	if err != nil {
		return fmt.Errorf("tables of River: %w", err)
	}
	return nil
}

// riverWrites tells a gate what River's writes of its election are: the commit of a bid,
// and a renewal. Each of River's statements has its name in a comment.
func riverWrites() func([]byte) bool {
	bidding := false
	return func(piece []byte) bool {
		switch {
		case bytes.Contains(piece, []byte("LeaderAttemptElect")):
			bidding = true
		case bidding && (bytes.Contains(piece, []byte("commit")) || bytes.Contains(piece, []byte("rollback"))):
			bidding = false
			return bytes.Contains(piece, []byte("commit"))
		}
		return bytes.Contains(piece, []byte("LeaderAttemptReelect"))
	}
}
