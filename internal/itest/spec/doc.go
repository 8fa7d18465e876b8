// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package spec checks what the simulator and the real shell do against the model
// in spec/: their traces must be behaviours of it, and traces that were doctored
// must not. TLC does the checking; the tests are skipped where it is not
// installed (scripts/spec install), and fail if TENURE_REQUIRE_ENGINES is set.
package spec
