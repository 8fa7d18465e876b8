// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestAttributesOfTheUser: set at each grant, kept by each other write.
func TestAttributesOfTheUser(t *testing.T) {
	enginetest.EachDynamoDB(t, func(t *testing.T, e enginetest.DynamoDB) {
		for _, options := range []Options{{}, {Dialect: Dynamolock}, {SharedTable: true}, {SharedTable: true, Dialect: Dynamolock}} {
			if options.SharedTable && e.NoTransactions {
				continue
			}
			table := newTable(t, e, nil)
			var asked atomic.Int32
			options.Attributes = func(rec driver.Record) map[string]types.AttributeValue {
				asked.Add(1)
				if rec.Token != 0 || rec.Prev != nil {
					t.Errorf("it is shown %+v", rec)
				}
				if strings.HasPrefix(rec.Key, driver.OwnPrefix) {
					t.Errorf("it is asked for %q", rec.Key)
				}
				if rec.Owner == "third" {
					return nil
				}
				return map[string]types.AttributeValue{"team": text(rec.Owner), "size": n("12"), "data2": &types.AttributeValueMemberM{Value: item{"x": n("1")}}}
			}
			store := open(t, e.URL, table, &options)
			want := func(owner, when string) {
				t.Helper()
				it := readItem(t, e.URL, table, item{"key": text("k")})
				if textOf(it, "team") != owner || !reflect.DeepEqual(it["size"], n("12")) {
					t.Errorf("%+v: %s: %v", options.Dialect, when, it)
				}
			}
			step := func(rec driver.Record, change func(*driver.Record)) driver.Record {
				t.Helper()
				next := rec.Clone()
				next.Version = held("").Version
				next.Beat = next.Version
				change(&next)
				return enginetest.Swap(t, store, rec, next)
			}
			take := held("k")
			take.Owner = "first"
			rec := enginetest.Claim(t, store, take)
			want("first", "claimed")
			rec = step(rec, func(*driver.Record) {})
			want("first", "after a heartbeat")
			rec = step(rec, func(r *driver.Record) { r.Owner, r.Token = "second", r.Token+1 })
			want("second", "taken over")
			step(rec, func(r *driver.Record) { r.State, r.End = driver.Released, driver.EndReleased })
			want("second", "released")
			take = held("k")
			take.Owner = "third"
			if rec := enginetest.Claim(t, store, take); rec.Token != 3 {
				t.Fatalf("%+v", rec)
			}
			want("second", "claimed by somebody who wants none")
			if n := asked.Load(); n != 3 {
				t.Errorf("it was asked %d times, want once for each of 3 grants", n)
			}
			past := held(driver.OwnPrefix + "history/k/1")
			past.State = driver.Past
			if _, _, err := store.Claim(t.Context(), past); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestAttributesThatAreOurs are refused before anything is sent.
func TestAttributesThatAreOurs(t *testing.T) {
	names := append(ownNames(), "", "part", "pk", "tenureLater", "isNonAcquirable", "nil")
	enginetest.EachDynamoDB(t, func(t *testing.T, e enginetest.DynamoDB) {
		table := newTable(t, e, &TableOptions{PartitionKey: "pk", SortKey: "part"})
		for _, name := range names {
			options := Options{PartitionKey: "pk", SortKey: "part", SortValue: "p", Attributes: func(driver.Record) map[string]types.AttributeValue {
				if name == "nil" {
					return map[string]types.AttributeValue{"team": nil}
				}
				return map[string]types.AttributeValue{"team": text("x"), name: text("x")}
			}}
			store := open(t, e.URL, table, &options)
			if _, _, err := store.Claim(t.Context(), held("k")); !errors.Is(err, driver.ErrPermanent) || !errors.Is(err, driver.ErrNotApplied) || !strings.Contains(err.Error(), "Options.Attributes") {
				t.Errorf("attribute %q: %v", name, err)
			}
		}
		if it := readItem(t, e.URL, table, item{"pk": text("k"), "part": text("p")}); it != nil {
			t.Errorf("an item was written: %v", it)
		}
	})
}

func TestWithSortValue(t *testing.T) {
	enginetest.EachDynamoDB(t, func(t *testing.T, e enginetest.DynamoDB) {
		table := newTable(t, e, &TableOptions{SortKey: "part"})
		one := open(t, e.URL, table, &Options{SortKey: "part", SortValue: "1", Dialect: Dynamolock})
		two, err := one.WithSortValue("2")
		if err != nil {
			t.Fatal(err)
		}
		three, err := two.WithSortValue("3")
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range []*Store{one, two, three} {
			rec := held("k")
			rec.Owner = "owner " + s.options.SortValue
			if now, _, err := s.Claim(t.Context(), rec); err != nil || now.Token != 1 {
				t.Errorf("claim %d: %+v, %v", i, now, err)
			}
			it := readItem(t, e.URL, table, item{"key": text("k"), "part": text(s.options.SortValue)})
			if textOf(it, attrOwner) != rec.Owner || textOf(it, attrLease) != "1s" {
				t.Errorf("view %d wrote %v", i, it)
			}
			if s.connections != one.connections || s.client != one.client {
				t.Errorf("view %d has connections of its own", i)
			}
		}
		get := func(s *Store) error {
			_, err := s.Get(t.Context(), "k", driver.Strong)
			return err
		}
		if err := two.Close(); err != nil || !errors.Is(get(two), driver.ErrClosed) || get(one) != nil || get(three) != nil {
			t.Errorf("after the close of a view: %v, %v, %v, %v", err, get(two), get(one), get(three))
		}
		if err := one.Close(); err != nil || !errors.Is(get(one), driver.ErrClosed) || !errors.Is(get(three), driver.ErrClosed) {
			t.Errorf("after the close of the store: %v, %v, %v", err, get(one), get(three))
		}
		for value, s := range map[string]*Store{"": one, strings.Repeat("x", 1025): one, "v": open(t, e.URL, table, nil)} {
			if view, err := s.WithSortValue(value); err == nil || view != nil || !strings.Contains(err.Error(), "another sort value") {
				t.Errorf("value of %d bytes: %v, %v", len(value), view, err)
			}
		}
	})
}
