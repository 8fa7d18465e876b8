// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// handles is the least number of clients onto the database in each concern. Two
// show whether writes travel; three, whether a conflict always returns the last
// write.
const handles = 3

// env is what the checks of one concern work with. Its methods that take a
// *testing.T fail the test on an error.
type env struct {
	h       Harness
	clients []*client
	handles int // opened so far: they go round the servers
	serial  atomic.Int64
	missed  atomic.Bool // a hint has not come
}

func newEnv(t *testing.T, h Harness) *env {
	t.Helper()
	if h.Open == nil && len(h.Servers) == 0 {
		t.Fatal("the harness has no Open")
	}
	h.TimePrecision = precision(t, "TimePrecision", h.TimePrecision)
	h.LeasePrecision = precision(t, "LeasePrecision", h.LeasePrecision)
	if h.Ops == 0 {
		h.Ops = 2000
	}
	if testing.Short() {
		h.Ops = max(h.Ops/10, 20)
	}
	if h.Patience == 0 {
		h.Patience = 30 * time.Second
	}
	e := &env{h: h}
	for range max(handles, len(h.Servers)) {
		e.clients = append(e.clients, e.open(t))
	}
	return e
}

func precision(t *testing.T, name string, d time.Duration) time.Duration {
	t.Helper()
	if d == 0 {
		return time.Millisecond
	}
	if d < 0 || d > time.Millisecond {
		t.Fatalf("the harness declares %s %v: the contract allows a millisecond at most", name, d)
	}
	return d
}

// open returns a further client, which is closed when the test ends.
func (e *env) open(t *testing.T) *client {
	t.Helper()
	open := e.h.Open
	if n := len(e.h.Servers); n > 0 {
		open = e.h.Servers[e.handles%n]
	}
	e.handles++
	store := open(t)
	if store == nil {
		t.Fatal("the harness opened a nil store")
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return &client{Store: store, patience: e.h.Patience}
}

// client is a store that repeats writes as long as they were not applied, as
// every caller does: a busy engine is no failure.
type client struct {
	driver.Store
	patience time.Duration
}

func (c *client) Get(ctx context.Context, key string, consistency driver.Consistency) (rec driver.Record, err error) {
	err = c.retry(ctx, func() error {
		rec, err = c.Store.Get(ctx, key, consistency)
		return err
	})
	return rec, err
}

func (c *client) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	err = c.retry(ctx, func() error {
		now, prev, err = c.Store.Claim(ctx, next)
		return err
	})
	return now, prev, err
}

func (c *client) Swap(ctx context.Context, prev, next driver.Record) (now driver.Record, err error) {
	err = c.retry(ctx, func() error {
		now, err = c.Store.Swap(ctx, prev, next)
		return err
	})
	return now, err
}

func (c *client) Delete(ctx context.Context, prev driver.Record) error {
	return c.retry(ctx, func() error { return c.Store.Delete(ctx, prev) })
}

func (c *client) retry(ctx context.Context, op func() error) error {
	const longest = 20 * time.Millisecond
	begin, pause := time.Now(), time.Millisecond
	for {
		err := op()
		if !isBusy(err) || ctx.Err() != nil || time.Since(begin) > c.patience {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, longest)
	}
}

// isBusy reports whether err says no more than that the engine was busy.
func isBusy(err error) bool {
	for _, final := range []error{driver.ErrPermanent, driver.ErrClosed, driver.ErrUnreadable} {
		if errors.Is(err, final) {
			return false
		}
	}
	return errors.Is(err, driver.ErrNotApplied)
}

// key returns a key that no other check of this env uses.
func (e *env) key() string { return fmt.Sprintf("key-%03d", e.serial.Add(1)) }

// fresh returns a string that is never used again.
func (e *env) fresh(prefix string) string { return fmt.Sprintf("%s-%04d", prefix, e.serial.Add(1)) }

// held returns a record for a Claim of key.
func (e *env) held(key string) driver.Record {
	version := e.fresh("claim")
	return driver.Record{
		Key: key, Version: version, Beat: version, Owner: e.fresh("owner"),
		Lease: 10 * time.Second, Heartbeat: 3 * time.Second, State: driver.Held,
		Host: "host", Label: "v1.2.3", Since: time.Now(), Drift: 0.09,
	}
}

// beat returns the record for a heartbeat on r.
func (e *env) beat(r driver.Record) driver.Record {
	next := r.Clone()
	next.Version = e.fresh("beat")
	next.Beat = next.Version
	return next
}

// released returns the record for a release of r.
func (e *env) released(r driver.Record) driver.Record {
	next := r.Clone()
	next.Version, next.State = e.fresh("release"), driver.Released
	next.Until, next.End = time.Now(), driver.EndReleased
	next.Session, next.Notify = "", ""
	return next
}

// request returns a request that is in no record yet.
func (e *env) request(kind driver.RequestKind) driver.Request {
	return driver.Request{ID: e.fresh("request"), Kind: kind, By: "ops", Reason: "deploy", To: "other", At: time.Now()}
}

// asked returns the record for a request that is added to r: only the version is new.
func (e *env) asked(r driver.Record) driver.Record {
	next := r.Clone()
	next.Version, next.Requests = e.fresh("asked"), []driver.Request{e.request(driver.StepDown)}
	return next
}

// answered returns the record for a release of r as its request asks.
func (e *env) answered(r driver.Record) driver.Record {
	next := e.released(r)
	next.Requests = nil
	if next.End = driver.EndSteppedDown; len(r.Requests) > 0 {
		request := r.Requests[0]
		next.Asked = &request
	}
	return next
}

