// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
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
		return driver.Record{
			Key: key, Version: "v", Beat: "v", Owner: "owner-of-" + key, State: driver.Held, Token: 1, Lease: 1, Drift: drift,
		}
	}
	for _, tc := range []struct {
		page driver.Page
		want string
	}{
		{
			driver.Page{Records: []driver.Record{held("a", 0.09), held("b", 0.09), held("c", 0), held("d", 0.01)}},
			"ok records: all 4 records can be read\n",
		},
		{
			driver.Page{Records: []driver.Record{held("a", 0.09), held("b", 0.001)}},
			"ok records: all 2 records can be read\nwarn drift: holders use different bounds on clock drift: " +
				"0.1 % (\"owner-of-b\"), 9 % (\"owner-of-a\")\n",
		},
		{
			driver.Page{Records: []driver.Record{
				held("c:gate", 0), held("c:read/0", 0), held("c:read/7", 0),
				{Key: "c:readers", State: driver.Released, Token: 1, Lease: 1, Data: []byte(`{"slots":8}`)},
				held("d:gate", 0), held("d:read/0", 0), held("e:gate", 0),
			}},
			"ok records: all 7 records can be read\nok readers and writers: 1 of these locks, 2 processes reading\n" +
				"warn readers and writers: the number of slots is not stored: \"d\"\n",
		},
		{
			driver.Page{
				Records:    []driver.Record{{Key: "odd", State: "what", Lease: 1}},
				Unreadable: map[string]error{"old": fmt.Errorf("an older layout")},
			},
			"warn records: 2 of 2 records cannot be read: \"odd\": its lease is 1ns, and its state \"what\"; \"old\": an " +
				"older layout\n",
		},
	} {
		var b strings.Builder
		p := Patient{Tell: func(f driver.Finding) { fmt.Fprintf(&b, "%s %s: %s\n", f.Level, f.Check, f.Finding) }}
		p.records(t.Context(), listed{memstore.New(), tc.page})
		if b.String() != tc.want {
			t.Errorf("told\n%swant\n%s", b.String(), tc.want)
		}
	}
}

// TestSilentHolders: locks and sessions whose heartbeats have stopped are reported; those whose
// heartbeats go on are not, nor are those that are released meanwhile.
func TestSilentHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := memstore.New()
		defer func() { _ = records.Close() }()
		open := func(owner string) (*tenure.Client, *faultstore.Store) {
			faults := faultstore.New(records.Open(), nil)
			client, err := tenure.New(faults.Driver(), &tenure.Options{
				Owner: owner, LeaseDuration: 10 * time.Second, Clock: tenure.MonotonicClock(),
			})
			if err != nil {
				t.Fatal(err)
			}
			return client, faults
		}
		lives, _ := open("lives")
		dies, faults := open("dies")
		var last *tenure.Lease
		for client, names := range map[*tenure.Client][]string{lives: {"a", "b"}, dies: {"c", "d", "e", "f"}} {
			for _, name := range names {
				l, err := client.Acquire(t.Context(), name, nil)
				if err != nil {
					t.Fatal(err)
				}
				if name == "b" {
					last = l
				}
			}
			if _, err := client.OpenSession(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		told := func() string {
			var b strings.Builder
			p := Patient{Tell: func(f driver.Finding) { fmt.Fprintf(&b, "%s %s: %s\n", f.Level, f.Check, f.Finding) }}
			p.records(t.Context(), records)
			return b.String()
		}
		if got := told(); strings.Contains(got, "holders") {
			t.Errorf("all live, and it is told:\n%s", got)
		}
		faults.SetBlackHole(true)
		go func() {
			time.Sleep(time.Second)
			_ = last.Release(context.WithoutCancel(t.Context()))
		}()
		if got := told(); !strings.Contains(got, `warn holders: no heartbeat for two periods: `) ||
			!strings.Contains(got, `of "dies" (one every 2s)`) ||
			!strings.Contains(got, "and 2 others") || strings.Contains(got, "lives") {
			t.Errorf("told:\n%s", got)
		}
		_ = lives.Close(t.Context())
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		_ = dies.Close(ctx)
		_ = faults.Close()
	})
}
