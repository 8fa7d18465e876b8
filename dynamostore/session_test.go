// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/once"
)

// under returns a record for a claim under a session.
func under(key, session string) driver.Record {
	rec := held(key)
	rec.Session = session
	return rec
}

func session(id string) driver.Record {
	rec := held(driver.SessionKey(id))
	rec.State = driver.Alive
	return rec
}

// textOf returns a text of an item, "" if it is missing.
func textOf(it item, name string) string {
	s, _ := it[name].(*types.AttributeValueMemberS)
	if s == nil {
		return ""
	}
	return s.Value
}

// TestRestingItems checks the table, in both dialects: a lease that no other
// client can parse, and a state on which no Tenure without sessions acts.
func TestRestingItems(t *testing.T) {
	enginetest.EachDynamoDB(t, func(t *testing.T, e enginetest.DynamoDB) {
		for _, dialect := range []Dialect{Java, Dynamolock} {
			t.Run(dialect.String(), func(t *testing.T) {
				table := newTable(t, e, nil)
				store := open(t, e.URL, table, &Options{Dialect: dialect})
				want := func(what, key, lease, state, session string) {
					t.Helper()
					it := readItem(t, e.URL, table, item{"key": text(key)})
					more, err := recordcodec.DecodePart(textOf(it, attrTenure))
					if err != nil {
						t.Fatal(err)
					}
					exact := time.Duration(0)
					if lease == leaseResting {
						exact = time.Second
					}
					got := []string{more.Lease.String(), textOf(it, attrState), more.Session}
					if !reflect.DeepEqual(it[attrLease], text(lease)) || !slices.Equal(got, []string{exact.String(), state, session}) {
						t.Errorf("%s: leaseDuration %v; lease, state and session %q", what, it[attrLease], got)
					}
					if _, free := it[attrReleased]; free != (state == "released") {
						t.Errorf("%s: it has %s", what, attrReleased)
					}
				}
				plain := map[Dialect]string{Java: "1000", Dynamolock: "1s"}[dialect]
				swap := func(prev, next driver.Record) driver.Record {
					t.Helper()
					next.Version = held("").Version
					return enginetest.Swap(t, store, prev, next)
				}

				alive := enginetest.Claim(t, store, session("s1"))
				want("a session", alive.Key, leaseResting, "alive", "")
				rec := enginetest.Claim(t, store, under("k", "s1"))
				want("a lock under it", "k", leaseResting, stateResting, "s1")
				free := rec.Clone()
				free.State, free.Session, free.End = driver.Released, "", driver.EndReleased
				free = swap(rec, free)
				want("the lock after its release", "k", plain, "released", "")
				taken := under("k", "s2")
				taken.Token, taken.Prev = free.Token+1, free.Term("")
				taken = swap(free, taken)
				want("the lock after a takeover", "k", leaseResting, stateResting, "s2")
				own := held("k")
				own.Token, own.Prev = taken.Token+1, taken.Term(driver.EndExpired)
				swap(taken, own)
				want("the lock after a takeover under none", "k", plain, "", "")
				closed := alive.Clone()
				closed.State = driver.Closed
				swap(alive, closed)
				want("the session after its closing", alive.Key, leaseResting, "closed", "")
			})
		}
	})
}

// TestLedgersInASharedTable are refused, and nothing is written: another client's write
// would leave them out.
func TestLedgersInASharedTable(t *testing.T) {
	enginetest.EachDynamoDB(t, func(t *testing.T, e enginetest.DynamoDB) {
		table := newTable(t, e, nil)
		own, shared := open(t, e.URL, table, nil), open(t, e.URL, table, &Options{SharedTable: true})
		for name, data := range map[string]string{"nightly:once": `{"ledger":"once/1"}`, "nightly:every": `{"ledger":"every/1","id":"x"}`, "any": `{"ledger":"once/1"}`} {
			refused := func(what string, err error) {
				t.Helper()
				if !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, driver.ErrNotApplied) || !strings.Contains(err.Error(), "ledger") {
					t.Errorf("%s of %s: %v", what, name, err)
				}
			}
			ledger := held(name)
			ledger.Data = []byte(data)
			_, _, err := shared.Claim(t.Context(), ledger)
			refused("claim", err)
			if it := readItem(t, e.URL, table, item{"key": text(name)}); len(it) > 0 {
				t.Errorf("written all the same: %v", it)
			}
			rec := enginetest.Claim(t, own, ledger)
			next := rec
			next.Version, next.Beat = "another", "another"
			_, err = shared.Swap(t.Context(), rec, next)
			refused("heartbeat", err)
			next.State, next.Beat, next.Until = driver.Released, "", time.Now()
			if _, err := own.Swap(t.Context(), rec, next); err != nil {
				t.Fatal(err)
			}
			_, _, err = shared.Claim(t.Context(), held(name))
			refused("claim over a ledger", err)
		}
	})
}

