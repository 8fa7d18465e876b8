// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"sync"
	"testing"

	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
)

func TestIdentityOfAStoreIsOne(t *testing.T) {
	s := memstore.New()
	if id, err := Identity(t.Context(), s); id != NoIdentity || err != nil {
		t.Fatalf("identity of an empty store: %q, %v", id, err)
	}
	var all sync.Map
	var each sync.WaitGroup
	for range 8 {
		each.Go(func() {
			id, err := Identify(t.Context(), s)
			if err != nil {
				t.Error(err)
			}
			all.Store(id, true)
		})
	}
	each.Wait()
	id, err := Identity(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	all.Range(func(seen, _ any) bool {
		if seen != id {
			t.Errorf("one process saw identity %v, the store has %q", seen, id)
		}
		return true
	})
	if other, err := Identify(t.Context(), memstore.New()); other == id || err != nil {
		t.Errorf("identity of another store: %q, %v; the first has %q", other, err, id)
	}
}

// A role that may not write is refused, and learns no identity that the store does not have.
func TestIdentityIsNotGuessed(t *testing.T) {
	faults := faultstore.New(memstore.New(), nil)
	remove := faults.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpClaim}, Fault: faultstore.Refuse()})
	s := faults.Driver()
	if id, err := Identify(t.Context(), s); id != "" || !errors.Is(err, faultstore.ErrInjected) {
		t.Errorf("without a write: %q, %v", id, err)
	}
	if id, err := Identity(t.Context(), s); id != NoIdentity || err != nil {
		t.Errorf("after it: %q, %v", id, err)
	}
	remove()
	written, err := Identify(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	faults.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Fault: faultstore.Refuse()})
	if id, err := Identity(t.Context(), s); id != "" || err == nil {
		t.Errorf("without a read of %q: %q, %v", written, id, err)
	}
}
