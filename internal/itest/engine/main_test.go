// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Nothing that a client started runs on after its Close. Inside a bubble
// synctest itself sees to that; here it is for the clients on real clocks.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
