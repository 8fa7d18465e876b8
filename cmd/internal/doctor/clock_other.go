// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package doctor

// clocks says what this machine's clocks are good for.
func clocks(float64) []Finding {
	return []Finding{{"clock", OK, "suspends are noticed by the wall clock, which is what there is on this system", ""}}
}
