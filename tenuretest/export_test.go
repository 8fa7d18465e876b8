// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuretest

import (
	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
)

// Gate returns the store as the client of a running process sees it.
func Gate(store driver.Store) driver.Store {
	return &gate{store.(inner), &process{clock: tenure.MonotonicClock()}}
}
