// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// engine returns how a test opens its records on another store than package memstore. The root
// module cannot import one: internal/itest/testdata/engine_test.go does, and scripts/nightly
// adds that file to these. Tests that bring a store of their own do without it.
var engine func(t *testing.T) (open func() driver.Store)

// notOnEngines skips a test that only package memstore can pass.
func notOnEngines(t testing.TB, why string) {
	t.Helper()
	if engine != nil {
		t.Skip("not on this engine: " + why)
	}
}

const (
	noStaleReads = "its reads are not behind when they are told to be"
	tooManyCalls = "it makes thousands of calls, for what is no matter of the store"
)

// crowd is how many locks are many: fewer where each request goes to an engine.
func crowd() int {
	switch {
	case engine != nil:
		return 100
	case testing.Short():
		return 300
	}
	return 1000
}
