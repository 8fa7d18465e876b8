// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
)

// listed is a store that lists what a test says.
type listed struct {
	driver.Store
	page driver.Page
}

func (l listed) List(context.Context, string, string) (driver.Page, error) { return l.page, nil }

func TestRecords(t *testing.T) {
	held := func(key string, drift float64) driver.Record {
		return driver.Record{Key: key, Version: "v", Beat: "v", Owner: "owner-of-" + key, State: driver.Held, Token: 1, Lease: 1, Drift: drift}
	}
	for _, tc := range []struct {
		page driver.Page
		want string
	}{
		{driver.Page{Records: []driver.Record{held("a", 0.09), held("b", 0.09), held("c", 0)}}, "ok records: all of 3 records can be read\n"},
		{
			driver.Page{Records: []driver.Record{held("a", 0.09), held("b", 0.001)}},
			"ok records: all of 2 records can be read\nwarn drift: holders use different bounds on the drift of clocks: 0.1 % (\"owner-of-b\"), 9 % (\"owner-of-a\")\n",
		},
		{
			driver.Page{Records: []driver.Record{{Key: "odd", State: "what", Lease: 1}}, Unreadable: map[string]error{"old": fmt.Errorf("an older layout")}},
			"warn records: 2 of 2 records cannot be read: \"odd\": its lease is 1ns, and its state \"what\"; \"old\": an older layout\n",
		},
	} {
		var b strings.Builder
		p := Patient{Tell: func(f Finding) { fmt.Fprintf(&b, "%s %s: %s\n", f.Level, f.Check, f.Finding) }}
		p.records(t.Context(), listed{memstore.New(), tc.page})
		if b.String() != tc.want {
			t.Errorf("told\n%swant\n%s", b.String(), tc.want)
		}
	}
}
