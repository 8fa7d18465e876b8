// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

func held() driver.Record {
	return driver.Record{Key: "k", Version: "v1", Beat: "v1", Owner: "o", Token: 1, Lease: time.Second, State: driver.Held}
}

func alive() driver.Record {
	rec := held()
	rec.Key, rec.State = driver.SessionPrefix+"s1", driver.Alive
	return rec
}

// with returns rec with another version and some changes.
func with(rec driver.Record, changes ...func(*driver.Record)) driver.Record {
	rec = rec.Clone()
	rec.Version = "v2"
	for _, change := range changes {
		change(&rec)
	}
	return rec
}

func state(s driver.State) func(*driver.Record) { return func(r *driver.Record) { r.State = s } }
func under(id string) func(*driver.Record)      { return func(r *driver.Record) { r.Session = id } }
func raised(r *driver.Record)                   { r.Token++ }

func wantCheck(t *testing.T, err error, refused string) {
	t.Helper()
	if refused == "" {
		if err != nil {
			t.Error(err)
		}
		return
	}
	if !errors.Is(err, driver.ErrNotApplied) || !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), refused) {
		t.Errorf("%v; want a permanent refusal with %q", err, refused)
	}
}

func TestCheckClaim(t *testing.T) {
	id := strings.Repeat("aZ9-", driver.MaxSessionLen/4)
	for name, tc := range map[string]struct {
		next    driver.Record
		refused string
	}{
		"Held":              {held(), ""},
		"HeldUnderASession": {with(held(), under(id)), ""},
		"Past":              {with(held(), state(driver.Past)), ""},
		"Alive":             {alive(), ""},
		"NoWord":            {with(held(), state("fast asleep")), "a word of"},
		"Released":          {with(held(), state(driver.Released)), "it must be"},
		"Reserved":          {with(held(), state(driver.Reserved)), "it must be"},
		"Closed":            {with(alive(), state(driver.Closed)), "it must be"},
		"IDTooLong":         {with(held(), under(id+"a")), "letters, digits and dashes"},
		"IDWithASlash":      {with(held(), under("a/b")), "letters, digits and dashes"},
		"IDNotASCII":        {with(held(), under("ä")), "letters, digits and dashes"},
		"PastUnderOne":      {with(held(), state(driver.Past), under("s1")), "or name no session"},
		"AliveUnderOne":     {with(alive(), under("s1")), "or name no session"},
		"Drift":             {with(held(), drift(0.5)), ""},
		"DriftOfAll":        {with(held(), drift(1)), "less than 1"},
		"DriftNegative":     {with(held(), drift(-0.1)), "0 or more"},
		"DriftNaN":          {with(held(), drift(math.NaN())), "0 or more"},
		"Notify":            {with(held(), notify(driver.MaxNotifyLen)), ""},
		"NotifyOfASession":  {with(alive(), notify(1)), ""},
		"NotifyTooLong":     {with(held(), notify(driver.MaxNotifyLen+1)), "the longest is"},
		"NotifyOfThePast":   {with(held(), state(driver.Past), notify(1)), "with an address for notifications"},
		"RequestToken": {with(alive(), func(r *driver.Record) {
			r.Requests = []driver.Request{{ID: "q", Kind: driver.Confirm, Lock: "k", Token: driver.MaxToken + 1}}
		}), "the highest is"},
	} {
		t.Run(name, func(t *testing.T) { wantCheck(t, driver.CheckClaim(tc.next), tc.refused) })
	}
}

func drift(d float64) func(*driver.Record) { return func(r *driver.Record) { r.Drift = d } }

func notify(n int) func(*driver.Record) {
	return func(r *driver.Record) { r.Notify = strings.Repeat("b", n) }
}

func TestCheckSwapOfSessions(t *testing.T) {
	closed := with(alive(), state(driver.Closed))
	closed.Version = "v1"
	named := driver.Record{Key: alive().Key, Version: "v1", Token: 1}
	for name, tc := range map[string]struct {
		prev, next driver.Record
		refused    string
	}{
		"Heartbeat":      {alive(), with(alive()), ""},
		"Close":          {alive(), with(alive(), state(driver.Closed)), ""},
		"CloseNamed":     {named, with(alive(), state(driver.Closed)), ""},
		"Revive":         {closed, with(alive()), "stays closed"},
		"CloseAgain":     {closed, with(closed), "stays closed"},
		"Release":        {alive(), with(alive(), state(driver.Released)), "never a lock's"},
		"ToLock":         {alive(), with(alive(), state(driver.Held)), "never a lock's"},
		"ToUnknown":      {alive(), with(alive(), state("hibernating")), "never a lock's"},
		"FromLock":       {held(), with(held(), state(driver.Alive)), "never a lock's"},
		"FromLockClosed": {held(), with(held(), state(driver.Closed)), "never a lock's"},
		"Token":          {alive(), with(alive(), raised), "keeps its token"},
		"TokenAtClose":   {alive(), with(alive(), state(driver.Closed), raised), "keeps its token"},

		"TakenUnderASession":  {held(), with(held(), under("s1"), raised), ""},
		"SessionLeft":         {with(held(), under("s1")), with(held(), func(r *driver.Record) { r.Version = "v3" }), ""},
		"ReleasedWithSession": {with(held(), under("s1")), with(held(), under("s1"), state(driver.Released), func(r *driver.Record) { r.Version = "v3" }), "or name no session"},
		"ReservedWithSession": {held(), with(held(), under("s1"), state(driver.Reserved)), "or name no session"},
		"UnknownWithSession":  {held(), with(held(), under("s1"), state("hibernating")), "or name no session"},
	} {
		t.Run(name, func(t *testing.T) { wantCheck(t, driver.CheckSwap(tc.prev, tc.next), tc.refused) })
	}
}

