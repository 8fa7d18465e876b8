// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"bytes"
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

func n(s string) types.AttributeValue { return &types.AttributeValueMemberN{Value: s} }

// row returns what the Java client writes, with some attributes changed; nil
// takes one away.
func row(changes item) item {
	it := item{
		attrOwner: text("java-1"), attrLease: text("20000"),
		attrVersion: text("0b6d4b0e-9d2f-4a6f-8d0e-0d8a3f1c2b5a"),
	}
	maps.Copy(it, changes)
	maps.DeleteFunc(it, func(_ string, v types.AttributeValue) bool { return v == nil })
	return it
}

// foreignRows are rows of other clients, and how the store reads them.
var foreignRows = []struct {
	name    string
	row     item
	refused string        // what the error says; "" if the row is understood
	lease   time.Duration // if it is understood
	free    bool
}{
	{name: "Java", row: row(nil), lease: 20 * time.Second},
	{name: "Java, released", row: row(item{attrReleased: text("1")}), lease: 20 * time.Second, free: true},
	{name: "Java, with data", row: row(item{attrData: binary("d")}), lease: 20 * time.Second},
	{name: "Java, additional attributes of the names in our map", row: row(item{"host": n("5"), "state": text("x"), "since": binary("y")}), lease: 20 * time.Second},
	{name: "dynamolock", row: row(item{attrLease: text("20s"), attrVersion: text("1795165686230799644:IAHC")}), lease: 20 * time.Second},
	{name: "dynamolock, minutes", row: row(item{attrLease: text("1m30s")}), lease: 90 * time.Second},
	{name: "dynamolock, short", row: row(item{attrLease: text("500ms")}), lease: 500 * time.Millisecond},
	{name: "dynamolock, released", row: row(item{attrLease: text("20s"), attrReleased: text("1")}), lease: 20 * time.Second, free: true},
	{name: "dynamolock, our attributes carried over", lease: 20 * time.Second, row: row(item{
		attrLease: text("20s"), attrStamp: text("older"), attrToken: n("7"), attrTenure: text(`{"beat":"older","bell":"udp://192.0.2.7:4711 SECRET"}`),
		attrBefore: text(`{"owner":"us","token":6}`), attrState: text("released"),
	})},
	{name: "dynamolock, our attributes carried over, released", lease: 20 * time.Second, free: true, row: row(item{
		attrLease: text("20s"), attrStamp: text("older"), attrToken: n("7"), attrTenure: text(`{"beat":"older"}`),
		attrReleased: text("1"), attrState: text("released"),
	})},
	{name: "dynamolock, over a lock under a session", lease: 20 * time.Second, row: row(item{
		attrLease: text("20s"), attrStamp: text("older"), attrToken: n("7"), attrTenure: text(`{"lease":"1s","session":"s1"}`), attrState: text(stateResting),
	})},
	{name: "our map damaged by another", lease: 20 * time.Second, row: row(item{attrStamp: text("older"), attrTenure: text("?")})},
	{name: "data of 350 kB", row: row(item{attrData: binary(strings.Repeat("x", 350_000))}), lease: 20 * time.Second},

	{name: "Rust up to 0.4", row: row(item{attrLease: text("20")}), refused: "20 s if the Rust crate dynamodb_lock did"},
	{name: "Rust up to 0.4, data", row: row(item{attrLease: text("20"), attrData: text("d")}), refused: "data is a string (S)"},
	{name: "Rust up to 0.4, released", row: row(item{attrLease: text("20"), attrReleased: text("1")}), refused: "dynamodb_lock"},
	{name: "Rust since 2023", row: row(item{attrLease: n("1795165686")}), refused: "a time of the holder's clock"},
	{name: "Rust, not acquirable", row: row(item{"isNonAcquirable": text("1")}), refused: "isNonAcquirable"},
	{name: "no owner", row: row(item{attrOwner: nil}), refused: "it has no ownerName"},
	{name: "no lease", row: row(item{attrLease: nil}), refused: "it has no leaseDuration"},
	{name: "no version", row: row(item{attrVersion: nil}), refused: "it has no recordVersionNumber"},
	{name: "nothing but a key", row: item{}, refused: "it has no recordVersionNumber"},
	{name: "owner of another type", row: row(item{attrOwner: n("1")}), refused: "ownerName is a number (N), not a string (S)"},
	{name: "lease of another type", row: row(item{attrLease: binary("20000")}), refused: "leaseDuration is binary (B)"},
	{name: "version of another type", row: row(item{attrVersion: n("1")}), refused: "recordVersionNumber is a number (N)"},
	{name: "data of another type", row: row(item{attrData: &types.AttributeValueMemberBOOL{Value: true}}), refused: "data is a boolean (BOOL)"},
	{name: "token of another type", row: row(item{attrToken: text("1")}), refused: "fencingToken is a string (S)"},
	{name: "token no whole number", row: row(item{attrToken: n("1.5")}), refused: "fencingToken is 1.5"},
	{name: "isReleased 0", row: row(item{attrReleased: text("0")}), refused: `isReleased is not "1"`},
	{name: "isReleased true", row: row(item{attrReleased: &types.AttributeValueMemberBOOL{Value: true}}), refused: "isReleased is a boolean"},
	{name: "isReleased number", row: row(item{attrReleased: n("1")}), refused: "isReleased is a number"},
	{name: "lease of 0", row: row(item{attrLease: text("0")}), refused: "a lease must be longer than 0"},
	{name: "lease of 0s", row: row(item{attrLease: text("0s")}), refused: "a lease must be longer than 0"},
	{name: "lease negative", row: row(item{attrLease: text("-20s")}), refused: "a lease must be longer than 0"},
	{name: "lease negative in milliseconds", row: row(item{attrLease: text("-20000")}), refused: "neither milliseconds"},
	{name: "lease empty", row: row(item{attrLease: text("")}), refused: "leaseDuration is empty"},
	{name: "lease a word", row: row(item{attrLease: text("soon")}), refused: "neither milliseconds"},
	{name: "lease beyond all", row: row(item{attrLease: text("99999999999999999999")}), refused: "is too long"},
	{name: "lease of a session", row: row(item{attrLease: text(leaseResting)}), refused: "in another attribute, which is missing"},
}

