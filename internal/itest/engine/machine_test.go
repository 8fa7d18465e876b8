// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/tenuretest"
)

const (
	lease = 15 * time.Second // the default
	// nap is how late a suspend or a step may be noticed: a quarter of the grace.
	nap = lease / 8 / 4
)

// suspend puts the machine of a client to sleep for d, in next to no time. The timers of
// package time, and everything else, go on where they were.
func suspend(c *tenuretest.Client, d time.Duration) {
	const fast = 1_000_000
	c.SetRate(fast)
	time.Sleep(d / fast)
	c.SetRate(1)
}

func acquire(t *testing.T, m *tenuretest.Client, name string) *tenure.Lease {
	t.Helper()
	l, err := m.Acquire(t.Context(), name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func want(t *testing.T, err, target error) {
	t.Helper()
	if target == nil && err != nil || target != nil && !errors.Is(err, target) {
		t.Errorf("got error %v, want %v", err, target)
	}
}
