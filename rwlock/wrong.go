// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tenure_wrong

package rwlock

// made is set between runs, never during one.
var made mistake

// making says whether a deliberate mistake is made.
func making(m mistake) bool { return m == made }
