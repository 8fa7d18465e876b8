// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// javaHas plants the item of the client for Java under a key.
func javaHas(t *testing.T, url, table, key string, changes item) {
	t.Helper()
	it := row(item{attrLease: text("1000")})
	maps.Copy(it, changes)
	it["key"] = text(key)
	plantItem(t, url, table, it)
}

// TestRaiseInASharedTable: a shared table has the tokens of locks in items of their own,
// which are most of its items: the Java client deletes the items of its locks. All of
// them rise.
func TestRaiseInASharedTable(t *testing.T) {
	enginetest.EachDynamoDB(t, func(t *testing.T, e enginetest.DynamoDB) {
		if e.NoTransactions {
			t.Skipf("%s has no transactions: see TestSharedNeedsTransactions", e.Name)
		}
		table := newTable(t, e, nil)
		s := open(t, e.URL, table, &Options{SharedTable: true})
		s.pageSize = 2
		client := newClient(t, s, tenure.Options{Owner: "ops", LeaseDuration: time.Second})
		for _, name := range []string{"ours", "java's", "java's, free", "gone", "gone, too", "behind"} {
			for range 2 {
				l, err := client.Acquire(t.Context(), name, nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := l.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		javaHas(t, e.URL, table, "java's", nil)
		javaHas(t, e.URL, table, "java's, free", item{attrReleased: text("1"), attrData: binary("theirs")})
		javaHas(t, e.URL, table, "java's alone", nil)
		for _, name := range []string{"gone", "gone, too"} {
			deleteItem(t, e.URL, table, item{"key": text(name)})
		}
		// A table that was restored in part: the token beside is ahead of the item's.
		beside := readItem(t, e.URL, table, item{"key": text(tokenPrefix + "behind")})
		beside[attrToken] = n("500")
		plantItem(t, e.URL, table, beside)

		done, err := admin.RaiseTokens(t.Context(), client, "", 1000, nil)
		if err != nil || done != (admin.RaisedTokens{Locks: 6, Foreign: 1}) {
			t.Fatalf("%+v, %v", done, err)
		}
		for name, want := range map[string]uint64{"ours": 1002, "java's": 1003, "java's, free": 1003, "gone": 1002, "gone, too": 1002, "behind": 1002} {
			rec, err := s.Get(t.Context(), name, driver.Strong)
			if err != nil || rec.Token != want || rec.State != driver.Released || rec.Owner != "ops" {
				t.Errorf("%q: %+v, %v", name, rec, err)
			}
			if data := map[bool]string{true: "theirs"}[name == "java's, free"]; string(rec.Data) != data {
				t.Errorf("%q: data %q", name, rec.Data)
			}
			it := readItem(t, e.URL, table, item{"key": text(name)})
			if textOf(it, attrReleased) != "1" {
				t.Errorf("%q: the client for Java does not see that it is free: %v", name, it)
			}
			stands := reader{it: readItem(t, e.URL, table, item{"key": text(tokenPrefix + name)})}
			if token := stands.token(); token != want || stands.err != nil {
				t.Errorf("%q: token %d stands beside, %v", name, token, stands.err)
			}
			// It deletes them as well, when it has had them.
			deleteItem(t, e.URL, table, item{"key": text(name)})
			l, err := client.TryAcquire(t.Context(), name, nil)
			if err != nil || l.Token() != want+1 {
				t.Fatalf("%q: %v, %v, want token %d", name, l, err, want+1)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if it := readItem(t, e.URL, table, item{"key": text("java's alone")}); textOf(it, attrOwner) != "java-1" || it[attrToken] != nil {
			t.Errorf("what Tenure has never held was written: %v", it)
		}
		if beside := readItem(t, e.URL, table, item{"key": text(tokenPrefix + "java's alone")}); beside != nil {
			t.Errorf("a token was stored for a lock that Tenure has never held: %v", beside)
		}

		// A token beside that is as high as the next one is refused: nothing is lowered.
		beside = readItem(t, e.URL, table, item{"key": text(tokenPrefix + "behind")})
		beside[attrToken] = n("900000")
		plantItem(t, e.URL, table, beside)
		rec := enginetest.Get(t, s, "behind")
		next := rec
		next.Version, next.Token = "up", rec.Token+1000
		if _, err := s.Raise(t.Context(), rec, next); !errors.Is(err, driver.ErrNotApplied) {
			t.Errorf("%v: want a refusal", err)
		}
	})
}

// TestRaiseOverAnotherClient: in a table without SharedTable, items of another client
// are left alone, and named.
func TestRaiseOverAnotherClient(t *testing.T) {
	enginetest.EachDynamoDB(t, func(t *testing.T, e enginetest.DynamoDB) {
		table := newTable(t, e, nil)
		s := open(t, e.URL, table, nil)
		client := newClient(t, s, tenure.Options{LeaseDuration: time.Second})
		for _, name := range []string{"ours", "carried"} {
			l, err := client.Acquire(t.Context(), name, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		javaHas(t, e.URL, table, "carried", item{attrToken: n("7"), attrStamp: text("older"), attrLease: text("1s")}) // as dynamolock does
		javaHas(t, e.URL, table, "theirs", nil)
		n, err := admin.RaiseTokens(t.Context(), client, "", 1000, nil)
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), `"carried"`) || n != (admin.RaisedTokens{Locks: 1, Unreadable: 1, Foreign: 1}) {
			t.Errorf("%+v, %v", n, err)
		}
		if rec, err := s.Get(t.Context(), "ours", driver.Strong); err != nil || rec.Token != 1001 {
			t.Errorf("%+v, %v", rec, err)
		}
		if rec, err := s.Get(t.Context(), "carried", driver.Strong); err != nil || rec.Token != 8 || rec.Owner != "java-1" {
			t.Errorf("%+v, %v", rec, err)
		}
	})
}
