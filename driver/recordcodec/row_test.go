// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package recordcodec_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
)

// TestRow: a record comes back from its row, whose text has nothing that is a column.
func TestRow(t *testing.T) {
	for _, state := range []driver.State{driver.Held, driver.Reserved, driver.Released, driver.Past, driver.Alive, "hibernating"} {
		rec := full()
		rec.State, rec.Unknown = state, `{"later":1}`
		if state != driver.Held {
			rec.Session = ""
			rec.Requests = nil
		}
		if state != driver.Held && state != driver.Alive {
			rec.Notify = ""
		}
		row := recordcodec.RowOf(rec)
		if state == driver.Held && row.State != "resting" || state != driver.Held && row.State != string(state) {
			t.Errorf("%s under session %q: column state is %q", state, rec.Session, row.State)
		}
		text, _, _ := strings.Cut(row.Text, `"prev"`)
		text, _, _ = strings.Cut(text, `"requests"`)
		for _, member := range []string{"key", "version", "token", "state", "owner", "data"} {
			if strings.Contains(text, `"`+member+`"`) {
				t.Errorf("%s is in %s", member, row.Text)
			}
		}
		if got, err := row.Record(); err != nil || !reflect.DeepEqual(got, rec) {
			t.Errorf("%v\n%+v, want\n%+v", err, got, rec)
		}
	}
}

// TestRowsChangedByHand: what a changed column leaves behind in the text does no harm.
func TestRowsChangedByHand(t *testing.T) {
	row := recordcodec.RowOf(full())
	for state, want := range map[string][2]string{
		"resting":     {"S-1", full().Notify},
		"alive":       {"", full().Notify},
		"released":    {"", ""},
		"hibernating": {"", ""},
	} {
		row.State = state
		if got, err := row.Record(); err != nil || got.Session != want[0] || got.Notify != want[1] {
			t.Errorf("%s: session %q, notify %q, %v; want %q", state, got.Session, got.Notify, err, want)
		}
	}
}

// TestUnreadableRows: no wrong value comes back as another one.
func TestUnreadableRows(t *testing.T) {
	for what, wrong := range map[string]func(*recordcodec.Row){
		"column name is empty":               func(r *recordcodec.Row) { r.Name = "" },
		"column version is empty":            func(r *recordcodec.Row) { r.Version = "" },
		"column version has a text":          func(r *recordcodec.Row) { r.Version = "\xff" },
		"column owner is empty":              func(r *recordcodec.Row) { r.Owner = "" },
		"column owner has a text":            func(r *recordcodec.Row) { r.Owner = "a\x00" },
		"column state is empty":              func(r *recordcodec.Row) { r.State = "" },
		`column state is "Held"`:             func(r *recordcodec.Row) { r.State = "Held" },
		`column state is "held "`:            func(r *recordcodec.Row) { r.State = "held " },
		"column state is held, not resting":  func(r *recordcodec.Row) { r.State = "held" },
		"column state is resting, and its":   func(r *recordcodec.Row) { r.Text = `{"lease":"1s"}` },
		"column token is 0":                  func(r *recordcodec.Row) { r.Token = 0 },
		"column token is -1":                 func(r *recordcodec.Row) { r.Token = -1 },
		"its text has no lease":              func(r *recordcodec.Row) { r.Text = `{"session":"s"}` },
		"is not a JSON object":               func(r *recordcodec.Row) { r.Text = "" },
		`lease is "20", not a duration`:      func(r *recordcodec.Row) { r.Text = `{"lease":"20"}` },
		"its text has a member that is a co": func(r *recordcodec.Row) { r.Text = `{"token":7,"lease":"1s"}` },
	} {
		row := recordcodec.RowOf(full())
		wrong(&row)
		got, err := row.Record()
		if !errors.Is(err, driver.ErrUnreadable) || !strings.Contains(err.Error(), what) {
			t.Errorf("%v; want %q", err, what)
		}
		if !reflect.DeepEqual(got, driver.Record{Key: row.Name}) {
			t.Errorf("%s: %+v", what, got)
		}
	}
	nobody := full()
	nobody.State, nobody.Session, nobody.Owner = driver.Reserved, "", ""
	if _, err := recordcodec.RowOf(nobody).Record(); err != nil {
		t.Errorf("reserved for nobody: %v", err)
	}
}

// TestReleasedTextAsPrev: the text of a released record, put into the text of the next one,
// is what [driver.Claimed] makes of it.
func TestReleasedTextAsPrev(t *testing.T) {
	for _, end := range []driver.EndReason{"", driver.EndSteppedDown} {
		free := full()
		free.State, free.Session, free.Notify, free.Requests, free.End = driver.Released, "", "", nil, end
		free.Asked.Reason = strings.Repeat("long ", 100)
		next := full()
		next.Prev, next.Token, next.Unknown = nil, free.Token, ""
		row := recordcodec.RowOf(next)
		row.Text = strings.TrimSuffix(row.Text, "}") + `,"prev":` + recordcodec.Encode(free) + "}"
		got, err := row.Record()
		want := driver.Claimed(next, free, true)
		want.Token = next.Token
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v\n%+v, want\n%+v", err, got.Prev, want.Prev)
		}
	}
}