func TestForeignRows(t *testing.T) {
	enginetest.EachDynamoDB(t, func(t *testing.T, e enginetest.DynamoDB) {
		table := newTable(t, e, nil)
		for _, shared := range []bool{false, true} {
			if shared && e.NoTransactions {
				continue // refused as a whole: see TestSharedNeedsTransactions
			}
			store := open(t, e.URL, table, &Options{SharedTable: shared})
			for _, tc := range foreignRows {
				name := tc.name
				if shared {
					name += ", shared"
				}
				t.Run(name, func(t *testing.T) {
					it := maps.Clone(tc.row)
					it["key"] = text(name)
					plantItem(t, e.URL, table, it)
					rec, err := store.Get(t.Context(), name, driver.Strong)
					if tc.refused != "" {
						if !errors.Is(err, driver.ErrUnreadable) || !strings.Contains(err.Error(), tc.refused) {
							t.Errorf("Get: %v; want ErrUnreadable with %q", err, tc.refused)
						}
					} else if err != nil {
						t.Fatal(err)
					} else {
						wantForeign(t, rec, it, tc.lease, tc.free)
					}
					if tc.refused == "" {
						wantRefused(t, store, rec, shared)
					} else if _, _, err := store.Claim(t.Context(), held(name)); !errors.Is(err, driver.ErrUnreadable) || !errors.Is(err, driver.ErrNotApplied) {
						// A client that cannot read it knows no version to take it over from.
						t.Errorf("Claim: %v; want ErrUnreadable, not applied", err)
					}
					if left := readItem(t, e.URL, table, item{"key": text(name)}); tc.refused != "" || !shared {
						if !reflect.DeepEqual(left, it) {
							t.Errorf("the row changed:\n%v\nto\n%v", it, left)
						}
					}
				})
			}
		}
	})
}

// wantForeign fails the test unless rec is the record of a foreign row.
func wantForeign(t *testing.T, rec driver.Record, it item, lease time.Duration, free bool) {
	t.Helper()
	floor := uint64(0)
	if _, known := it[attrToken]; known {
		floor = 7
	}
	want := driver.Record{
		Key: rec.Key, Version: it[attrVersion].(*types.AttributeValueMemberS).Value,
		Owner: "java-1", Token: floor + 1, Lease: lease, State: driver.Held,
	}
	if free {
		want.State = driver.Released
	}
	if data, ok := it[attrData].(*types.AttributeValueMemberB); ok {
		want.Data = data.Value
	}
	if !reflect.DeepEqual(rec, want) {
		t.Errorf("Get: %+v\nwant %+v", rec, want)
	}
}

