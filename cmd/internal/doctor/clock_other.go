// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package doctor

import "github.com/tenurelock/tenure/driver"

// clocks says what this machine's clocks are good for.
func clocks(float64, bool) []driver.Finding {
	return []driver.Finding{driver.OK("clock", "suspends are noticed by the wall clock, the only "+
		"means on this system")}
}
