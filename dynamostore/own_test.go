// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// ownRow returns Tenure's item of a free or held lock, with some attributes
// changed; nil removes one.
func ownRow(t *testing.T, free bool, changes item) item {
	t.Helper()
	rec := held("k")
	if free {
		rec.State, rec.End = driver.Released, driver.EndReleased
	}
	return changed(t, rec, changes)
}

func changed(t *testing.T, rec driver.Record, changes item) item {
	t.Helper()
	o, err := (*Options)(nil).resolve()
	if err != nil {
		t.Fatal(err)
	}
	rec.Token = 7
	it := o.encode(rec)
	it[attrToken] = number(rec.Token)
	maps.Copy(it, changes)
	maps.DeleteFunc(it, func(_ string, v types.AttributeValue) bool { return v == nil })
	return it
}

// TestDamagedRows has rows of Tenure that were changed by hand, or written by
// a later version: none of them is free.
func TestDamagedRows(t *testing.T) {
	resting := func(changes item, change func(more *driver.Record)) item {
		it := changed(t, under("k", "s1"), changes)
		if change != nil {
			more, err := recordcodec.DecodePart(textOf(it, attrTenure))
			if err != nil {
				t.Fatal(err)
			}
			change(&more)
			it[attrTenure] = text(recordcodec.Encode(more))
		}
		return it
	}
	enginetest.EachDynamoDB(t, func(t *testing.T, e enginetest.DynamoDB) {
		table := newTable(t, e, nil)
		for i, tc := range []struct {
			name    string
			row     item
			refused string // "": it is understood, and not free
		}{
			{"no token", ownRow(t, false, item{attrToken: nil}), "it has no fencingToken"},
			{"no token, released", ownRow(t, true, item{attrToken: nil}), "it has no fencingToken"},
			{"token 0", ownRow(t, false, item{attrToken: n("0")}), "it has no fencingToken"},
			{"token beyond all", ownRow(t, true, item{attrToken: n("9223372036854775808")}), "fencingToken is 9223372036854775808"},
			{"no text", ownRow(t, true, item{attrTenure: nil}), "it has no tenure"},
			{"text a number", ownRow(t, true, item{attrTenure: n("1")}), "tenure is a number (N)"},
			{"no JSON, held", ownRow(t, false, item{attrTenure: text("x")}), "it is not a JSON object"},
			{"lease of nothing", ownRow(t, false, item{attrTenure: text(`{"lease":"0s"}`)}), `lease is "0s"`},
			{"tenure before a map", ownRow(t, false, item{attrBefore: &types.AttributeValueMemberM{Value: item{}}}), "tenureBefore is a map (M)"},
			{"tenure before no JSON", ownRow(t, false, item{attrBefore: text("[]")}), "tenureBefore: record unreadable: it is not a JSON object"},
			{"released, state unknown", ownRow(t, true, item{attrState: text("hibernating")}), ""},
			{"state alone", ownRow(t, false, item{attrState: text("released")}), "isReleased was removed by hand"},
			{"lease a number", ownRow(t, true, item{attrLease: n("20000")}), "leaseDuration is a number (N)"},
			{"no lease", ownRow(t, true, item{attrLease: nil}), "it has no leaseDuration"},
			{"owner a number", ownRow(t, true, item{attrOwner: n("1")}), "ownerName is a number (N)"},
			{"no owner", ownRow(t, true, item{attrOwner: nil}), "it has no ownerName"},
			{"data a string", ownRow(t, true, item{attrData: text("d")}), "data is a string (S)"},
			{"freed by hand", ownRow(t, false, item{attrReleased: text("1")}), `isReleased was set by hand: remove it, and free the lock with "tenure release"`},
			{"requests a string", ownRow(t, false, item{attrTenure: text(`{"requests":"x"}`)}), "requests is not a list"},
			// A lock under a session is free only after the session's death. So a row that no
			// longer names the session must not be taken.
			{"under a session", resting(nil, nil), ""},
			{"no session", resting(nil, func(more *driver.Record) { more.Session = "" }), "it has no tenure.session"},
			{"session a number", resting(item{attrTenure: text(`{"lease":"1s","session":1}`)}, nil), "session is not a string"},
			{"no state", resting(item{attrState: nil}, nil), `tenureState is not "resting"`},
			{"state reserved", resting(item{attrState: text("reserved")}, nil), `tenureState is not "resting"`},
			{"no exact lease", resting(nil, func(more *driver.Record) { more.Lease = 0 }), "in another attribute, which is missing"},
			{"under a session, freed by hand", resting(item{attrReleased: text("1")}, nil), "was set by hand"},
			{"lease raised by hand", resting(item{attrLease: text("60000")}, nil), ""},
			{"session freed by hand", changed(t, session("s1"), item{attrReleased: text("1")}), ""},
		} {
			t.Run(tc.name, func(t *testing.T) {
				key := fmt.Sprint("k", i)
				tc.row["key"] = text(key)
				plantItem(t, e.URL, table, tc.row)
				store := open(t, e.URL, table, nil)
				rec, err := store.Get(t.Context(), key, driver.Strong)
				if tc.refused != "" && (!errors.Is(err, driver.ErrUnreadable) || !strings.Contains(err.Error(), tc.refused)) {
					t.Errorf("Get: %+v, %v; want ErrUnreadable with %q", rec, err, tc.refused)
				}
				_, _, err = store.Claim(t.Context(), held(key))
				conflict := (*driver.ConflictError)(nil)
				if tc.refused == "" && !errors.As(err, &conflict) || tc.refused != "" && !(errors.Is(err, driver.ErrUnreadable) && errors.Is(err, driver.ErrNotApplied)) {
					t.Errorf("Claim: %v", err)
				}
				if left := readItem(t, e.URL, table, item{"key": text(key)}); !reflect.DeepEqual(left, tc.row) {
					t.Errorf("the row changed:\n%v\nto\n%v", tc.row, left)
				}
			})
		}
	})
}

