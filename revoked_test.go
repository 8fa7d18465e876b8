// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
)

// Who has asked a holder to step down is not told that it has while the holder may
// be at work: one whose lock was revoked meanwhile learns of that by its next
// heartbeat, or by its clock.
func TestStepDownOfWhatIsRevokedMeanwhile(t *testing.T) {
	for name, crashes := range map[string]bool{"alive": false, "cut off": true} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a, b, c := w.machine("a"), w.machine("b"), w.machine("c")
			l := a.mustAcquire("x", nil)
			if crashes {
				time.Sleep(heartbeat / 2)
				a.crash()
			}
			revoked := started(func() error {
				time.Sleep(heartbeat / 30)
				return c.Revoke(t.Context(), "x", "now")
			})
			if err := b.StepDown(t.Context(), "x", "please"); err == nil && l.Check() == nil {
				t.Errorf("it is told that the tenure has ended, and the holder may act for %v", l.Remaining())
			}
			want(t, <-revoked, nil)
		})
	}
}

// Who asks for a lock that was revoked is told for how long its holder may be at
// work yet.
func TestStepDownOfARevokedLock(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c := w.machine("a"), w.machine("b"), w.machine("c")
		l := a.mustAcquire("x", nil)
		a.crash()
		revoked := started(func() error { return c.Revoke(t.Context(), "x", "now") })
		time.Sleep(time.Second)
		err := b.StepDown(t.Context(), "x", "please")
		want(t, err, tenure.ErrNotHeld)
		if held := (*tenure.HeldError)(nil); !errors.As(err, &held) || held.FreeIn < l.Remaining() {
			t.Errorf("%v; want it to say that the holder may act for %v", err, l.Remaining())
		}
		want(t, <-revoked, nil)
	})
}
