// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"context"
	"hash/fnv"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/locks"
)

// The server flushes, as an engine in use does.
func benched(b *testing.B) (database string, open func(b *testing.B) driver.Store) {
	b.Helper()
	server := enginetest.StartPostgreSQL(b, "fsync=on", "full_page_writes=on")
	schema, _ := Schema("")
	mustExec(b, server.URL, schema)
	database = with(b, server.URL, "pool_max_conns", "32")
	return database, func(b *testing.B) driver.Store { return mustOpen(b, database) }
}

// BenchmarkAcquireRelease measures the library, the store alone, two plain updates that
// are as durable, and PostgreSQL's advisory locks, which are not: they have no token, and
// end with their connection.
func BenchmarkAcquireRelease(b *testing.B) {
	database, open := benched(b)
	mustExec(b, database, "CREATE TABLE plain (key text PRIMARY KEY, owner text) WITH (fillfactor = 50)")
	locks.Pairs(b, locks.Tenure(open), updates(database), advisory(database))
}

// BenchmarkHandOver measures the library and the advisory locks.
func BenchmarkHandOver(b *testing.B) {
	database, open := benched(b)
	locks.HandOver(b, locks.Tenure(open), advisory(database))
}

func updates(database string) locks.Way {
	return locks.Way{Name: "updates", Client: func(b *testing.B) func(string) locks.Lock {
		pool := mustOpen(b, database).pool
		return func(name string) locks.Lock {
			if _, err := pool.Exec(b.Context(), "INSERT INTO plain VALUES ($1, '') ON CONFLICT DO NOTHING", name); err != nil {
				b.Fatal(err)
			}
			by := func(owner string) func(context.Context) error {
				return func(ctx context.Context) error {
					_, err := pool.Exec(ctx, "UPDATE plain SET owner = $2 WHERE key = $1", name, owner)
					return err
				}
			}
			return locks.Lock{Take: by("me"), Release: by("")}
		}
	}}
}

func advisory(database string) locks.Way {
	return locks.Way{Name: "advisory", Client: func(b *testing.B) func(string) locks.Lock {
		pool := mustOpen(b, database).pool
		return func(name string) locks.Lock {
			sum := fnv.New64a()
			_, _ = sum.Write([]byte(name))
			id := int64(sum.Sum64())
			var conn *pgxpool.Conn
			return locks.Lock{
				Take: func(ctx context.Context) (err error) {
					if conn, err = pool.Acquire(ctx); err == nil {
						_, err = conn.Exec(ctx, "SELECT pg_advisory_lock($1)", id)
					}
					return err
				},
				Release: func(ctx context.Context) error {
					defer conn.Release()
					_, err := conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", id)
					return err
				},
			}
		}
	}}
}
