// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"
	"time"

	"github.com/tenurelock/tenure/cmd/internal/guard"
)

// The command is killed half a grace before others may begin: killing takes time, too.
func TestLimits(t *testing.T) {
	const now = guard.Instant(1000)
	for _, test := range []struct{ remaining, grace time.Duration }{
		{10 * time.Second, 2 * time.Second}, {time.Nanosecond, time.Minute}, {time.Hour, 1}, {time.Second, 0},
	} {
		l, ok := limitsAt(now, test.remaining, test.grace)
		if !ok {
			t.Errorf("%+v: refused", test)
		}
		expiry := now.Add(test.remaining + test.grace)
		if want := (guard.Limits{Term: now.Add(test.remaining), Kill: expiry.Add(-test.grace / 2), Expiry: expiry}); l != want {
			t.Errorf("%+v: %+v, want %+v", test, l, want)
		}
		if l.Term > l.Kill || l.Kill > l.Expiry {
			t.Errorf("%+v: out of order: %+v", test, l)
		}
	}
	for _, remaining := range []time.Duration{0, -1} {
		if l, ok := limitsAt(now, remaining, time.Second); ok {
			t.Errorf("with %v left it may live until %+v", remaining, l)
		}
	}
}
