// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"testing"
	"time"

	"github.com/tenurelock/tenure"
)

// A request for a lock under a session that is closing is found when it closes. The
// lock is kept for the one that is meant, unless its holder has said that nobody comes.
func TestAskedWhileTheSessionCloses(t *testing.T) {
	for name, comes := range map[string]bool{"somebody comes": true, "nobody comes": false} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a, b := w.machine("a"), w.machine("b")
			s := a.mustOpen(nil)
			l := a.mustTake(s, "x")
			time.Sleep(heartbeat / 6)
			closed := started(func() error { return s.Close(t.Context()) })
			<-l.Context().Done()
			if !comes {
				want(t, l.StepDown("nobody comes"), nil)
			}
			asked := started(func() error { return b.Transfer(t.Context(), "x", "gone", "maintenance") })
			time.Sleep(heartbeat / 6) // it lies in the session's record, and a has not looked
			a.mustRelease(l)
			want(t, <-closed, nil)
			want(t, <-asked, nil)
			var free error
			if comes {
				free = tenure.ErrHeld
			}
			_, err := b.TryAcquire(t.Context(), "x", nil)
			want(t, err, free)
		})
	}
}
