// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"database/sql"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/fence"
)

// What needs an engine is tested in internal/itest/fence.

func TestSQLOptions(t *testing.T) {
	for table, ok := range map[string]bool{
		"": true, "fences": true, "app.fences_2": true, strings.Repeat("x", 63): true,
		"2fences": false, "a.b.c": false, `f"x`: false, "f; DROP TABLE f": false, "f--": false, ".f": false, strings.Repeat("x", 64): false,
	} {
		if _, err := fence.NewSQL(&fence.SQLOptions{Table: table}); (err == nil) != ok {
			t.Errorf("table %q: %v", table, err)
		}
	}
	if _, err := fence.NewSQL(&fence.SQLOptions{Placeholder: 3}); err == nil || !strings.Contains(err.Error(), "Dollar") {
		t.Errorf("placeholder 3: %v", err)
	}
}

// None of these reaches the database, which does not exist.
func TestSQLRefusesWhatItCannotGuard(t *testing.T) {
	guard, err := fence.NewSQL(nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := guard.Guard(ctx, (*sql.Tx)(nil), "ledger", 0); !errors.Is(err, fence.ErrNoToken) {
		t.Errorf("token 0: %v", err)
	}
	if err := guard.Guard(ctx, (*sql.Tx)(nil), "", 1); err == nil {
		t.Error("no resource: accepted")
	}
	if err := guard.Guard(ctx, (*sql.Tx)(nil), "ledger", math.MaxInt64+1); err == nil || !strings.Contains(err.Error(), "BIGINT") {
		t.Errorf("token above a BIGINT: %v", err)
	}
	if err := guard.Guard(ctx, (*sql.DB)(nil), "ledger", 1); err == nil || !strings.Contains(err.Error(), "pass a *sql.Tx") {
		t.Errorf("outside of a transaction: %v", err)
	}
}
