// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !tenure_wrong

package rwlock

// making says whether a deliberate mistake is made. In this build none ever is.
func making(mistake) bool { return false }
