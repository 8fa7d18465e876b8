// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package linearize_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/itest/linearize"
	"github.com/tenurelock/tenure/pgstore"
)

// A statement that replaces a row says whether it has. What stands in the way is read behind
// it, and may then fulfil the condition again.
func TestPostgreSQL(t *testing.T) {
	database := enginetest.Database(t, enginetest.PostgreSQL(t))
	pool, err := pgxpool.New(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := pgstore.CreateTable(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	linearize.Check(t, func(t *testing.T) driver.Store {
		s, err := pgstore.Open(t.Context(), database, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}, &linearize.Options{ConflictsReadLater: true})
}
