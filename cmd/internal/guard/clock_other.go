// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package guard

import (
	"time"
)

var base = time.Now()

// Now reads a clock that is made of two: the greater of what the monotonic and the wall clock
// say has passed since the program began. The first may stand still in suspend; the second may be
// set, and a forward step then counts as time that has passed. Instants mean nothing
// outside of this process.
func Now() Instant {
	now := time.Now()
	return Instant(max(now.Sub(base), now.Round(0).Sub(base.Round(0))))
}
