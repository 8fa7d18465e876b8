// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, func(t *testing.T) drivertest.Harness {
		file := filepath.Join(t.TempDir(), "locks.db")
		return drivertest.Harness{
			Open: func(t *testing.T) driver.Store {
				s := mustOpen(t, file)
				s.pageSize = 7
				return s
			},
			Watches:        true,
			Raises:         true,
			TimePrecision:  time.Nanosecond,
			LeasePrecision: time.Nanosecond,
			PlantUnreadable: func(t *testing.T, key string) {
				plant(t, file, held(key, "planted"))
				shell(t, file, "UPDATE tenure_records SET lease_ns = 0 WHERE key = ?", key)
			},
			Plant: func(t *testing.T, rec driver.Record) { plant(t, file, rec) },
			PlantLater: func(t *testing.T, key string) {
				if ask(t, file, "SELECT count(*) FROM pragma_table_info('tenure_records') WHERE name = 'later'") == int64(0) {
					shell(t, file, "ALTER TABLE tenure_records ADD COLUMN later TEXT")
				}
				shell(t, file, "UPDATE tenure_records SET later = 'kept' WHERE key = ?", key)
			},
			HasLater: func(t *testing.T, key string) bool {
				return ask(t, file, "SELECT later FROM tenure_records WHERE key = '"+key+"'") == "kept"
			},
		}
	})
}

// TestConformancePolling runs the suite without events of the kernel, as it is
// off Linux.
func TestConformancePolling(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	drivertest.Run(t, func(t *testing.T) drivertest.Harness {
		file := filepath.Join(t.TempDir(), "locks.db")
		return drivertest.Harness{
			Open: func(t *testing.T) driver.Store {
				s := mustOpen(t, file)
				s.watches.noEvents = true
				s.watches.period = leastPollPeriod
				return s
			},
			Watches: true,
			Raises:  true,
			Ops:     200,
		}
	})
}
