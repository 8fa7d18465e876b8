// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tenure_wrong

package protocol

// made is set between runs, never during one.
var made Mistake

// Make has all machines make a mistake from now on, until stop is called. No
// machine may be in use meanwhile. It exists under the build tag tenure_wrong
// alone.
func Make(m Mistake) (stop func()) {
	made = m
	return func() { made = NoMistake }
}

// Making says whether a deliberate mistake is made.
func Making(m Mistake) bool { return m == made }
