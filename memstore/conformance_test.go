// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package memstore_test

import (
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/memstore"
)

func TestConformance(t *testing.T) { conformance(t, false) }

// TestGuardedConformance: an engine that may lose writes is like any other as long as it does not.
func TestGuardedConformance(t *testing.T) { conformance(t, true) }

func conformance(t *testing.T, guarded bool) {
	drivertest.Run(t, func(*testing.T) drivertest.Harness {
		s := memstore.New()
		s.PageSize = 4
		var lose func(*testing.T) func()
		if guarded {
			s.Guard(time.Hour)
			lose = func(*testing.T) func() {
				earlier := s.Copy()
				return func() { s.Lose(earlier) }
			}
		}
		return drivertest.Harness{
			Lose:           lose,
			Open:           func(*testing.T) driver.Store { return s.Open() },
			Watches:        true,
			Raises:         true,
			TimePrecision:  time.Nanosecond,
			LeasePrecision: time.Nanosecond,
			Plant:          func(_ *testing.T, rec driver.Record) { s.Plant(rec) },
		}
	})
}