// TestLeaseRaisedByHand: of two leases the longer one counts.
func TestLeaseRaisedByHand(t *testing.T) {
	o := Options{PartitionKey: "key"}
	rec := held("k")
	rec.Token, rec.Lease = 1, 1500*time.Microsecond // which Java's dialect cannot hold
	it := o.encode(rec)
	it["key"], it[attrToken] = text("k"), number(1)
	for lease, want := range map[string]time.Duration{"2": rec.Lease, "600000": 10 * time.Minute, "1": rec.Lease} {
		it[attrLease] = text(lease)
		if got, _, err := o.decode(it); err != nil || got.Lease != want {
			t.Errorf("with leaseDuration %q the lease is %v, %v; want %v", lease, got.Lease, err, want)
		}
	}
}

// TestSharedTokenIsNeverGivenTwice has a claim based on an old state: meanwhile
// the lock was granted to another, and the other client deleted the row.
func TestSharedTokenIsNeverGivenTwice(t *testing.T) {
	e := enginetest.FullDynamoDB(t)
	table := newTable(t, e, nil)
	store := open(t, e.URL, table, &Options{SharedTable: true})
	late := held("k")
	late.Token = 1
	stale := store.options.replace(late, false)
	stale.condition = isAbsent
	enginetest.Claim(t, store, held("k"))
	deleteItem(t, e.URL, table, item{"key": text("k")})
	if _, failed := conditionFailed(store.writeBoth(t.Context(), late, stale)); !failed {
		t.Error("token 1 was given a second time")
	}
	now, _, err := store.Claim(t.Context(), held("k"))
	if err != nil || now.Token != 2 {
		t.Errorf("the next claim: token %d, %v; want 2", now.Token, err)
	}
}

