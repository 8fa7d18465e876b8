// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

func testList(t *testing.T, e *env) {
	a := e.clients[0]

	t.Run("Empty", func(t *testing.T) {
		e.wantList(t, "", nil)
		e.wantList(t, "nothing/", nil)
	})

	// Enough for several pages of most engines' sizes would be slow to create;
	// a harness that can sets a small page size.
	t.Run("OrderAndPrefix", func(t *testing.T) {
		stored := map[string]driver.Record{}
		for _, group := range []string{"jobs/", "jobs0", "jobs", "Jobs/", "job", "zeta/"} {
			for i := range 9 {
				rec := e.claim(t, a, e.held(fmt.Sprintf("%s%d", group, i*7%10)))
				if i%3 == 0 {
					rec = e.swap(t, a, rec, e.released(rec))
				}
				stored[rec.Key] = rec
			}
		}
		for _, prefix := range []string{"", "jobs/", "jobs", "job", "j", "Jobs/", "jobs/4", "jobs/44", "zeta/", "zz"} {
			e.wantList(t, prefix, stored)
		}
		// A list may begin after any key, so that a reader of a part of it can read the rest.
		for _, after := range []string{"jobs/4", "jobs/", "jobs/44", "jobs/\u00fc", "job", "J", "jobs0", "zz"} {
			for _, prefix := range []string{"", "jobs/"} {
				rest := maps.Clone(stored)
				maps.DeleteFunc(rest, func(key string, _ driver.Record) bool { return key <= after })
				e.wantListAfter(t, prefix, after, rest)
			}
		}
	})
}

// wantList fails the test unless a List with prefix shows, through every
// client, those of the stored records whose key has it, in order.
func (e *env) wantList(t *testing.T, prefix string, stored map[string]driver.Record) {
	t.Helper()
	e.wantListAfter(t, prefix, "", stored)
}

// wantListAfter does so for a List that begins after a key.
func (e *env) wantListAfter(t *testing.T, prefix, after string, stored map[string]driver.Record) {
	t.Helper()
	var want []string
	for key := range stored {
		if strings.HasPrefix(key, prefix) {
			want = append(want, key)
		}
	}
	slices.Sort(want)
	for _, c := range e.clients {
		e.eventually(t, func() string {
			var got []string
			var wrong string
			for _, rec := range e.list(t, c, prefix, after) {
				got = append(got, rec.Key)
				if diff := e.diff(rec, stored[rec.Key]); diff != "" {
					wrong = fmt.Sprintf("List shows %q with %s", rec.Key, diff)
				}
			}
			if !slices.Equal(got, want) {
				return fmt.Sprintf("List(%.20q) after %.20q shows %.20q, want %.20q", prefix, after, got, want)
			}
			return wrong
		})
	}
}

// list returns the records of all pages after a key.
func (e *env) list(t *testing.T, c driver.Store, prefix, after string) []driver.Record {
	t.Helper()
	records, unreadable := e.listAll(t, c, prefix, after)
	for key, err := range unreadable {
		t.Errorf("List(%q): %q is unreadable: %v", prefix, key, err)
	}
	return records
}

func (e *env) listAll(t *testing.T, c driver.Store, prefix, cursor string) ([]driver.Record, map[string]error) {
	t.Helper()
	// More pages than any check stores records: a cursor that never ends.
	const most = 10000
	var records []driver.Record
	unreadable := map[string]error{}
	for range most {
		page, err := c.List(t.Context(), prefix, cursor)
		if err != nil {
			t.Fatalf("List(%q, %q): %v", prefix, cursor, err)
		}
		records = append(records, page.Records...)
		for key, err := range page.Unreadable {
			unreadable[key] = err
		}
		if cursor = page.Cursor; cursor == "" {
			return records, unreadable
		}
	}
	t.Fatalf("List(%q) does not end", prefix)
	return nil, nil
}
