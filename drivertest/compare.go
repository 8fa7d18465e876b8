// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// wantStored fails the test unless a strong read through every client shows
// want.
func (e *env) wantStored(t *testing.T, want driver.Record) {
	t.Helper()
	for i, c := range e.clients {
		got := e.get(t, c, want.Key)
		e.wantEqual(t, fmt.Sprintf("Get through handle %d", i), got, want)
	}
}

// wantAbsent fails the test unless every client says that there is no record.
func (e *env) wantAbsent(t *testing.T, key string) {
	t.Helper()
	for i, c := range e.clients {
		if rec, err := c.Get(t.Context(), key, driver.Strong); !errors.Is(err, driver.ErrNotFound) {
			t.Errorf("Get(%q) through handle %d = %s, %v; want ErrNotFound", key, i, brief(rec), err)
		}
	}
}

// wantConflict fails the test unless err is a conflict that shows current, and
// current is still what is stored.
func (e *env) wantConflict(t *testing.T, what string, err error, current driver.Record) {
	t.Helper()
	conflict := asConflict(t, what, current.Key, err)
	if conflict != nil {
		if conflict.Absent {
			t.Errorf("%s: the conflict says that there is no record; want %s", what, brief(current))
		} else {
			e.wantEqual(t, what+": the conflict's record", conflict.Current, current)
		}
	}
	e.wantStored(t, current)
}

// wantAbsentConflict fails the test unless err is a conflict with nothing.
func (e *env) wantAbsentConflict(t *testing.T, what, key string, err error) {
	t.Helper()
	conflict := asConflict(t, what, key, err)
	if conflict != nil && (!conflict.Absent || !reflect.DeepEqual(conflict.Current, driver.Record{})) {
		t.Errorf("%s: the conflict has Absent %t and record %s; want true and a zero record", what, conflict.Absent, brief(conflict.Current))
	}
	e.wantAbsent(t, key)
}

func asConflict(t *testing.T, what, key string, err error) *driver.ConflictError {
	t.Helper()
	var conflict *driver.ConflictError
	if !errors.As(err, &conflict) {
		t.Errorf("%s: error %v, want a *ConflictError", what, err)
		return nil
	}
	if conflict.Key != key {
		t.Errorf("%s: the conflict is on key %q, want %q", what, conflict.Key, key)
	}
	return conflict
}

// wantEqual fails the test unless the records are the same within the declared
// precision.
func (e *env) wantEqual(t *testing.T, what string, got, want driver.Record) {
	t.Helper()
	if diff := e.diff(got, want); diff != "" {
		t.Errorf("%s: %s", what, diff)
	}
}

// diff names the fields in which two records differ, "" if there is none.
func (e *env) diff(got, want driver.Record) string {
	var out []string
	e.diffFields(&out, "", reflect.ValueOf(got), reflect.ValueOf(want))
	return strings.Join(out, "; ")
}

var (
	typeTime     = reflect.TypeFor[time.Time]()
	typeDuration = reflect.TypeFor[time.Duration]()
	typeBytes    = reflect.TypeFor[[]byte]()
)

// diffFields walks through all fields, so that one that is added to the record
// later is compared without a change here.
func (e *env) diffFields(out *[]string, name string, got, want reflect.Value) {
	equal := true
	switch typ := got.Type(); {
	case typ == typeTime:
		g, w := got.Interface().(time.Time), want.Interface().(time.Time)
		equal = g.IsZero() == w.IsZero() && g.Sub(w).Abs() < e.h.TimePrecision
	case typ == typeDuration:
		g, w := time.Duration(got.Int()), time.Duration(want.Int())
		equal = (g == 0) == (w == 0) && (g-w).Abs() < e.h.LeasePrecision
	case typ == typeBytes:
		// No difference is made between nil and empty.
		equal = bytes.Equal(got.Bytes(), want.Bytes())
	case typ.Kind() == reflect.Struct:
		for i := range typ.NumField() {
			e.diffFields(out, strings.TrimPrefix(name+"."+typ.Field(i).Name, "."), got.Field(i), want.Field(i))
		}
	case typ.Kind() == reflect.Pointer && !got.IsNil() && !want.IsNil():
		e.diffFields(out, name, got.Elem(), want.Elem())
	case typ.Kind() == reflect.Slice && got.Len() == want.Len():
		for i := range got.Len() {
			e.diffFields(out, fmt.Sprintf("%s[%d]", name, i), got.Index(i), want.Index(i))
		}
	default:
		equal = reflect.DeepEqual(got.Interface(), want.Interface())
	}
	if !equal {
		*out = append(*out, fmt.Sprintf("%s is %s, want %s", name, short(got), short(want)))
	}
}

func short(v reflect.Value) string {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	const most = 80
	s := fmt.Sprintf("%+v", v.Interface())
	if v.Kind() == reflect.String || v.Type() == typeBytes {
		s = fmt.Sprintf("%q", v.Interface())
	}
	if len(s) > most {
		s = fmt.Sprintf("%s... (%d bytes)", s[:most], len(s))
	}
	return s
}

// brief shows what of a record the protocol decides by.
func brief(r driver.Record) string {
	if r.Key == "" {
		return "no record"
	}
	return fmt.Sprintf("%q %s by %s, token %d, version %s", r.Key, r.State, r.Owner, r.Token, r.Version)
}
