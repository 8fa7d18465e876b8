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

func TestConformance(t *testing.T) {
	drivertest.Run(t, func(*testing.T) drivertest.Harness {
		s := memstore.New()
		s.PageSize = 4
		return drivertest.Harness{
			Open:           func(*testing.T) driver.Store { return s.Open() },
			Watches:        true,
			Raises:         true,
			TimePrecision:  time.Nanosecond,
			LeasePrecision: time.Nanosecond,
			Plant:          func(_ *testing.T, rec driver.Record) { s.Plant(rec) },
		}
	})
}
