// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestRequestsInTheShell shows what people see of requests, and what a store
// makes of what people write.
func TestRequestsInTheShell(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	s := mustOpen(t, file)
	rec := enginetest.Claim(t, s, held("k", "a"))
	if got := ask(t, file, "SELECT coalesce(requests, asked, prev_owner) FROM tenure_records_view"); got != nil {
		t.Errorf("without requests the columns hold %v, want NULL", got)
	}
	asked := next(rec)
	asked.Requests = []driver.Request{
		{ID: "q1", Kind: driver.HandOver, By: "ops", Reason: "a <new> host & more", To: "b", At: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)},
		{ID: "q2", Kind: driver.StepDown},
	}
	enginetest.Swap(t, s, rec, asked)
	const want = `[{"id":"q1","kind":"hand_over","by":"ops","reason":"a <new> host & more","to":"b","at":"2026-05-04T03:02:01Z"},` +
		`{"id":"q2","kind":"step_down"}]`
	if got := ask(t, file, "SELECT requests FROM tenure_records_view"); got != want {
		t.Errorf("requests are\n%v, want\n%v", got, want)
	}
	if got := ask(t, file, "SELECT requests ->> '$[0].by' FROM tenure_records_view"); got != "ops" {
		t.Errorf("asked by %v", got)
	}

	// Spaces, a time of another place, names that are not known: all is well.
	shell(t, file, `UPDATE tenure_records SET version = 'by-hand',
		record = replace(json_remove(record, '$.requests'), '{"beat"', '{ "requests" :
		[ {"kind": "step_down", "id": "q3", "urgent": true, "at": "2026-05-04T03:02:01+02:00"} ] , "beat"')`)
	got := enginetest.Get(t, s, "k")
	if len(got.Requests) != 1 || got.Requests[0].ID != "q3" || !got.Requests[0].At.Equal(time.Date(2026, 5, 4, 1, 2, 1, 0, time.UTC)) {
		t.Errorf("requests by hand: %+v", got.Requests)
	}
}

// TestRowsChangedByHand reads manual changes of a lock under a session, whose
// holder receives notifications.
func TestRowsChangedByHand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	s := mustOpen(t, file)
	rec := under("k", "s1")
	rec.Notify = "udp://127.0.0.1:1 secret"
	rec = enginetest.Claim(t, s, rec)
	for _, c := range []struct {
		change          string
		session, notify string
	}{
		{"version = 'by hand'", "s1", rec.Notify},
		{"state = 'hibernating'", "", ""},
		{"state = 'alive'", "", rec.Notify},
		{"state = 'released'", "", ""},
		{"state = 'held', record = json_remove(record, '$.session')", "", rec.Notify},
	} {
		shell(t, file, "UPDATE tenure_records SET "+c.change)
		got := enginetest.Get(t, s, "k")
		if got.Session != c.session || got.Notify != c.notify {
			t.Errorf("%s: session %q, notify %q; want %q, %q", c.change, got.Session, got.Notify, c.session, c.notify)
		}
	}
}

// TestView: people see the record in columns, without the secret address, and a damaged text as
// NULL.
func TestView(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	s := mustOpen(t, file)
	rec := enginetest.Claim(t, s, held("k", "a"))
	free := released(rec)
	free.End = driver.EndSteppedDown
	enginetest.Swap(t, s, rec, free)
	again := held("k", "b")
	again.Notify, again.Data, again.Session = "udp://127.0.0.1:1 secret", []byte("five!"), "s1"
	enginetest.Claim(t, s, again)
	const columns = "name || '|' || state || '|' || owner || '|' || token || '|' || prev_token || '|' || prev_owner || '|' || prev_ended || '|' || " +
		"(prev_until IS NOT NULL) || '|' || lease || '|' || session || '|' || data_bytes"
	if got := ask(t, file, "SELECT "+columns+" FROM tenure_records_view"); got != "k|resting|b|2|1|a|stepped_down|1|1m0s|s1|5" {
		t.Errorf("the view shows %v", got)
	}
	if got := ask(t, file, "SELECT count(*) FROM pragma_table_info('tenure_records_view') WHERE name = 'bell'"); got != int64(0) {
		t.Error("the view shows the address for notifications")
	}
	shell(t, file, "UPDATE tenure_records SET record = '{'")
	if got := ask(t, file, "SELECT owner FROM tenure_records_view WHERE lease IS NULL"); got != "b" {
		t.Errorf("a damaged text hides the row: %v", got)
	}
}
