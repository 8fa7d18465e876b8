// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/rwlock"
)

func TestArgumentsAreChecked(t *testing.T) {
	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(t.Context())
	for _, c := range []struct {
		client *tenure.Client
		name   string
		want   string
	}{
		{nil, "x", "client is nil"},
		{client, "", "lock name is empty"},
		{client, "tenure/x", `begins with "tenure/"`},
		{client, strings.Repeat("n", 1009), "has 1009 bytes: at most 1008 are allowed"},
	} {
		if _, err := rwlock.New(c.client, c.name, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
	if longest := rwlock.SlotName(strings.Repeat("n", rwlock.MaxNameLen), rwlock.MaxSlots-1); len(longest) > driver.MaxNameLen {
		t.Errorf("the name of a slot has %d bytes", len(longest))
	}
	l, err := rwlock.New(client, "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []tenure.AcquireOptions{{UnlessAlive: true}, {AdditionalWait: 1}, {Priority: 1}, {Data: []byte("mine")}, {Capacity: -1}} {
		_, err1 := l.AcquireRead(t.Context(), &o)
		_, err2 := l.TryAcquireWrite(t.Context(), &rwlock.WriteOptions{AcquireOptions: o})
		if err1 == nil || err2 == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

func TestNames(t *testing.T) {
	if name, ok := rwlock.ParseGateName("a:gate"); name != "a" || !ok {
		t.Error(name, ok)
	}
	if _, ok := rwlock.ParseGateName(":gate"); ok {
		t.Error("a gate without a name")
	}
	if name, slot, ok := rwlock.ParseSlotName(rwlock.SlotName("a:read/1", 7)); name != "a:read/1" || slot != 7 || !ok {
		t.Error(name, slot, ok)
	}
	if _, _, ok := rwlock.ParseSlotName("a:read/1000"); ok {
		t.Error("a slot that cannot be")
	}
	if name, n, ok := rwlock.ParseSize(tenure.Status{Name: "a:readers", Data: []byte(`{"slots":8}`)}); name != "a" || n != 8 || !ok {
		t.Error(name, n, ok)
	}
	if _, _, ok := rwlock.ParseSize(tenure.Status{Name: "a:readers", Data: []byte(`{"slots":0}`)}); ok {
		t.Error("no slots")
	}
}

// No process stores the number of slots again after its record was deleted: it may have
// been higher, with readers where no writer would look.
func TestDeletedNumberOfSlots(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		r, w := s.process("r"), s.process("w")
		l := r.read(t.Context())
		store := s.Store().Open()
		rec, err := store.Get(t.Context(), rwlock.SizeName(name), driver.Strong)
		if err != nil {
			t.Fatal(err)
		}
		slot, _ := l.Slot()
		had, _ := store.Get(t.Context(), rwlock.SlotName(name, 0), driver.Strong)
		if err := store.Delete(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		if slot == 0 && had.Token > 0 {
			if _, err := w.AcquireWrite(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "number of its slots is not stored") {
				t.Error(err)
			}
		}
		r.release(l)
		// A process that knows the number reads on: the gate is looked at all the same.
		r.release(r.read(t.Context()))
		if _, err := r.AcquireWrite(t.Context(), nil); err == nil || errors.Is(err, tenure.ErrHeld) {
			t.Errorf("a writer does not know where to look: %v", err)
		}
	})
}
