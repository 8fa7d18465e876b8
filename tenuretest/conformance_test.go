// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuretest_test

import (
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/tenuretest"
)

// While nothing happens to a client, its store is what it stands on.
func TestConformance(t *testing.T) {
	drivertest.Run(t, func(*testing.T) drivertest.Harness {
		s := memstore.New()
		return drivertest.Harness{
			Open:           func(*testing.T) driver.Store { return tenuretest.Gate(s.Open()) },
			Watches:        true,
			Raises:         true,
			TimePrecision:  time.Nanosecond,
			LeasePrecision: time.Nanosecond,
		}
	})
}