// TestNamesInASharedTable allows any name: a lock that is named like a lock of package
// once, but has no ledger, is a lock like any other.
func TestNamesInASharedTable(t *testing.T) {
	e := enginetest.FullDynamoDB(t)
	store := open(t, e.URL, newTable(t, e, nil), &Options{SharedTable: true})
	for name, data := range map[string]string{"backup:once": "", "backup:every": "at 12", "ledger": `{"ledger":"a book"}`} {
		next := held(name)
		next.Data = []byte(data)
		rec := enginetest.Claim(t, store, next)
		next = rec
		next.Version, next.Beat = "another", "another"
		if _, err := store.Swap(t.Context(), rec, next); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOnceInASharedTable is refused before its work begins, with advice; it leaves nothing
// that would block a lock of this name.
func TestOnceInASharedTable(t *testing.T) {
	e := enginetest.FullDynamoDB(t)
	shared := open(t, e.URL, newTable(t, e, nil), &Options{SharedTable: true})
	client, err := tenure.New(shared, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(t.Context())
	work := func(context.Context, *once.Turn) error {
		t.Error("the work was begun")
		return nil
	}
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "keep the lock in a table of Tenure's own") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = once.Once(t.Context(), client, "nightly", 1, nil, work)
	refused("once", err)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute) // it is to end long before
	defer stop()
	err = once.Every(ctx, client, "nightly", time.Hour, nil, work)
	refused("every", err)
	for _, name := range []string{once.LockName("nightly"), once.EveryLockName("nightly")} {
		l, err := client.TryAcquire(t.Context(), name, nil)
		if err != nil {
			t.Errorf("a lock of the name %s: %v", name, err)
			continue
		}
		if err := errors.Join(l.Renew(t.Context()), l.Release(t.Context())); err != nil {
			t.Errorf("a lock of the name %s: %v", name, err)
		}
	}
}

// TestLedgersThatAreWritten are known as such.
func TestLedgersThatAreWritten(t *testing.T) {
	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(t.Context())
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if _, err := once.Once(ctx, client, "nightly", 1, nil, func(context.Context, *once.Turn) error { return nil }); err != nil {
		t.Error(err)
	}
	if err := once.ResetEvery(ctx, client, "nightly", "a test"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{once.LockName("nightly"), once.EveryLockName("nightly")} {
		if st, err := client.Status(ctx, name); err != nil || !isLedger(st.Data) {
			t.Errorf("the data of %s are taken for no ledger: %q, %v", name, st.Data, err)
		}
	}
}

// TestSessionsInASharedTable are refused, with advice. Earlier records of them can
// be removed.
func TestSessionsInASharedTable(t *testing.T) {
	e := enginetest.FullDynamoDB(t)
	table := newTable(t, e, nil)
	own, shared := open(t, e.URL, table, nil), open(t, e.URL, table, &Options{SharedTable: true})
	alive := enginetest.Claim(t, own, session("s1"))
	lock := enginetest.Claim(t, own, under("k", "s1"))
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrPermanent) || !errors.Is(err, driver.ErrNotApplied) || !strings.Contains(err.Error(), "keep locks under sessions in a table of Tenure's own") {
			t.Errorf("%s: %v; want a permanent refusal that says what to do", what, err)
		}
	}
	_, _, err := shared.Claim(t.Context(), session("s2"))
	refused("opening", err)
	_, _, err = shared.Claim(t.Context(), under("other", "s1"))
	refused("a claim under a session", err)
	beat := alive.Clone()
	beat.Version = held("").Version
	_, err = shared.Swap(t.Context(), alive, beat)
	refused("a heartbeat of a session", err)
	taken := under("k", "s1")
	taken.Token = lock.Token + 1
	_, err = shared.Swap(t.Context(), lock, taken)
	refused("a takeover under a session", err)

	if got, err := shared.Get(t.Context(), "k", driver.Strong); err != nil || got.Session != "s1" {
		t.Errorf("the lock from before: %+v, %v", got, err)
	}
	closed := alive.Clone()
	closed.Version, closed.State = held("").Version, driver.Closed
	if _, err = shared.Swap(t.Context(), alive, closed); err != nil {
		t.Errorf("closing: %v", err)
	}
	taken.Session = ""
	if _, err := shared.Swap(t.Context(), lock, taken); err != nil {
		t.Errorf("a takeover under none: %v", err)
	}
	if err := shared.Delete(t.Context(), closed); err != nil {
		t.Errorf("Delete: %v", err)
	}
}
