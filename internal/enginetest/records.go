// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// Claim claims a record, which must not fail.
func Claim(tb testing.TB, s driver.Store, next driver.Record) driver.Record {
	tb.Helper()
	now, _, err := s.Claim(tb.Context(), next)
	if err != nil {
		tb.Fatal(err)
	}
	return now
}

// Swap writes a record in place of another one, which must not fail.
func Swap(tb testing.TB, s driver.Store, prev, next driver.Record) driver.Record {
	tb.Helper()
	now, err := s.Swap(tb.Context(), prev, next)
	if err != nil {
		tb.Fatal(err)
	}
	return now
}

// Get reads a record strongly, which must not fail.
func Get(tb testing.TB, s driver.Store, key string) driver.Record {
	tb.Helper()
	rec, err := s.Get(tb.Context(), key, driver.Strong)
	if err != nil {
		tb.Fatal(err)
	}
	return rec
}
