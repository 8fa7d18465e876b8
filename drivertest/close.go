// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

func testClose(t *testing.T, e *env) {
	ctx := t.Context()
	rec := e.claim(t, e.clients[0], e.held(e.key()))
	store := e.open(t).Store
	e.wantEqual(t, "record through a further handle", e.get(t, store, rec.Key), rec)
	if err := store.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if err := store.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}

	want := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrClosed) {
			t.Errorf("%s after Close: error %v, want ErrClosed", what, err)
		}
	}
	_, err := store.Get(ctx, rec.Key, driver.Strong)
	want("Get", err)
	claim := e.held(e.key())
	_, _, err = store.Claim(ctx, claim)
	want("Claim", err)
	_, err = store.Swap(ctx, rec, e.beat(rec))
	want("Swap", err)
	want("Delete", store.Delete(ctx, rec))
	_, err = store.List(ctx, "", "")
	want("List", err)
	if w, ok := store.(driver.Watcher); ok {
		_, err := w.Watch(ctx, rec.Key, func() {})
		want("Watch", err)
	}

	// Neither the records nor other handles were harmed.
	e.wantAbsent(t, claim.Key)
	e.wantStored(t, rec)
	next := e.beat(rec)
	e.swap(t, e.clients[0], rec, next)
	reopened := e.open(t)
	e.wantEqual(t, "record through a handle opened after Close", e.get(t, reopened, rec.Key), next)
}
