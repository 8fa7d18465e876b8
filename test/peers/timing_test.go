// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package peers

import (
	"math"
	"testing"
	"time"
)

// TestKCL holds the arithmetic to the figures that the library's users know: 26,116
// writes a lease and day, $0.49 a month.
func TestKCL(t *testing.T) {
	u := KCL(1000, 10*time.Second)
	if a := u.ByOperation["UpdateItem"] / 1000 * (24 * time.Hour).Seconds(); math.Abs(a-26116) > 1 {
		t.Errorf("%v writes a lease and day", a)
	}
	if d := u.DollarsMonth(time.Second); math.Abs(d-489.7-0.054-0.016) > 0.1 {
		t.Errorf("$%v a month", d)
	}
}
