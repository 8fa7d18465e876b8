// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package faultstore_test

import (
	"errors"
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
)

// A store that raises and does not watch, and a store that watches and does not raise.
type (
	onlyRaising struct {
		driver.Store
		driver.Raiser
	}
	onlyWatching struct {
		driver.Store
		driver.Watcher
	}
)

// TestDriverRaisesIfInnerDoes: and it watches if that does.
func TestDriverRaisesIfInnerDoes(t *testing.T) {
	m := memstore.New()
	for name, tc := range map[string]struct {
		inner           driver.Store
		raises, watches bool
	}{
		"both":   {m, true, true},
		"raises": {onlyRaising{m, m}, true, false},
		"watch":  {onlyWatching{m, m}, false, true},
		"none":   {deafmute{m}, false, false},
	} {
		s := faultstore.New(tc.inner, nil).Driver()
		_, raises := s.(driver.Raiser)
		_, watches := s.(driver.Watcher)
		if raises != tc.raises || watches != tc.watches {
			t.Errorf("%s: raises %v, watches %v", name, raises, watches)
		}
	}
}

// TestRaiseIsACallOfItsOwn: counted, with faults, and to be replayed.
func TestRaiseIsACallOfItsOwn(t *testing.T) {
	for _, inner := range []func(m *memstore.Store) driver.Store{
		func(m *memstore.Store) driver.Store { return m },
		func(m *memstore.Store) driver.Store { return onlyRaising{m, m} },
	} {
		m := memstore.New()
		f := faultstore.New(inner(m), nil)
		rec := driver.Record{Key: "k", Version: "v1", Beat: "v1", Owner: "o", Lease: 1e9, State: driver.Held}
		rec, _, err := m.Claim(t.Context(), rec)
		if err != nil {
			t.Fatal(err)
		}
		next := rec
		next.Version, next.State, next.Token = "v2", driver.Released, 1000
		f.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpRaise}, Count: 1, Fault: faultstore.LoseRequest()})
		raiser := f.Driver().(driver.Raiser)
		if _, err := raiser.Raise(t.Context(), rec, next); !errors.Is(err, faultstore.ErrInjected) {
			t.Errorf("the fault of a raise: %v", err)
		}
		lost := f.Log()[0]
		if now, err := raiser.Raise(t.Context(), rec, next); err != nil || now.Token != 1000 {
			t.Errorf("%+v, %v", now, err)
		}
		if n := f.Count(faultstore.OpRaise); n != 2 {
			t.Errorf("%d raises counted", n)
		}
		var conflict *driver.ConflictError
		if _, err := f.Replay(t.Context(), lost.Call); !errors.As(err, &conflict) {
			t.Errorf("replayed: %v, want a conflict", err)
		}
	}
}
