// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// storeRig returns a rig with the engine of one of Tenure's other stores, and the store's
// subject.
func storeRig(t *testing.T, name string) (*rig, subject) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	chosen, err := pick(subjects, name, "library", subject.id)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{versions: map[string]string{}, program: program, dir: t.TempDir(), say: t.Logf}
	switch chosen[0].on {
	case postgreSQL:
		if r.database, err = newDatabase(t.Context(), enginetest.PostgreSQL(t)); err == nil {
			t.Cleanup(func() {
				if err := r.database.close(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			})
		}
	case etcdEngine:
		if r.etcd, err = startEtcd(t.Context()); err == nil {
			t.Cleanup(r.etcd.close)
		}
	case apiServer:
		if r.cluster, err = newCluster(enginetest.Shared(t, enginetest.Kubernetes, "kubernetes")); err == nil {
			t.Cleanup(r.cluster.close)
		}
	case bucket:
		r.gateway = enginetest.Shared(t, gatewayEnv, "versitygw")
	case zooKeeper:
		r.zookeeper = enginetest.Shared(t, enginetest.ZooKeeper, "zookeeper")
	default:
		t.Fatalf("%s is on %s", name, chosen[0].on)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r, chosen[0]
}

// onStores runs a test on each of Tenure's other stores but Kubernetes and the bucket, whose
// engines take minutes to build: they have the tests TestKubernetes and TestVersitygw, which
// make kubernetes and make buckets run.
func onStores(t *testing.T, test func(*testing.T, *rig, subject)) {
	t.Parallel()
	for name := range tenureStores {
		if name == onKubernetesName || name == inBucketName {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, s := storeRig(t, name)
			test(t, r, s)
		})
	}
}

// TestStores throws some faults at Tenure on its other stores.
func TestStores(t *testing.T) {
	onStores(t, func(t *testing.T, r *rig, s subject) { throwSome(t, r, s, "lost-acquire", "tokens") })
}

// TestKubernetes throws some faults at Tenure on Kubernetes: the column of the table, in
// small. One comes after the other, as in the table: an API server is slow.
func TestKubernetes(t *testing.T) {
	r, s := storeRig(t, onKubernetesName)
	for _, id := range []string{"lost-acquire", "lost-heartbeat", "lost-cut", "black-hole", "stopped", "close-waiting", "dead-try", endAtWorkRow, "tokens"} {
		throwSome(t, r, s, id)
	}
}

// TestVersitygw does so to Tenure in a bucket.
func TestVersitygw(t *testing.T) {
	r, s := storeRig(t, inBucketName)
	throwSome(t, r, s, "lost-acquire", "lost-heartbeat", "lost-cut", "black-hole", "stopped", "close-waiting", "dead-try", endAtWorkRow, "tokens")
}

// throwSome throws some faults at Tenure, which must pass them.
func throwSome(t *testing.T, r *rig, s subject, ids ...string) {
	t.Helper()
	if versions, err := r.engines(t.Context(), []subject{s}); err != nil || versions[s.on] == "" {
		t.Errorf("versions %v, %v", versions, err)
	}
	var wg sync.WaitGroup
	for _, row := range rows {
		if !slices.Contains(ids, row.id) {
			continue
		}
		ids = slices.DeleteFunc(ids, func(id string) bool { return id == row.id })
		wg.Go(func() {
			cells, err := r.row(t.Context(), row, []subject{s})
			c := cells[s.name]
			t.Logf("%s: %s: %s", row.id, c.Verdict, c.Seen)
			if err != nil || c.Verdict != passed {
				t.Errorf("%s: %s, %s, %v; want %s", row.id, c.Verdict, c.Seen, err, passed)
			}
		})
	}
	wg.Wait()
	if len(ids) > 0 {
		t.Errorf("there are no rows %v", ids)
	}
}

// TestStoreWrites: of all that a store sends, the gate takes its writes of records for
// writes, each once, and nothing else; in whatever pieces the bytes come.
func TestStoreWrites(t *testing.T) { onStores(t, gateKnowsWrites) }

// TestKubernetesWrites is TestStoreWrites on Kubernetes.
func TestKubernetesWrites(t *testing.T) {
	r, s := storeRig(t, onKubernetesName)
	gateKnowsWrites(t, r, s)
}

