// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// workerDatabase has the test binary be a process of TestProcessesKilled.
const workerDatabase = "PGSTORE_TEST_DATABASE"

func TestMain(m *testing.M) {
	enginetest.Main(m, workerDatabase, count)
}

// count adds to a counter under a lock, again and again, without the guard that would have
// a stale write refused: see [enginetest.CountUnderKills].
func count(ctx context.Context, database string) error {
	s, err := Open(ctx, database, nil)
	if err != nil {
		return err
	}
	client, err := tenure.New(s, &tenure.Options{LeaseDuration: 3 * time.Second})
	if err != nil {
		return err
	}
	for {
		err := client.Run(ctx, "counter", nil, func(ctx context.Context, lease *tenure.Lease) error {
			var n int
			if err := s.pool.QueryRow(ctx, "SELECT n FROM counter").Scan(&n); err != nil || lease.Check() != nil {
				return err
			}
			_, err := s.pool.Exec(ctx, "WITH c AS (UPDATE counter SET n = $1) INSERT INTO counted VALUES ($1, $2, $3)", n+1, os.Getpid(), int64(lease.Token()))
			return err
		})
		if err != nil && !errors.Is(err, tenure.ErrLost) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			return err
		}
	}
}

// TestProcessesKilled has twenty processes count, and kills one after the other.
func TestProcessesKilled(t *testing.T) {
	database := with(t, newDatabase(t, enginetest.PostgreSQL(t)), "pool_max_conns", "4")
	mustExec(t, database, "CREATE TABLE counter (n bigint)")
	mustExec(t, database, "INSERT INTO counter VALUES (0)")
	mustExec(t, database, "CREATE TABLE counted (n bigint, pid bigint, token bigint)")
	s := mustOpen(t, database)
	enginetest.CountUnderKills(t, []string{workerDatabase + "=" + database}, func(ctx context.Context) (n int, log []enginetest.Counted, err error) {
		rows, err := s.pool.Query(ctx, "SELECT c.n, COALESCE(w.n, 0), COALESCE(w.pid, 0), COALESCE(w.token, 0) FROM counter AS c LEFT JOIN counted AS w ON true ORDER BY w.n, w.token")
		if err != nil {
			return 0, nil, err
		}
		var e enginetest.Counted
		_, err = pgx.ForEachRow(rows, []any{&n, &e.N, &e.PID, &e.Token}, func() error {
			if e.N > 0 {
				log = append(log, e)
			}
			return nil
		})
		return n, log, err
	})
}