// wantRefused tries to take a lock, and fails the test if that succeeds.
func wantRefused(t *testing.T, store *Store, rec driver.Record, may bool) {
	t.Helper()
	next := held(rec.Key)
	now, _, err := store.Claim(t.Context(), next)
	if may && rec.State == driver.Released {
		if err != nil || now.Token != rec.Token+1 || !bytes.Equal(now.Data, rec.Data) {
			t.Errorf("Claim of the free lock: %+v, %v", now, err)
		}
		return
	}
	conflict := (*driver.ConflictError)(nil)
	if err == nil || !errors.As(err, &conflict) && !errors.Is(err, driver.ErrNotApplied) {
		t.Errorf("Claim: %v; want a refusal", err)
	}
	taken := next
	taken.Version, taken.Token, taken.Data, taken.Prev = "taken", rec.Token+1, rec.Data, rec.Term(driver.EndExpired)
	_, err = store.Swap(t.Context(), rec, taken)
	switch {
	case may && err != nil:
		t.Errorf("takeover: %v", err)
	case may:
		if stored, err := store.Get(t.Context(), rec.Key, driver.Strong); err != nil || stored.Token != rec.Token+1 || !bytes.Equal(stored.Data, rec.Data) {
			t.Errorf("after the takeover: %v, token %d; want %d", err, stored.Token, rec.Token+1)
		}
	case err == nil || !errors.Is(err, driver.ErrNotApplied) && !errors.As(err, &conflict):
		t.Errorf("takeover: %v; want a refusal", err)
	}
	if may {
		return
	}
	if err := store.Delete(t.Context(), rec); err == nil {
		t.Error("Delete succeeded, and would have lost the row")
	}
}

// TestOursGoesNotOverTheirs: another client has overwritten a lock, and restored attributes
// that it had read, as dynamolock does. Our heartbeat and our deletion are refused.
func TestOursGoesNotOverTheirs(t *testing.T) {
	enginetest.EachDynamoDB(t, func(t *testing.T, e enginetest.DynamoDB) {
		table := newTable(t, e, nil)
		store := open(t, e.URL, table, nil)
		ours := enginetest.Claim(t, store, held("k"))
		theirs := readItem(t, e.URL, table, item{"key": text("k")})
		maps.Copy(theirs, item{attrOwner: text("dynamolock-1"), attrVersion: text("theirs"), attrLease: text("20s")})
		plantItem(t, e.URL, table, theirs)
		next := ours.Clone()
		next.Version, next.Beat = "late", "late"
		_, swapped := store.Swap(t.Context(), ours, next)
		for what, err := range map[string]error{"heartbeat": swapped, "deletion": store.Delete(t.Context(), ours)} {
			if conflict := (*driver.ConflictError)(nil); !errors.As(err, &conflict) || conflict.Current.Owner != "dynamolock-1" {
				t.Errorf("%s: %v; want a conflict with theirs", what, err)
			}
		}
	})
}

// TestForeignOwnerWithZero: a lock whose holder has a name that no record of ours may
// have is taken over like any other, and remembers its holder.
func TestForeignOwnerWithZero(t *testing.T) {
	e := enginetest.FullDynamoDB(t)
	table := newTable(t, e, nil)
	store := open(t, e.URL, table, &Options{SharedTable: true})
	it := row(item{attrOwner: text("java\x00-1")})
	it["key"] = text("k")
	plantItem(t, e.URL, table, it)
	rec, err := store.Get(t.Context(), "k", driver.Strong)
	if err != nil || rec.Owner != "java\ufffd-1" {
		t.Fatalf("the owner is %q, %v", rec.Owner, err)
	}
	next := held("k")
	next.Token, next.Prev = rec.Token+1, rec.Term(driver.EndExpired)
	now, err := store.Swap(t.Context(), rec, next)
	if err != nil || now.Prev == nil || now.Prev.Owner != rec.Owner {
		t.Errorf("the takeover stores %+v, %v", now, err)
	}
}

// TestOthersKeepTheirAttributes checks that what another client put into a row
// survives all that Tenure does with it.
func TestOthersKeepTheirAttributes(t *testing.T) {
	enginetest.EachDynamoDB(t, func(t *testing.T, e enginetest.DynamoDB) {
		table := newTable(t, e, &TableOptions{SortKey: "part"})
		options := &Options{SortKey: "part", SortValue: "p1"}
		store := open(t, e.URL, table, options)
		key := item{"key": text("k"), "part": text("p1")}
		rec := enginetest.Claim(t, store, driver.Record{Key: "k", Version: "v1", Beat: "v1", Owner: "us", Lease: time.Minute, State: driver.Held, Data: []byte("d")})
		it := readItem(t, e.URL, table, key)
		others := item{"host": n("5"), "list": &types.AttributeValueMemberL{Value: []types.AttributeValue{text("a")}}}
		maps.Copy(it, others)
		plantItem(t, e.URL, table, it)
		steps := []func(next *driver.Record){
			func(next *driver.Record) { next.Beat = "b2" },
			func(next *driver.Record) { next.Requests = []driver.Request{{ID: "r", Kind: driver.StepDown}} },
			func(next *driver.Record) {
				next.State, next.Requests, next.End = driver.Released, nil, driver.EndReleased
			},
			func(next *driver.Record) { next.State, next.Token, next.End = driver.Held, next.Token+1, "" },
			func(next *driver.Record) { next.State, next.Owner = driver.Reserved, "" },
		}
		for i, step := range steps {
			next := rec.Clone()
			next.Version = "v1" + strings.Repeat("x", i+1)
			step(&next)
			rec = enginetest.Swap(t, store, rec, next)
			it := readItem(t, e.URL, table, key)
			for name, value := range others {
				if !reflect.DeepEqual(it[name], value) {
					t.Errorf("after step %d %s is %v, want %v", i, name, it[name], value)
				}
			}
			if !reflect.DeepEqual(it[attrData], binary("d")) {
				t.Errorf("after step %d the data are %v", i, it[attrData])
			}
		}
	})
}

