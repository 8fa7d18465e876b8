// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !tenure_wrong

package protocol

// Making says whether a deliberate mistake is made. It never is, but in the
// builds that see whether the simulator finds each: here nothing of them is
// compiled.
func Making(Mistake) bool { return false }
