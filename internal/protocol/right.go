// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !tenure_wrong

package protocol

// Making says whether a deliberate mistake is made. In this build none ever is: only
// the builds that test the simulator compile them in.
func Making(Mistake) bool { return false }
