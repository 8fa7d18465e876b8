// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock

import (
	"testing"
	"testing/synctest"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
)

// When the last reader has left the slot, and before it is released, no reader joins
// it: the lease of that reader would end at once.
func TestNobodyJoinsASlotThatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := tenure.New(memstore.New(), &tenure.Options{Clock: tenure.MonotonicClock()})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(t.Context())
		l, err := New(client, "catalog", nil)
		if err != nil {
			t.Fatal(err)
		}
		lease, err := l.AcquireRead(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		other := l.join()
		if other == nil {
			t.Fatal("no reader joins a held slot")
		}
		s := lease.grip.Load().share
		if l.leaveShare(s) || l.join() == nil {
			t.Error("the slot is left although a process reads")
		}
		if l.leaveShare(s) || !l.leaveShare(s) {
			t.Error("the last one of three does not leave the slot")
		}
		if l.join() != nil {
			t.Error("a reader joins a slot that was left")
		}
		if err := s.slot.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
