// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package spec checks traces of the simulator and of the real engine against the model
// in spec/: the traces must be behaviours of it, and doctored traces must not. TLC does
// the checking; the tests are skipped where it is not installed (scripts/spec install),
// and fail if TENURE_REQUIRE_ENGINES is set.
package spec