// TestSharedDeleteKeepsTheToken: an item that was written before the table was
// shared has its token in no other place. If a higher token is stored beside it,
// that one stays.
func TestSharedDeleteKeepsTheToken(t *testing.T) {
	e := enginetest.FullDynamoDB(t)
	table := newTable(t, e, nil)
	own, shared := open(t, e.URL, table, nil), open(t, e.URL, table, &Options{SharedTable: true})
	if own.SharesLocks() || !shared.SharesLocks() {
		t.Errorf("shares locks: %v, and with SharedTable %v", own.SharesLocks(), shared.SharesLocks())
	}
	if own.KeepsTokens() || !shared.KeepsTokens() {
		t.Error("a store says that it keeps tokens where it does not, or the other way round")
	}
	var rec driver.Record
	for i := range 3 {
		next := held("k")
		next.Token = rec.Token + 1
		var err error
		if i == 0 {
			rec, _, err = own.Claim(t.Context(), next)
		} else {
			rec, err = own.Swap(t.Context(), rec, next)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []uint64{4, 5} {
		if err := shared.Delete(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		if err := shared.Delete(t.Context(), rec); err != nil {
			t.Errorf("again: %v", err)
		}
		var err error
		if rec, _, err = shared.Claim(t.Context(), held("k")); err != nil || rec.Token != want {
			t.Errorf("after a deletion the token is %d, %v; want %d", rec.Token, err, want)
		}
	}
	beside := readItem(t, e.URL, table, item{"key": text(tokenPrefix + "k")})
	beside[attrToken] = n("9")
	plantItem(t, e.URL, table, beside)
	if err := shared.Delete(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	if rec, _, err := shared.Claim(t.Context(), held("k")); err != nil || rec.Token != 10 {
		t.Errorf("with token 9 beside the next one is %d, %v; want 10", rec.Token, err)
	}
}

// TestSharedByOneAndNotByAnother: a process without SharedTable takes nothing, in
// both dialects, until Unshare is set.
func TestSharedByOneAndNotByAnother(t *testing.T) {
	e := enginetest.FullDynamoDB(t)
	for _, dialect := range []Dialect{Java, Dynamolock} {
		t.Run(dialect.String(), func(t *testing.T) {
			table := newTable(t, e, nil)
			with := open(t, e.URL, table, &Options{SharedTable: true, Dialect: dialect})
			without := open(t, e.URL, table, &Options{Dialect: dialect})
			unshared := open(t, e.URL, table, &Options{Dialect: dialect, Unshare: true})
			release := func(s *Store, rec driver.Record) driver.Record {
				t.Helper()
				next := rec.Clone()
				next.Version, next.State, next.End = held("k").Version, driver.Released, driver.EndReleased
				return enginetest.Swap(t, s, rec, next)
			}
			refused := func(what string, err error) {
				t.Helper()
				if !errors.Is(err, driver.ErrPermanent) || !errors.Is(err, driver.ErrNotApplied) || !strings.Contains(err.Error(), "this process does not set it: set SharedTable") {
					t.Errorf("%s without SharedTable: %v", what, err)
				}
			}
			rec := enginetest.Claim(t, with, held("k"))
			_, _, err := without.Claim(t.Context(), held("k"))
			if conflict := (*driver.ConflictError)(nil); !errors.As(err, &conflict) {
				t.Errorf("a claim of what is held: %v, want a conflict", err)
			}
			taken := held("k")
			taken.Token, taken.Prev = rec.Token+1, rec.Term(driver.EndExpired)
			_, err = without.Swap(t.Context(), rec, taken)
			refused("a takeover", err)
			rec = release(with, rec)
			_, _, err = without.Claim(t.Context(), held("k"))
			refused("a claim", err)

			if rec, _, err = unshared.Claim(t.Context(), held("k")); err != nil || rec.Token != 2 {
				t.Fatalf("a claim that ends the sharing: token %d, %v", rec.Token, err)
			}
			release(unshared, rec)
			if rec, _, err = without.Claim(t.Context(), held("k")); err != nil || rec.Token != 3 {
				t.Fatalf("a claim after that: token %d, %v", rec.Token, err)
			}
			// The other way round: a process with SharedTable continues from the higher
			// of both tokens, and from then on the other process is refused.
			release(without, rec)
			if rec, _, err = with.Claim(t.Context(), held("k")); err != nil || rec.Token != 4 {
				t.Fatalf("a claim with SharedTable again: token %d, %v", rec.Token, err)
			}
			release(with, rec)
			_, _, err = without.Claim(t.Context(), held("k"))
			refused("a claim after that", err)
		})
	}
}

// TestSharedRestoredInPart says what to do where no takeover can succeed.
func TestSharedRestoredInPart(t *testing.T) {
	e := enginetest.FullDynamoDB(t)
	table := newTable(t, e, nil)
	store := open(t, e.URL, table, &Options{SharedTable: true})
	now := enginetest.Claim(t, store, held("k"))
	beside := readItem(t, e.URL, table, item{"key": text(tokenPrefix + "k")})
	beside[attrToken] = n("5")
	plantItem(t, e.URL, table, beside)
	taken := held("k")
	taken.Token = now.Token + 1
	_, err := store.Swap(t.Context(), now, taken)
	if !errors.Is(err, driver.ErrNotApplied) || !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "set fencingToken of the first to that of the second") {
		t.Errorf("takeover: %v", err)
	}
}

// TestTakeoverOfWhatHasChanged: other clients release, and change the data with that, without
// a new version; they renew; they put back what others have written before.
func TestTakeoverOfWhatHasChanged(t *testing.T) {
	e := enginetest.FullDynamoDB(t)
	table := newTable(t, e, nil)
	store := open(t, e.URL, table, &Options{SharedTable: true})
	for i, meanwhile := range []item{
		{attrReleased: text("1")},
		{attrData: binary("after")},
		{attrReleased: text("1"), attrData: binary("after")},
		{attrData: nil},
		{attrVersion: text("renewed")},
		{attrStamp: text("older"), attrToken: n("9")}, // a higher token than the observed one
	} {
		key := fmt.Sprint("k", i)
		plantItem(t, e.URL, table, row(item{"key": text(key), attrData: binary("before")}))
		seen := enginetest.Get(t, store, key)
		changes := item{"key": text(key), attrData: binary("before")}
		maps.Copy(changes, meanwhile)
		plantItem(t, e.URL, table, row(changes))
		taken := held(key)
		taken.Token, taken.Data = seen.Token+1, seen.Data
		_, err := store.Swap(t.Context(), seen, taken)
		if conflict := (*driver.ConflictError)(nil); !errors.As(err, &conflict) {
			t.Errorf("takeover of what changed under its version, %v: %v; want a conflict", meanwhile, err)
		}
	}
}

// TestListOfASharedTable shows the tokens that Get does.
func TestListOfASharedTable(t *testing.T) {
	e := enginetest.FullDynamoDB(t)
	table := newTable(t, e, nil)
	store := open(t, e.URL, table, &Options{SharedTable: true})
	for range 3 {
		enginetest.Claim(t, store, held("k"))
		deleteItem(t, e.URL, table, item{"key": text("k")})
	}
	plantItem(t, e.URL, table, row(item{"key": text("k")}))
	rec, err := store.Get(t.Context(), "k", driver.Strong)
	if err != nil || rec.Token != 4 {
		t.Fatalf("Get: %+v, %v", rec, err)
	}
	page, err := store.List(t.Context(), "", "")
	if err != nil || len(page.Records) != 1 || !reflect.DeepEqual(page.Records[0], rec) {
		t.Errorf("List: %+v, %v; want %+v", page, err, rec)
	}
}

// sharing returns the store of a program that shares the table with other clients.
func sharing(s *Store) *Store {
	shared := &Store{client: s.client, table: s.table, options: s.options, connections: s.connections}
	shared.options.SharedTable = true
	return shared
}

// readsStrongly says whether a request asks for the newest of what the table "locks" has.
func readsStrongly(t *testing.T, r *http.Request) bool {
	t.Helper()
	var in struct {
		ConsistentRead bool
		RequestItems   map[string]struct{ ConsistentRead bool }
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		t.Error(err)
	}
	return in.ConsistentRead || in.RequestItems["locks"].ConsistentRead
}

// TestReadsOnTheWire checks what no emulator shows: which reads are strong, and
// what becomes of records that DynamoDB leaves out.
func TestReadsOnTheWire(t *testing.T) {
	var strong []bool
	store := answering(t, func(rw http.ResponseWriter, r *http.Request) {
		strong = append(strong, readsStrongly(t, r))
		fmt.Fprint(rw, `{}`)
	})
	shared := sharing(store)
	for _, s := range []*Store{store, shared} {
		for _, c := range []driver.Consistency{driver.Strong, driver.Eventual} {
			strong = nil
			_, getErr := s.Get(t.Context(), "k", c)
			_, batchErr := s.GetBatch(t.Context(), []string{"k", "k"}, c)
			if !errors.Is(getErr, driver.ErrNotFound) || batchErr != nil {
				t.Fatal(getErr, batchErr)
			}
			if want := []bool{c == driver.Strong, c == driver.Strong}; !reflect.DeepEqual(strong, want) {
				t.Errorf("reads with consistency %d are strong: %v, want %v", c, strong, want)
			}
		}
	}
}

// TestConflictIsReadStrongly has an engine that refuses writes without the
// current item, as engines without ALL_OLD do, and answers cheap reads with an
// old item.
func TestConflictIsReadStrongly(t *testing.T) {
	store := answering(t, func(rw http.ResponseWriter, r *http.Request) {
		stands := `{"key":{"S":"k"},"ownerName":{"S":"o"},"leaseDuration":{"S":"20000"},"recordVersionNumber":{"S":"before"}}`
		if readsStrongly(t, r) {
			stands = strings.Replace(stands, "before", "now", 1)
		}
		switch _, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "."); operation {
		case "GetItem":
			fmt.Fprintf(rw, `{"Item":%s}`, stands)
		case "BatchGetItem":
			fmt.Fprintf(rw, `{"Responses":{"locks":[%s]}}`, stands)
		default:
			rw.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(rw, `{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"The conditional request failed"}`)
		}
	})
	shared := sharing(store)
	for _, s := range []*Store{store, shared} {
		for what, err := range writes(t.Context(), s) {
			if conflict := (*driver.ConflictError)(nil); !errors.As(err, &conflict) || conflict.Current.Version != "now" {
				t.Errorf("%s: %v: want a conflict with the version that stands", what, err)
			}
		}
	}
}

func TestBatchLeftOut(t *testing.T) {
	store := answering(t, func(rw http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(rw, `{"Responses":{"locks":[{"key":{"S":"a"},"ownerName":{"S":"o"},"leaseDuration":{"S":"20000"},"recordVersionNumber":{"S":"v"}},`+
			`{"key":{"S":"tenure/token/b"},"fencingToken":{"N":"3"}}]},"UnprocessedKeys":{"locks":{"Keys":[{"key":{"S":"c"}}]}}}`)
	})
	shared := sharing(store)
	for _, tc := range []struct {
		store *Store
		want  string // of a, b and c
	}{{store, "[found left left]"}, {shared, "[left left left]"}} { // the token beside a may be among those left out
		found, err := tc.store.GetBatch(t.Context(), []string{"a", "b", "c"}, driver.Strong)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range found {
			switch {
			case f.Err == nil:
				got = append(got, "found")
			case errors.Is(f.Err, errLeftOut):
				got = append(got, "left")
			default:
				got = append(got, f.Err.Error())
			}
		}
		if fmt.Sprint(got) != tc.want {
			t.Errorf("GetBatch: %v, want %v", got, tc.want)
		}
		if tc.store == shared {
			if _, err := tc.store.Get(t.Context(), "a", driver.Strong); !errors.Is(err, errLeftOut) {
				t.Errorf("Get: %v", err)
			}
		}
	}
}
