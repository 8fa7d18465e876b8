// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// TestHistoryKeepsALongReason: the record of the next holder has its beginning
// alone, since each heartbeat carries it.
func TestHistoryKeepsALongReason(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, boss := w.machine("a"), w.machine("b"), w.machine("boss")
		reason := strings.Repeat("ü", driver.MaxReasonLen/2)
		want := "1 a stepped_down (step_down by boss: " + reason + ")"
		l := a.mustAcquire("x", recorded)
		go func() {
			<-l.Context().Done()
			a.mustRelease(l)
		}()
		if err := boss.StepDown(t.Context(), "x", reason); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		expectHistory(t, boss.history("x"), want)
		l = b.mustAcquire("x", recorded)
		time.Sleep(time.Minute)
		if kept := w.record("x").Prev.Asked.Reason; len(kept) > driver.MaxPrevReasonLen {
			t.Errorf("the record keeps a reason of %d bytes", len(kept))
		}
		expectHistory(t, boss.history("x"), "2 b ", want)
		b.mustRelease(l)
		expectHistory(t, boss.history("x"), "2 b released", want)
		b.mustRelease(b.mustAcquire("x", recorded))
		expectHistory(t, boss.history("x"), "3 b released", "2 b released", want)
	})
}
