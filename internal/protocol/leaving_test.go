// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// A lease that nobody waited for any more says so in the record: its holder has
// written nothing of the tenure before it.
func TestUnwantedLeaseIsAbandoned(t *testing.T) {
	timing := Timing{}.WithDefaults()
	env := Env{Fresh: func() string { return "fresh" }, Random: func() float64 { return 0.5 }}
	for _, wanted := range []bool{true, false} {
		h := NewHolder(timing, env, Grant{
			Record: driver.Record{Key: "x", Version: "v", Beat: "v", Owner: "a", Token: 1, State: driver.Held, Lease: timing.Lease},
			Sent:   time.Hour,
		})
		want := driver.EndReleased
		if !wanted {
			h.Abandon()
			want = driver.EndAbandoned
		}
		r := h.Done(time.Hour + time.Second).Request
		if r == nil || r.Kind != Release || r.Next.End != want {
			t.Errorf("wanted=%v: request %+v, want a release as %q", wanted, r, want)
		}
	}
}
