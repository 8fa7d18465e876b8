// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tenure_wrong

package tenure_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/protocol"
)

// TestMistakesOfTheBellAreFound makes the mistakes that the tests of the bell are there to
// find. Each has the effect that its test looks for.
func TestMistakesOfTheBellAreFound(t *testing.T) {
	for _, tt := range []struct {
		mistake protocol.Mistake
		found   func(t *testing.T, w *world, n *wires) bool
	}{
		{protocol.RingsEarly, func(t *testing.T, w *world, n *wires) bool { return slowRelease(t, w, n) > 100*time.Millisecond }},
		{protocol.WaitConfirms, func(t *testing.T, w *world, n *wires) bool { return waitedFor(t, w, n) > lease }},
		{protocol.RingIsALook, func(t *testing.T, w *world, n *wires) bool { return rungWhileDead(t, w, n) > 3*lease }},
		{protocol.HintsUnbounded, func(t *testing.T, w *world, n *wires) bool {
			reads, heartbeats := flooded(t, w, n)
			return reads > 50 && heartbeats > 50
		}},
		{protocol.BellKept, func(t *testing.T, w *world, n *wires) bool {
			a := w.machine("a", n.belled("A"))
			err := a.mustAcquire("x", nil).Release(t.Context())
			return errors.Is(err, tenure.ErrNotReleased) // stores refuse it
		}},
	} {
		t.Run(tt.mistake.String(), func(t *testing.T) {
			inBelled(t, func(t *testing.T, w *world, n *wires) {
				stop := protocol.Make(tt.mistake)
				t.Cleanup(stop)
				if !tt.found(t, w, n) {
					t.Error("the mistake was not found")
				}
			})
		})
	}
}
