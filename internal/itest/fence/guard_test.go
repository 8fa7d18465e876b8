// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/tenurelock/tenure/fence"
)

func TestGuardComparesTokens(t *testing.T) {
	for _, options := range []*fence.SQLOptions{nil, {Placeholder: fence.Dollar, Table: "main.other_fences"}} {
		db := open(t, "0")
		guard := newSQL(t, db, options)
		ctx := t.Context()
		try := func(token uint64, fail error) error {
			return guard.Tx(ctx, db, "ledger", fence.Fixed("lock", token), func(tx *sql.Tx) error {
				return errors.Join(note(ctx, tx, "ledger", token), fail)
			})
		}
		if _, ok, err := guard.Highest(ctx, db, "ledger"); ok || err != nil {
			t.Errorf("a new table knows a token: %v, %v", ok, err)
		}
		for _, token := range []uint64{4, 4, 7, 7} {
			if err := try(token, nil); err != nil {
				t.Errorf("token %d: %v", token, err)
			}
		}
		var stale *fence.StaleError
		if err := try(6, nil); !errors.As(err, &stale) || *stale != (fence.StaleError{Resource: "ledger", Token: 6, Highest: 7}) {
			t.Errorf("token 6: %v", err)
		}
		broken := errors.New("work failed")
		if err := try(9, broken); !errors.Is(err, broken) {
			t.Error(err)
		}
		if highest, ok, err := guard.Highest(ctx, db, "ledger"); highest != 7 || !ok || err != nil {
			t.Errorf("highest is %d, %v, %v: want 7, as what was rolled back left nothing", highest, ok, err)
		}
		if writes, _ := tally(t, db); writes != 4 {
			t.Errorf("%d writes, want 4", writes)
		}
		if err := guard.Admit(ctx, db, "ledger", math.MaxInt64); err != nil {
			t.Error(err)
		}
		if err := guard.Forget(ctx, db, "ledger"); err != nil {
			t.Error(err)
		}
		if err := try(1, nil); err != nil {
			t.Errorf("after Forget: %v", err)
		}
		if guard.Refusals() != 1 {
			t.Errorf("%d refusals", guard.Refusals())
		}
	}
}

// lapsing is a grant whose lease ends after so many checks.
type lapsing struct {
	fence.Grant
	checks int
}

var errLapsed = errors.New("lapsed")

func (l *lapsing) Check() error {
	if l.checks--; l.checks < 0 {
		return errLapsed
	}
	return nil
}

func TestTxAsksTheGrant(t *testing.T) {
	db := open(t, "0")
	guard := newSQL(t, db, nil)
	for checks, c := range []struct {
		began bool
		err   error
	}{{false, errLapsed}, {true, errLapsed}, {true, nil}} {
		began := false
		err := guard.Tx(t.Context(), db, "ledger", &lapsing{fence.Fixed("ledger", 3), checks}, func(tx *sql.Tx) error {
			began = true
			return note(t.Context(), tx, "ledger", 3)
		})
		if began != c.began || !errors.Is(err, c.err) {
			t.Errorf("good for %d checks: began %v, error %v", checks, began, err)
		}
	}
	if writes, _ := tally(t, db); writes != 1 {
		t.Errorf("%d writes were committed, want 1", writes)
	}
}

// On a *sql.Conn the user begins the transaction, and the guard is part of it.
func TestGuardOnAConnection(t *testing.T) {
	db := open(t, "0")
	guard := newSQL(t, db, nil)
	ctx := t.Context()
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, statement := range []string{"BEGIN", "ROLLBACK"} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			t.Fatal(err)
		}
		if statement == "BEGIN" {
			if err := guard.Guard(ctx, conn, "ledger", 3); err != nil {
				t.Fatal(err)
			}
			if err := guard.Admit(ctx, db, "ledger", 4); !busy(err) {
				t.Errorf("the guard does not hold the database: %v", err)
			}
		}
	}
	if _, ok, _ := guard.Highest(ctx, db, "ledger"); ok {
		t.Error("a rolled back token stays")
	}
}

// The token of an effect outside of the database is committed before the
// effect: it cannot be taken back with the transaction. No other one is committed meanwhile.
func TestGateCommitsTheTokenFirst(t *testing.T) {
	db := open(t, "0")
	guard := newSQL(t, db, nil)
	gate := guard.Gate(db)
	ctx := t.Context()
	broken := errors.New("sent half of it")
	err := gate.Do(ctx, "printer", 5, func(ctx context.Context) error {
		tx, ok := fence.TxFromContext(ctx)
		if !ok {
			t.Fatal("no transaction in the context")
		}
		if err := guard.Admit(ctx, db, "printer", 6); !busy(err) {
			t.Errorf("a successor is admitted in the midst of the effect: %v", err)
		}
		return errors.Join(note(ctx, tx, "printer", 5), broken)
	})
	if !errors.Is(err, broken) {
		t.Error(err)
	}
	if err := gate.Do(ctx, "printer", 4, func(context.Context) error { panic("was run") }); !errors.Is(err, fence.ErrStale) {
		t.Errorf("a former holder after a write that failed: %v", err)
	}
	if writes, _ := tally(t, db); writes != 0 {
		t.Errorf("%d writes, want the failed one rolled back", writes)
	}
	if _, ok := fence.TxFromContext(ctx); ok {
		t.Error("a transaction out of nowhere")
	}
	if guard.Refusals() != 1 {
		t.Errorf("%d refusals counted for one call", guard.Refusals())
	}
}

// Another gate on the same file, as after a restart, or in another process.
func TestGateOutlivesItsProcess(t *testing.T) {
	db := open(t, "0")
	if err := newSQL(t, db, nil).Gate(db).Admit(t.Context(), "ledger", 8); err != nil {
		t.Fatal(err)
	}
	if err := newSQL(t, db, nil).Gate(db).Admit(t.Context(), "ledger", 7); !errors.Is(err, fence.ErrStale) {
		t.Error(err)
	}
}

// With the race detector, and with connections that wait for each other: what
// is written under the gate needs no other lock.
func TestGateIsALockOfItsResource(t *testing.T) {
	t.Parallel()
	db := open(t, "60000")
	gate := newSQL(t, db, nil).Gate(db)
	var landed []uint64
	var wg sync.WaitGroup
	for worker := range 4 {
		random := rand.New(rand.NewPCG(1, uint64(worker)))
		wg.Go(func() {
			for range 40 {
				token := 1 + random.Uint64N(50)
				err := gate.Do(t.Context(), "ledger", token, func(ctx context.Context) error {
					landed = append(landed, token)
					tx, _ := fence.TxFromContext(ctx)
					return note(ctx, tx, "ledger", token)
				})
				if err != nil && !errors.Is(err, fence.ErrStale) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	writes, stale := tally(t, db)
	if stale > 0 || writes != len(landed) || writes == 0 {
		t.Error(fmt.Sprint(stale, " stale; ", writes, " committed; ", len(landed), " landed"))
	}
}
