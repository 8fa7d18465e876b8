// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuretest_test

import (
	"testing"
	"testing/synctest"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/tenuretest"
)

// The observer sees each write that was made, also one whose reply was lost.
func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := tenuretest.New(t)
		var states []driver.State
		w.Observe(func(rec driver.Record) { states = append(states, rec.State) })
		a := w.Client("a")
		a.LoseReplies(1)
		l, err := a.Acquire(t.Context(), "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(states); n < 2 || states[0] != driver.Held || states[n-1] != driver.Released {
			t.Errorf("observed %v", states)
		}
	})
}