// A session's heartbeats call no hint: all waiters for its locks watch it.
func TestWakesOfSessions(t *testing.T) {
	asked := with(alive(), func(r *driver.Record) { r.Requests = []driver.Request{{ID: "q", Kind: driver.Confirm}} })
	for name, tc := range map[string]struct {
		prev, next driver.Record
		want       bool
	}{
		"Heartbeat":             {alive(), with(alive()), false},
		"HeartbeatWithRequests": {asked, with(asked), false},
		"Request":               {alive(), asked, true},
		"Close":                 {alive(), with(alive(), state(driver.Closed)), true},
		"Release":               {with(held(), under("s1")), with(held(), state(driver.Released)), true},
	} {
		if got := driver.Wakes(tc.prev, tc.next); got != tc.want {
			t.Errorf("%s: Wakes is %t, want %t", name, got, tc.want)
		}
	}
}

// The record remembers a holder under a session like any other holder.
func TestClaimedAfterASession(t *testing.T) {
	prev := with(held(), under("s1"))
	if got := prev.Term(driver.EndExpired); got == nil || got.Owner != "o" || got.Token != 1 || got.End != driver.EndExpired {
		t.Errorf("the term of a lock under a session is %+v", got)
	}
	free := with(held(), state(driver.Released))
	for _, id := range []string{"", "s2"} {
		if now := driver.Claimed(with(held(), under(id)), free, true); now.Session != id || now.Token != 2 || now.Prev == nil {
			t.Errorf("a claim under session %q stores %+v", id, now)
		}
	}
}

// All text for people has one limit, which the layer above the stores relies on.
func TestTextHasOneLimit(t *testing.T) {
	if driver.MaxOwnerLen != driver.MaxNameLen || driver.MaxReasonLen != driver.MaxNameLen {
		t.Errorf("owner %d, name %d, reason %d", driver.MaxOwnerLen, driver.MaxNameLen, driver.MaxReasonLen)
	}
}

// A string that some engine cannot keep is refused wherever it is in a record, and
// any other is not. The fields are found by reflection, so that none is forgotten.
func TestTextIsChecked(t *testing.T) {
	poison := map[string]string{"zero": "a\x00b", "broken": "a\xffb", "cut": "a\xe4\xb8", "surrogate": "a\xed\xa0\x80"}
	fields := 0
	for name, bad := range poison {
		eachText(reflect.TypeFor[driver.Record](), func(field string, set func(*driver.Record, string)) {
			switch field {
			case "Unknown", "Session": // is the store's own; has a form of its own
				return
			}
			fields++
			rec := held()
			rec.Asked, rec.Prev = &driver.Request{}, &driver.Term{Asked: &driver.Request{}}
			rec.Requests = []driver.Request{{ID: "first"}, {ID: "second"}}
			check := func(s string) (claim, swap error) {
				next := rec.Clone()
				next.Version = "v2"
				set(&next, s)
				return driver.CheckClaim(next), driver.CheckSwap(driver.Record{Key: next.Key, Version: "v1", Token: next.Token}, next)
			}
			claim, swap := check(bad)
			wantCheck(t, swap, "without U+0000")
			wantCheck(t, claim, "without U+0000")
			if field != "State" && field != "Notify" {
				claim, swap = check("a\x01\u0085\u2028\ufffd\ufffe\U0010ffff")
				wantCheck(t, swap, "")
				wantCheck(t, claim, "")
			}
			if t.Failed() {
				t.Fatalf("%s in %s", name, field)
			}
		})
	}
	if fields < 20*len(poison) {
		t.Errorf("%d strings found", fields)
	}
	control := with(held(), func(r *driver.Record) { r.Notify = "a\nb" })
	wantCheck(t, driver.CheckClaim(control), "control characters")
}

// eachText calls do for each string in a record, with what sets it there.
func eachText(typ reflect.Type, do func(field string, set func(*driver.Record, string))) {
	var walk func(typ reflect.Type, name string, at func(reflect.Value) reflect.Value)
	walk = func(typ reflect.Type, name string, at func(reflect.Value) reflect.Value) {
		switch typ.Kind() {
		case reflect.String:
			do(name, func(rec *driver.Record, s string) { at(reflect.ValueOf(rec).Elem()).SetString(s) })
		case reflect.Pointer:
			walk(typ.Elem(), name, func(v reflect.Value) reflect.Value { return at(v).Elem() })
		case reflect.Slice:
			walk(typ.Elem(), name, func(v reflect.Value) reflect.Value { return at(v).Index(at(v).Len() - 1) })
		case reflect.Struct:
			for i := range typ.NumField() {
				if f := typ.Field(i); f.IsExported() {
					walk(f.Type, strings.TrimPrefix(name+"."+f.Name, "."), func(v reflect.Value) reflect.Value { return at(v).Field(i) })
				}
			}
		}
	}
	walk(typ, "", func(v reflect.Value) reflect.Value { return v })
}
