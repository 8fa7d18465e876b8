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
				shell(t, file, "UPDATE tenure_records SET record = '{' WHERE name = ?", key)
			},
			Plant: func(t *testing.T, rec driver.Record) { plant(t, file, rec) },
			PlantLater: func(t *testing.T, key string) {
				shell(t, file, "UPDATE tenure_records SET record = json_set(record, '$.later', 'kept') WHERE name = ?", key)
			},
			OlderState: func(t *testing.T, key string) driver.State {
				return driver.State(ask(t, file, "SELECT state FROM tenure_records WHERE name = '"+key+"'").(string))
			},
			HasLater: func(t *testing.T, key string) bool {
				return ask(t, file, "SELECT json_extract(record, '$.later') FROM tenure_records WHERE name = '"+key+"'") == "kept"
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
