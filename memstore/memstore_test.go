// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package memstore_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
)

func held(key, version string) driver.Record {
	return driver.Record{
		Key: key, Version: version, Beat: version, Owner: "a", Lease: time.Second,
		State: driver.Held, Since: time.Now(),
	}
}

func TestHandlesShareRecords(t *testing.T) {
	ctx := t.Context()
	a := memstore.New()
	b := a.Open()
	if _, _, err := a.Claim(ctx, held("k", "v1")); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Get(ctx, "k", driver.Strong); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Get after Close = %v, want ErrClosed", err)
	}
	rec, err := b.Get(ctx, "k", driver.Strong)
	if err != nil || rec.Version != "v1" {
		t.Errorf("other handle reads %+v, %v", rec, err)
	}
	if rec, err = a.Open().Get(ctx, "k", driver.Strong); err != nil || rec.Version != "v1" {
		t.Errorf("handle reopened from a closed one reads %+v, %v", rec, err)
	}
}

func TestCloseEndsOwnWatchesOnly(t *testing.T) {
	ctx := t.Context()
	a := memstore.New()
	b := a.Open()
	var ofA, ofB int
	if _, err := a.Watch(t.Context(), "k", func() { ofA++ }); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Watch(t.Context(), "k", func() { ofB++ }); err != nil {
		t.Fatal(err)
	}
	a.Close()
	now, _, err := b.Claim(ctx, held("k", "v1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Delete(ctx, now); err != nil {
		t.Fatal(err)
	}
	if ofA != 0 || ofB != 1 {
		t.Errorf("hints: %d of the closed handle, %d of the open one; want 0 and 1", ofA, ofB)
	}
}

// A hint may call the store, which it could not if the mutex were held.
func TestHintMayCallStore(t *testing.T) {
	ctx := t.Context()
	s := memstore.New()
	now, _, err := s.Claim(ctx, held("k", "v1"))
	if err != nil {
		t.Fatal(err)
	}
	var seen driver.State
	if _, err := s.Watch(t.Context(), "k", func() {
		rec, _ := s.Get(ctx, "k", driver.Strong)
		seen = rec.State
	}); err != nil {
		t.Fatal(err)
	}
	next := now
	next.Version, next.State = "v2", driver.Released
	if _, err := s.Swap(ctx, now, next); err != nil {
		t.Fatal(err)
	}
	if seen != driver.Released {
		t.Errorf("hint saw state %q", seen)
	}
}

// A watch of a lock does not report each heartbeat of its holder.
func TestNoHintOfHeartbeats(t *testing.T) {
	ctx := t.Context()
	s := memstore.New()
	hints := 0
	if _, err := s.Watch(t.Context(), "k", func() { hints++ }); err != nil {
		t.Fatal(err)
	}
	now, _, err := s.Claim(ctx, held("k", "v1"))
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		want   int
		change func(*driver.Record)
	}{
		{0, func(r *driver.Record) { r.Beat = "b" }},
		{0, func(r *driver.Record) { r.Data = []byte("d") }},
		{0, func(r *driver.Record) { r.Token++ }},
		{1, func(r *driver.Record) { r.Requests = []driver.Request{{ID: "q"}} }},
		{1, func(r *driver.Record) { r.Beat = "c" }}, // with the request still there
		{1, func(r *driver.Record) { r.Requests = nil }},
		{2, func(r *driver.Record) { r.State = driver.Reserved }},
	} {
		next := now.Clone()
		next.Version = fmt.Sprint("step-", i)
		step.change(&next)
		if now, err = s.Swap(ctx, now, next); err != nil {
			t.Fatal(err)
		}
		if hints != step.want {
			t.Errorf("%d hints after step %d, want %d", hints, i, step.want)
		}
	}
}

func TestTimesLoseMonotonicReading(t *testing.T) {
	s := memstore.New()
	next := held("k", "v1")
	at := time.Now()
	request := driver.Request{ID: "q", At: at}
	next.Requests, next.Asked = []driver.Request{request}, &request
	now, _, err := s.Claim(t.Context(), next)
	if err != nil {
		t.Fatal(err)
	}
	bare := at.UTC().Round(0)
	if now.Requests[0].At != bare || now.Asked.At != bare {
		t.Errorf("requests of %v and %v, want %v", now.Requests[0].At, now.Asked.At, bare)
	}
	if now.Since != now.Since.Round(0) || now.Since.Location() != time.UTC {
		t.Errorf("Since = %v: no database keeps a monotonic reading or a location", now.Since)
	}
}

func BenchmarkClaimRelease(b *testing.B) {
	for _, goroutines := range []int{1, 32} {
		for _, keys := range []string{"own", "same"} {
			b.Run(fmt.Sprintf("goroutines=%d/key=%s", goroutines, keys), func(b *testing.B) {
				s := memstore.New()
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				b.ReportAllocs()
				b.ResetTimer()
				for g := range goroutines {
					key := "k"
					if keys == "own" {
						key = fmt.Sprintf("k%d", g)
					}
					wg.Go(func() { claimAndRelease(b, s, key, &left) })
				}
				wg.Wait()
			})
		}
	}
}

// claimAndRelease counts claims, granted or refused, down to none left.
func claimAndRelease(b *testing.B, s *memstore.Store, key string, left *atomic.Int64) {
	ctx := b.Context()
	claim := held(key, "claim")
	for left.Add(-1) >= 0 {
		now, _, err := s.Claim(ctx, claim)
		if conflict := (*driver.ConflictError)(nil); errors.As(err, &conflict) {
			continue
		} else if err != nil {
			b.Error(err)
			return
		}
		next := now
		next.Version, next.State, next.End = "release", driver.Released, driver.EndReleased
		if _, err := s.Swap(ctx, now, next); err != nil {
			b.Error(err)
			return
		}
	}
}

// A copy has the records of its time, and no later writes, in either direction.
func TestCopyIsABackup(t *testing.T) {
	ctx := t.Context()
	a := memstore.New()
	rec, _, err := a.Claim(ctx, held("k", "v1"))
	if err != nil {
		t.Fatal(err)
	}
	hints := 0
	if _, err := a.Watch(ctx, "k", func() { hints++ }); err != nil {
		t.Fatal(err)
	}
	b := a.Copy()
	release := func(s *memstore.Store, version string) {
		next := rec
		next.Version, next.State = version, driver.Released
		if _, err := s.Swap(ctx, rec, next); err != nil {
			t.Error(err)
		}
	}
	release(b, "v2")
	if _, _, err := b.Claim(ctx, held("new", "n1")); err != nil {
		t.Error(err)
	}
	if is, err := a.Get(ctx, "k", driver.Strong); err != nil || is.Version != "v1" || hints != 0 {
		t.Errorf("%+v, %v; %d hints", is, err, hints)
	}
	if page, err := a.List(ctx, "", ""); err != nil || len(page.Records) != 1 {
		t.Errorf("%+v, %v", page, err)
	}
	release(a, "v3")
	if is, err := b.Get(ctx, "k", driver.Strong); err != nil || is.Version != "v2" || hints != 1 {
		t.Errorf("%+v, %v; %d hints", is, err, hints)
	}
}