// TestVersitygwWrites is TestStoreWrites in a bucket.
func TestVersitygwWrites(t *testing.T) {
	r, s := storeRig(t, inBucketName)
	gateKnowsWrites(t, r, s)
}

func gateKnowsWrites(t *testing.T, r *rig, s subject) {
	t.Helper()
	ctx := t.Context()
	c, err := r.scene(ctx, s, s.lease)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close(ctx)
	direct, err := c.direct()
	if err != nil {
		t.Fatal(err)
	}
	var bytewise, whole atomic.Int64
	g, err := gate.NewTCPWrites(direct, func() func([]byte) bool {
		one, all := tenureStores[s.name].writes(), tenureStores[s.name].writes()
		return func(piece []byte) bool {
			for i := range piece {
				if one(piece[i : i+1]) {
					bytewise.Add(1)
				}
			}
			if all(piece) {
				whole.Add(1)
			}
			return false
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	endpoint, err := c.endpoint(g.Address())
	if err != nil {
		t.Fatal(err)
	}
	store, err := tenureStores[s.name].open(ctx, endpoint, c.place)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	key, want := c.lock(), int64(0)
	step := func(what string, writes int64, do func() error) {
		t.Helper()
		if err := do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		want += writes
		if bytewise.Load() != want || whole.Load() != want {
			t.Errorf("after %s the gate has seen %d writes, and %d in pieces of one byte; want %d", what, whole.Load(), bytewise.Load(), want)
		}
	}
	rec := driver.Record{Key: key, Version: "1", Beat: "1", Owner: "a", State: driver.Held, Lease: time.Minute}
	step("opening", 0, func() error { return nil })
	if watcher, ok := store.(driver.Watcher); ok {
		step("a watch", 0, func() error {
			stop, err := watcher.Watch(ctx, key, func() {})
			if err == nil {
				t.Cleanup(stop)
			}
			return err
		})
	}
	step("a claim", 1, func() (err error) {
		rec, _, err = store.Claim(ctx, rec)
		return err
	})
	step("looks", 0, func() error {
		for _, how := range []driver.Consistency{driver.Strong, driver.Eventual} {
			if _, err := store.Get(ctx, key, how); err != nil {
				return err
			}
			if s.isOnKubernetes() || s.on == bucket {
				continue // there one object is read at a time
			}
			if _, err := store.(driver.BatchGetter).GetBatch(ctx, []string{key, key + "x"}, how); err != nil {
				return err
			}
		}
		_, err := store.List(ctx, "", "")
		return err
	})
	swap := func(change func(next *driver.Record)) func() error {
		return func() (err error) {
			next := rec
			change(&next)
			rec, err = store.Swap(ctx, rec, next)
			return err
		}
	}
	step("a heartbeat", 1, swap(func(next *driver.Record) { next.Version, next.Beat = "2", "2" }))
	step("a release", 1, swap(func(next *driver.Record) { next.Version, next.State = "3", driver.Released }))
	step("a deletion", 1, func() error { return store.Delete(ctx, rec) })
}

// TestPostgresBegins: a connection may ask for encryption before it begins, and its
// beginning has another form than what follows.
func TestPostgresBegins(t *testing.T) {
	isWrite := postgresWrites()
	for i, m := range []struct {
		message pgproto3.FrontendMessage
		want    bool
	}{
		{&pgproto3.GSSEncRequest{}, false},
		{&pgproto3.SSLRequest{}, false},
		{&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"user": "UPDATE "}}, false},
		{&pgproto3.Query{String: "LISTEN a"}, false},
		{&pgproto3.Parse{Query: "SELECT state FROM t"}, false},
		{&pgproto3.Parse{Query: "WITH a AS (UPDATE t SET state = $1) SELECT 1"}, true},
		{&pgproto3.Bind{Parameters: [][]byte{[]byte("UPDATE t")}}, false},
		{&pgproto3.Sync{}, false},
		{&pgproto3.Parse{Query: "DELETE FROM t"}, true},
	} {
		text, err := m.message.Encode(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := isWrite(text); got != m.want {
			t.Errorf("%d, %T is a write: %v", i, m.message, got)
		}
	}
}
