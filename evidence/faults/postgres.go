// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"net"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
)

// postgresEnv names the URL of a PostgreSQL whose user may make databases.
const postgresEnv = "TENURE_TEST_POSTGRES"

// database is one on a PostgreSQL, for the tables of a run.
type database struct {
	server string // its URL
	name   string
	pool   *pgxpool.Pool
}

func newDatabase(ctx context.Context, server string) (*database, error) {
	d := &database{server: server, name: "tenure_faults_" + strings.ToLower(rand.Text())}
	if err := d.onServer(ctx, "CREATE DATABASE "+d.name); err != nil {
		return nil, err
	}
	at, err := d.url("")
	if err == nil {
		d.pool, err = pgxpool.New(ctx, at)
	}
	return d, err
}

func (d *database) onServer(ctx context.Context, statement string) error {
	pool, err := pgxpool.New(ctx, d.server)
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = pool.Exec(ctx, statement)
	return err
}

// url returns the URL of the database, by way of a host and port if that is not empty.
func (d *database) url(address string) (string, error) {
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
func (d *database) address() (string, error) {
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

// version is the server's.
func (d *database) version(ctx context.Context) (version string, err error) {
	err = d.pool.QueryRow(ctx, "SHOW server_version").Scan(&version)
	return version, err
}

func (d *database) close(ctx context.Context) error {
	d.pool.Close()
	return d.onServer(ctx, "DROP DATABASE "+d.name+" WITH (FORCE)")
}