// reserved returns the record for a hand-over of r to owner, or for nobody if owner is empty.
func (e *env) reserved(r driver.Record, owner string) driver.Record {
	next := e.held(r.Key)
	next.Version = e.fresh("reserve")
	next.Beat, next.State = next.Version, driver.Reserved
	next.Owner, next.Token, next.Data = owner, r.Token, r.Data
	if next.Prev = r.Term(driver.EndHandedOver); next.Prev != nil {
		next.Prev.Until = time.Now()
	}
	return next
}

// past returns the record of an ended term for a Claim of key.
func (e *env) past(key string) driver.Record {
	next := e.held(key)
	request := e.request(driver.Revoke)
	next.State, next.End, next.Asked, next.Until = driver.Past, driver.EndRevoked, &request, time.Now()
	return next
}

// withData returns the record for a write of data into r.
func (e *env) withData(r driver.Record, data []byte) driver.Record {
	next := r.Clone()
	next.Version, next.Data = e.fresh("data"), data
	return next
}

// taken returns the record for a takeover of r.
func (e *env) taken(r driver.Record) driver.Record {
	next := e.held(r.Key)
	next.Version = e.fresh("takeover")
	next.Token, next.Data, next.Prev = r.Token+1, r.Data, r.Term(driver.EndExpired).Shorten()
	return next
}

func (e *env) claim(t *testing.T, c driver.Store, next driver.Record) driver.Record {
	t.Helper()
	now, _, err := c.Claim(t.Context(), next)
	if err != nil {
		t.Fatalf("Claim(%s): %v", brief(next), err)
	}
	return now
}

func (e *env) swap(t *testing.T, c driver.Store, prev, next driver.Record) driver.Record {
	t.Helper()
	now, err := c.Swap(t.Context(), prev, next)
	if err != nil {
		t.Fatalf("Swap(%s, %s): %v", brief(prev), brief(next), err)
	}
	return now
}

func (e *env) get(t *testing.T, c driver.Store, key string) driver.Record {
	t.Helper()
	rec, err := c.Get(t.Context(), key, driver.Strong)
	if err != nil {
		t.Fatalf("Get(%q): %v", key, err)
	}
	return rec
}

// wantClaimed claims, and fails the test unless the result is the record that Claimed
// makes of next and prev; prev is zero if there is no record.
func (e *env) wantClaimed(t *testing.T, c driver.Store, next, prev driver.Record) driver.Record {
	t.Helper()
	now, replaced, err := c.Claim(t.Context(), next)
	if err != nil {
		t.Fatalf("Claim(%s): %v", brief(next), err)
	}
	want := driver.Claimed(next, prev, prev.Key != "")
	e.wantEqual(t, "record after Claim", now, want)
	e.wantStored(t, want)
	if prev.Key != "" {
		e.wantEqual(t, "record that Claim replaced", replaced, prev)
	} else if !reflect.DeepEqual(replaced, prev) {
		t.Errorf("a claim of an absent key replaced %s, want a zero record", brief(replaced))
	}
	return now
}

// remove deletes what is stored.
func (e *env) remove(t *testing.T, c driver.Store, rec driver.Record) {
	t.Helper()
	if err := c.Delete(t.Context(), rec); err != nil {
		t.Fatalf("Delete(%s): %v", brief(rec), err)
	}
}

// byEach has a write made through the handle that reads, and through another one.
func (e *env) byEach(t *testing.T, test func(t *testing.T, by *client)) {
	t.Helper()
	for name, by := range map[string]*client{"SameHandle": e.clients[0], "OtherHandle": e.clients[1]} {
		t.Run(name, func(t *testing.T) { test(t, by) })
	}
}

// freed claims a fresh key and releases it again.
func (e *env) freed(t *testing.T, c driver.Store) (claim, free driver.Record) {
	t.Helper()
	claim = e.claim(t, c, e.held(e.key()))
	return claim, e.swap(t, c, claim, e.released(claim))
}

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
		t.Errorf("%s: the conflict has Absent %t and record %s; want true and a zero record",
			what, conflict.Absent, brief(conflict.Current))
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

// diff names the fields in which two records differ, "" if they are equal. The life of the
// engine has its own check.
func (e *env) diff(got, want driver.Record) string {
	got.Life, want.Life, got.Opens, want.Opens = "", "", driver.Opening{}, driver.Opening{}
	var out []string
	e.diffFields(&out, "", reflect.ValueOf(got), reflect.ValueOf(want))
	return strings.Join(out, "; ")
}

var (
	typeTime     = reflect.TypeFor[time.Time]()
	typeDuration = reflect.TypeFor[time.Duration]()
	typeBytes    = reflect.TypeFor[[]byte]()
)

// diffFields walks through all fields, so that a field that is added to the
// record later is compared without a change here.
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

// eventually fails the test unless look returns "": at once if the store
// declares no eventual reads, otherwise within Patience. Look returns what is
// still wrong.
func (e *env) eventually(t *testing.T, look func() (wrong string)) {
	t.Helper()
	begin := time.Now()
	for {
		wrong := look()
		if wrong == "" {
			return
		}
		if !e.h.EventualReads {
			t.Fatalf("%s (the harness declares no eventual reads)", wrong)
		}
		if time.Since(begin) > e.h.Patience {
			t.Fatalf("%s after %v", wrong, e.h.Patience)
		}
		<-time.After(5 * time.Millisecond)
	}
}
