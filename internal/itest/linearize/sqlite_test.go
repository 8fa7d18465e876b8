// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package linearize

import (
	"path/filepath"
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/sqlitestore"
)

func TestSqlitestore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	o := &Options{Rounds: 10}
	if testing.Short() {
		o.Rounds = 2
	}
	Check(t, func(t *testing.T) driver.Store {
		s, err := sqlitestore.Open(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}, o)
}