// TestDialects checks what other clients read.
func TestDialects(t *testing.T) {
	held := driver.Record{Lease: 1500 * time.Millisecond, State: driver.Held}
	long := driver.Record{Lease: 90 * time.Second, State: driver.Held}
	odd := driver.Record{Lease: 1234567891, State: driver.Released}
	resting := driver.Record{Lease: time.Second, State: driver.Reserved}
	later := driver.Record{Lease: time.Second, State: "hibernating"}
	past := driver.Record{Lease: 20 * time.Second, State: driver.Past}
	under := driver.Record{Lease: 20 * time.Second, State: driver.Held, Session: "s1"}
	alive := driver.Record{Lease: 20 * time.Second, State: driver.Alive}
	closed := driver.Record{Lease: 20 * time.Second, State: driver.Closed}
	for _, tc := range []struct {
		dialect Dialect
		rec     driver.Record
		want    string
	}{
		{Java, held, "1500"},
		{Java, long, "90000"},
		{Java, odd, "1235"},     // never shorter
		{Java, resting, "1000"}, // others take it as we do, when its time is over
		{Java, later, "session"},
		{Java, past, "20000"},
		{Java, under, "session"},
		{Java, alive, "session"},
		{Java, closed, "session"},
		{Dynamolock, held, "1.5s"},
		{Dynamolock, long, "1m30s"},
		{Dynamolock, odd, "1.234567891s"},
		{Dynamolock, resting, "1s"},
		{Dynamolock, later, "session"},
		{Dynamolock, past, "20s"},
		{Dynamolock, under, "session"},
		{Dynamolock, alive, "session"},
		{Dynamolock, closed, "session"},
	} {
		o := Options{Dialect: tc.dialect}
		if got := o.leaseText(tc.rec); got != tc.want {
			t.Errorf("%v writes a lease of %v, %s, as %q, want %q", tc.dialect, tc.rec.Lease, tc.rec.State, got, tc.want)
		}
	}
}

func TestSharedNeedsTransactions(t *testing.T) {
	enginetest.EachDynamoDB(t, func(t *testing.T, e enginetest.DynamoDB) {
		store := open(t, e.URL, newTable(t, e, nil), &Options{SharedTable: true})
		_, _, err := store.Claim(t.Context(), held("k"))
		if !e.NoTransactions {
			if err != nil {
				t.Error(err)
			}
			return
		}
		if !errors.Is(err, driver.ErrNotApplied) || !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "SharedTable needs TransactWriteItems") {
			t.Errorf("Claim: %v; want a permanent refusal that says why", err)
		}
	})
}

// TestSharedTokenRises has another client wipe the token, bring an old one back
// and delete the row between our terms.
func TestSharedTokenRises(t *testing.T) {
	e := enginetest.FullDynamoDB(t)
	table := newTable(t, e, nil)
	store := open(t, e.URL, table, &Options{SharedTable: true})
	last := uint64(0)
	for i, foreign := range []item{
		nil,
		row(item{attrReleased: text("1")}),
		row(item{attrReleased: text("1"), attrStamp: text("x"), attrToken: n("1")}),
		row(nil), // dies while it holds the lock
	} {
		key := item{"key": text("k")}
		if foreign != nil {
			it := maps.Clone(foreign)
			it["key"] = text("k")
			plantItem(t, e.URL, table, it)
		} else if i > 0 {
			deleteItem(t, e.URL, table, key)
		}
		next := driver.Record{Key: "k", Version: "v" + strings.Repeat("x", i), Beat: "b", Owner: "us", Lease: time.Second, State: driver.Held}
		now, _, err := store.Claim(t.Context(), next)
		if conflict := (*driver.ConflictError)(nil); errors.As(err, &conflict) {
			next.Token = conflict.Current.Token + 1
			now, err = store.Swap(t.Context(), conflict.Current, next)
		}
		if err != nil {
			t.Fatal(err)
		}
		if now.Token <= last {
			t.Errorf("term %d has token %d after %d", i, now.Token, last)
		}
		last = now.Token
	}
	deleteItem(t, e.URL, table, item{"key": text("k")})
	now, _, err := store.Claim(t.Context(), held("k"))
	if err != nil || now.Token <= last {
		t.Errorf("after the row was deleted: token %d after %d, %v", now.Token, last, err)
	}
}
