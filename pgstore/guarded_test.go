// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
)

var byWatchdog = &Guarded{Watchdog: true}

// TestConformanceOfGuarded: the tables go back to what they were, and the server is started again.
func TestConformanceOfGuarded(t *testing.T) {
	server := enginetest.StartPostgreSQL(t, "max_connections=300", "fsync=on")
	drivertest.Run(t, func(t *testing.T) drivertest.Harness {
		database := enginetest.Database(t, server.URL)
		created(t, database, byWatchdog)
		h := harness(t, database)
		relay := enginetest.NewRelay(t, hostOf(t, database))
		var open []*Store
		h.Open = func(t *testing.T) driver.Store {
			s := mustOpenWith(t, through(t, database, relay.Addr), &Options{Guarded: byWatchdog})
			open = append(open, s)
			return s
		}
		h.Hang = func(*testing.T) func() { return relay.Hold() }
		h.Plant = func(t *testing.T, rec driver.Record) { plantGuarded(t, database, rec) }
		h.PlantUnreadable = func(t *testing.T, key string) {
			plantGuarded(t, database, held(key))
			mustExec(t, database, "UPDATE tenure_records SET record = '{' WHERE name = $1", key)
		}
		h.Lose = func(t *testing.T) func() {
			mustExec(t, database, "DROP TABLE IF EXISTS earlier, earlier_life; CREATE TABLE earlier AS TABLE tenure_records; "+
				"CREATE TABLE earlier_life AS TABLE tenure_records_life")
			return func() {
				mustExec(t, database, "BEGIN; TRUNCATE tenure_records, tenure_records_life; INSERT INTO tenure_records SELECT * FROM earlier; "+
					"INSERT INTO tenure_records_life SELECT * FROM earlier_life; COMMIT")
				server.Restart()
				for _, s := range open { // its connections have ended with the server
					s.pool.Reset()
				}
			}
		}
		return h
	})
}

// created creates a guarded table.
func created(t testing.TB, database string, g *Guarded) {
	t.Helper()
	text, err := g.Schema("")
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, database, text)
}

// plantGuarded writes a record as it is; a session's is of the life of the server.
func plantGuarded(t testing.TB, database string, rec driver.Record) {
	t.Helper()
	mustExec(t, database, "DELETE FROM tenure_records WHERE name = $1", rec.Key)
	mustExec(t, database, "INSERT INTO tenure_records VALUES ($1, $2, $3, $4, $5, $6, $7, "+lifeNow+")", valuesOf(rec)...)
}
