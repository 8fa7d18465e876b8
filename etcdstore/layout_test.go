// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/versioned"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestLongData: long data are under a key of their own, come and go with the record, and
// are not stored again by a heartbeat.
func TestLongData(t *testing.T) {
	prefix := prefixOf(t)
	s := mustOpen(t, prefix, enginetest.Shared(t, enginetest.Etcd, "etcd"))
	fresh := mustOpen(t, prefix, enginetest.Shared(t, enginetest.Etcd, "etcd")) // has seen nothing
	long, short := bytes.Repeat([]byte("x"), driver.MaxDataLen), []byte("short")
	claim := held("lock")
	claim.Data = long
	rec := enginetest.Claim(t, s, claim)
	keys := func() []string {
		out, err := s.client.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, kv := range out.Kvs {
			all = append(all, strings.TrimPrefix(string(kv.Key), prefix))
		}
		return all
	}
	writes := func() int64 {
		out, err := s.client.Get(t.Context(), s.dataKey("lock"))
		if err != nil || len(out.Kvs) == 0 {
			t.Fatalf("no data: %v", err)
		}
		return out.Kvs[0].Version
	}
	swap := func(by *Store, change func(*driver.Record)) {
		t.Helper()
		next := held("lock")
		next.Token, next.Data = rec.Token, rec.Data
		change(&next)
		rec = enginetest.Swap(t, by, rec, next)
		for _, reader := range []*Store{s, fresh} {
			if got, err := reader.Get(t.Context(), "lock", driver.Strong); err != nil || !bytes.Equal(got.Data, next.Data) {
				t.Fatalf("%d bytes of data, %v; want %d", len(got.Data), err, len(next.Data))
			}
		}
	}
	if want := []string{"d/lock", "r/lock", "w/lock"}; !slices.Equal(keys(), want) {
		t.Errorf("keys %q, want %q", keys(), want)
	}
	swap(fresh, func(*driver.Record) {})
	swap(fresh, func(*driver.Record) {})
	if n := writes(); n != 1 {
		t.Errorf("the data were written %d times, want once", n)
	}
	swap(s, func(r *driver.Record) { r.Data = short })
	if want := []string{"r/lock", "w/lock"}; !slices.Equal(keys(), want) {
		t.Errorf("keys %q, want %q", keys(), want)
	}
	swap(s, func(r *driver.Record) { r.Data = long[1:] })
	swap(s, func(r *driver.Record) { r.State, r.End = driver.Released, driver.EndReleased })
	// The next holder has them, whether or not it knows of the release.
	for _, by := range []*Store{s, fresh} {
		if rec = enginetest.Claim(t, by, held("lock")); len(rec.Data) != len(long)-1 {
			t.Fatalf("claim: %d bytes of data", len(rec.Data))
		}
		swap(by, func(r *driver.Record) { r.State, r.End = driver.Released, driver.EndReleased })
	}
	if err := s.Delete(t.Context(), driver.Record{Key: "lock", Version: rec.Version, Token: rec.Token}); err != nil {
		t.Fatal(err)
	}
	if left := keys(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestForgetful: a store without its memory takes one more request, and nothing
// else differs.
func TestForgetful(t *testing.T) {
	var m versioned.Memory[state]
	m.Note("k", state{rec: driver.Record{Version: "new"}, rev: 7})
	m.Note("k", state{rec: driver.Record{Version: "old"}, rev: 5})
	if is, ok := m.Of("k"); !ok || is.rec.Version != "new" {
		t.Errorf("an answer that was overtaken counts: %+v", is)
	}
	m.Note("k", state{})
	if _, ok := m.Of("k"); ok {
		t.Error("a deleted record is remembered")
	}
}
