// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"reflect"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// testOwnership scribbles over the memory of records, before and after it was
// the store's: neither side may see what the other does to its copy.
func testOwnership(t *testing.T, e *env) {
	a, b := e.clients[0], e.clients[1]

	// full returns a key that was released on request, and the record for the
	// claim of its successor, which has data, requests and, once stored, a
	// tenure before it with its own.
	full := func(t *testing.T) (free, next driver.Record) {
		t.Helper()
		first := e.held(e.key())
		first.Data = []byte("first")
		rec := e.claim(t, a, first)
		rec = e.swap(t, a, rec, e.asked(rec))
		free = e.swap(t, a, rec, e.answered(rec))
		next = e.held(free.Key)
		next.Data = []byte("second")
		next.Requests = []driver.Request{e.request(driver.StepDown), e.request(driver.HandOver)}
		asked := e.request(driver.ReleaseDead)
		next.Asked = &asked
		return free, next
	}

	// What most stores copy with.
	t.Run("Clone", func(t *testing.T) {
		rec := filled(t, "k", 1)
		want := deepCopy(rec)
		scribble(t, rec.Clone())
		if !reflect.DeepEqual(rec, want) {
			t.Errorf("Record.Clone shares memory: %+v was changed to %+v", want, rec)
		}
		if clone := rec.Clone(); !reflect.DeepEqual(clone, want) {
			t.Errorf("Record.Clone of %+v is %+v", want, clone)
		}
	})

	t.Run("Given", func(t *testing.T) {
		free, next := full(t)
		given := deepCopy(next)
		now := e.claim(t, a, given)
		scribble(t, given)
		e.wantStored(t, driver.Claimed(next, free, true))
		next = e.beat(now)
		given = deepCopy(next)
		e.swap(t, b, now, given)
		scribble(t, given)
		e.wantStored(t, next)
	})

	t.Run("Returned", func(t *testing.T) {
		free, next := full(t)
		want := driver.Claimed(next, free, true)
		now, _, err := a.Claim(t.Context(), deepCopy(next))
		if err != nil {
			t.Fatal(err)
		}
		held := deepCopy(now)
		scribble(t, now)
		e.wantStored(t, want)
		scribble(t, e.get(t, a, next.Key))
		e.wantStored(t, want)
		page, err := a.List(t.Context(), next.Key, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range page.Records {
			scribble(t, rec)
		}
		e.wantStored(t, want)
		var conflict *driver.ConflictError
		if _, _, err = a.Claim(t.Context(), e.held(next.Key)); errors.As(err, &conflict) {
			scribble(t, conflict.Current)
		}
		e.wantStored(t, want)
		next = e.beat(held)
		scribble(t, e.swap(t, a, held, deepCopy(next)))
		e.wantStored(t, next)
	})

	// A store may remember what it has read, to write without another read.
	t.Run("Remembered", func(t *testing.T) {
		free, next := full(t)
		next.Data = nil
		want := driver.Claimed(next, free, true)
		scribble(t, e.get(t, a, free.Key))
		_, prev, err := a.Claim(t.Context(), deepCopy(next))
		if err != nil {
			t.Fatal(err)
		}
		e.wantEqual(t, "record that Claim replaced, after what was read before was written to", prev, free)
		e.wantStored(t, want)
	})

	// The two records of a claim have the former term, and perhaps the data,
	// in common; they share no memory.
	t.Run("NowAndPrev", func(t *testing.T) {
		for _, first := range []string{"now", "prev"} {
			free, next := full(t)
			next.Data = nil
			want := driver.Claimed(next, free, true)
			now, prev, err := a.Claim(t.Context(), deepCopy(next))
			if err != nil {
				t.Fatal(err)
			}
			if first == "now" {
				scribble(t, now)
				e.wantEqual(t, "record that Claim replaced, after the other was written to", prev, free)
			} else {
				scribble(t, prev)
				e.wantEqual(t, "record after Claim, after the other was written to", now, want)
			}
			e.wantStored(t, want)
		}
	})
}

// deepCopy returns a copy that shares no memory with r, without Record.Clone,
// which is itself in question here.
func deepCopy(r driver.Record) driver.Record {
	return deepCopyOf(reflect.ValueOf(r)).Interface().(driver.Record)
}

func deepCopyOf(v reflect.Value) reflect.Value {
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	switch typ := v.Type(); {
	case typ == typeTime:
	case typ.Kind() == reflect.Struct:
		for i := range typ.NumField() {
			c.Field(i).Set(deepCopyOf(v.Field(i)))
		}
	case typ.Kind() == reflect.Pointer && !v.IsNil():
		c.Set(reflect.New(typ.Elem()))
		c.Elem().Set(deepCopyOf(v.Elem()))
	case typ.Kind() == reflect.Slice && !v.IsNil():
		c.Set(reflect.MakeSlice(typ, v.Len(), v.Len()))
		for i := range v.Len() {
			c.Index(i).Set(deepCopyOf(v.Index(i)))
		}
	}
	return c
}

// scribble overwrites all memory that a copy of r shares with it. It does so by
// reflection, so that a new field cannot be forgotten.
func scribble(t *testing.T, r driver.Record) {
	t.Helper()
	v := reflect.ValueOf(&r).Elem()
	for i := range v.NumField() {
		scribbleBehind(t, v.Field(i), "Record."+v.Type().Field(i).Name)
	}
}

// scribbleBehind overwrites what v points to, the deepest first.
func scribbleBehind(t *testing.T, v reflect.Value, name string) {
	t.Helper()
	switch typ := v.Type(); {
	case typ == typeTime:
	case typ.Kind() == reflect.Struct:
		for i := range typ.NumField() {
			scribbleBehind(t, v.Field(i), name+"."+typ.Field(i).Name)
		}
	case typ.Kind() == reflect.Pointer && !v.IsNil():
		scribbleBehind(t, v.Elem(), name)
		v.Elem().SetZero()
	case typ.Kind() == reflect.Slice:
		for i := range v.Len() {
			scribbleBehind(t, v.Index(i), name)
			v.Index(i).SetZero()
		}
	case typ.Kind() == reflect.Map, typ.Kind() == reflect.Interface:
		t.Fatalf("drivertest cannot scribble over %s of type %v: add the type", name, typ)
	}
}
