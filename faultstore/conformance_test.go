// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package faultstore_test

import (
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
)

// Without a fault, the store in between is not noticed.
func TestConformance(t *testing.T) {
	drivertest.Run(t, func(*testing.T) drivertest.Harness {
		s := memstore.New()
		return drivertest.Harness{
			Open:           func(*testing.T) driver.Store { return faultstore.New(s.Open(), nil).Driver() },
			Watches:        true,
			TimePrecision:  time.Nanosecond,
			LeasePrecision: time.Nanosecond,
		}
	})
}

// With refusals that say so, and slow replies, it is none the worse.
func TestConformanceWithRefusals(t *testing.T) {
	drivertest.Run(t, func(*testing.T) drivertest.Harness {
		s := memstore.New()
		return drivertest.Harness{
			Ops: 200,
			Open: func(*testing.T) driver.Store {
				f := faultstore.New(s.Open(), nil)
				f.Inject(faultstore.Rule{
					Probability: 0.2, Fault: faultstore.Refuse(),
					Match: func(c faultstore.Call) bool { return c.Op.IsWrite() },
				})
				return f.Driver()
			},
			Watches: true,
		}
	})
}
