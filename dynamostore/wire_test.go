// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// site is a table, and the way to it through a wire that counts.
type site struct {
	t     *testing.T
	wire  *enginetest.Wire
	table string
}

func newSite(t *testing.T, e enginetest.DynamoDB) *site {
	t.Helper()
	return &site{t: t, wire: enginetest.NewWire(t, e), table: newTable(t, e, nil)}
}

// client returns a client whose requests go over the wire.
func (s *site) client(o tenure.Options, d *Options) *tenure.Client {
	s.t.Helper()
	return newClient(s.t, open(s.t, s.wire.URL, s.table, d), o)
}

// newClient returns a client that ends with the test.
func newClient(t *testing.T, store *Store, o tenure.Options) *tenure.Client {
	t.Helper()
	c, err := tenure.New(store, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer stop()
		if err := c.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// wantRequests fails the test unless exactly these were made since the last
// look, as in "GetItem 1, UpdateItem 2".
func (s *site) wantRequests(what, want string) {
	s.t.Helper()
	if got := tell(s.wire.Counts()); got != want {
		s.t.Errorf("%s made the requests %q, want %q", what, got, want)
	}
}

func tell(counts map[string]int) string {
	var all []string
	for _, operation := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%s %d", operation, counts[operation]))
	}
	return strings.Join(all, ", ")
}

// calm is a client whose heartbeats do not come by themselves during a test.
func calm(owner string) tenure.Options {
	return tenure.Options{Owner: owner, LeaseDuration: 10 * time.Minute, ManualHeartbeat: true}
}

func TestRequestsOfEachStep(t *testing.T) {
	enginetest.EachDynamoDB(t, func(t *testing.T, e enginetest.DynamoDB) {
		s := newSite(t, e)
		a, b := s.client(calm("a"), nil), s.client(calm("b"), nil)
		ctx := t.Context()

		lease, err := a.Acquire(ctx, "reports", nil)
		if err != nil {
			t.Fatal(err)
		}
		s.wantRequests("taking a free lock", "UpdateItem 1")

		if err := lease.Renew(ctx); err != nil {
			t.Fatal(err)
		}
		s.wantRequests("a heartbeat", "UpdateItem 1")

		if err := lease.SetData(ctx, []byte("checkpoint")); err != nil {
			t.Fatal(err)
		}
		s.wantRequests("writing data", "UpdateItem 1")

		_, err = b.TryAcquire(ctx, "reports", nil)
		held := (*tenure.HeldError)(nil)
		if !errors.As(err, &held) || held.Owner != "a" || held.Token != lease.Token() {
			t.Fatalf("the first try for a held lock: %v", err)
		}
		s.wantRequests("the first try for a held lock", "GetItem 1")

		free, err := b.TryAcquire(ctx, "free", nil)
		if err != nil {
			t.Fatal(err)
		}
		s.wantRequests("the first try for a free lock", "GetItem 1, UpdateItem 1")
		if err := free.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if free, err = b.TryAcquire(ctx, "free", nil); err != nil {
			t.Fatal(err)
		}
		s.wantRequests("a release, and a try for what was seen free", "UpdateItem 2")
		if err := free.Release(ctx); err != nil {
			t.Fatal(err)
		}
		s.wire.Counts()

		store := open(t, s.wire.URL, s.table, nil)
		conflict := (*driver.ConflictError)(nil)
		claim := driver.Record{Key: "reports", Version: "v", Beat: "v", Owner: "c", Lease: time.Minute, State: driver.Held}
		if _, _, err = store.Claim(ctx, claim); !errors.As(err, &conflict) || conflict.Current.Owner != "a" {
			t.Fatalf("claiming a held lock: %v", err)
		}
		if e.NoOldOnFailure {
			s.wantRequests("claiming a held lock, without ALL_OLD", "GetItem 1, UpdateItem 1")
		} else {
			s.wantRequests("claiming a held lock", "UpdateItem 1")
		}

		if err := lease.Release(ctx); err != nil {
			t.Fatal(err)
		}
		s.wantRequests("a release", "UpdateItem 1")

		again, err := b.TryAcquire(ctx, "reports", nil)
		if err != nil {
			t.Fatal(err)
		}
		previous, ok := again.Previous()
		if again.Token() != lease.Token()+1 || !ok || previous.Owner != "a" || previous.End != tenure.EndReleased || string(previous.Data) != "checkpoint" {
			t.Errorf("the next holder has token %d after %d, and sees the previous tenure as %+v", again.Token(), lease.Token(), previous)
		}
		s.wantRequests("taking a lock that was seen held, and is released", "GetItem 1, UpdateItem 1")
		if err := again.Release(ctx); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRequestsOfASharedTable(t *testing.T) {
	e := enginetest.FullDynamoDB(t)
	s := newSite(t, e)
	c := s.client(calm("a"), &Options{SharedTable: true})
	for i := range 2 {
		lease, err := c.Acquire(t.Context(), "reports", nil)
		if err != nil {
			t.Fatal(err)
		}
		s.wantRequests("taking a free lock", "BatchGetItem 1, TransactWriteItems 1")
		if err := lease.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.wantRequests("a heartbeat", "UpdateItem 1")
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.wantRequests("a release", "UpdateItem 1")
		if lease.Token() != uint64(i+1) {
			t.Errorf("token %d of tenure %d", lease.Token(), i+1)
		}
	}
}
