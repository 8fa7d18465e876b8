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

// Without a fault, the store in between makes no difference; and as a black hole it
// holds each call until its context is done.
func TestConformance(t *testing.T) {
	drivertest.Run(t, func(*testing.T) drivertest.Harness {
		s := memstore.New()
		var all []*faultstore.Store
		hole := func(on bool) {
			for _, f := range all {
				f.SetBlackHole(on)
			}
		}
		return drivertest.Harness{
			Open: func(*testing.T) driver.Store {
				f := faultstore.New(s.Open(), nil)
				all = append(all, f)
				return f.Driver()
			},
			Hang: func(*testing.T) func() {
				hole(true)
				return func() { hole(false) }
			},
			Watches:        true,
			Raises:         true,
			TimePrecision:  time.Nanosecond,
			LeasePrecision: time.Nanosecond,
		}
	})
}

// A store with refusals that say so, and slow replies, passes the suite.
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
			Raises:  true,
		}
	})
}
