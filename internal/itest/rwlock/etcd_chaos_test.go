// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/etcdstore"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/rwlock"
)

// connectEtcd returns a client of the shared etcd.
func connectEtcd(t *testing.T) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{enginetest.Shared(t, enginetest.Etcd, "etcd")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// soon returns what is sent, and fails if nothing is for long.
func soon[T any](t *testing.T, what string, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(awaited):
		t.Fatalf("no %s", what)
	}
	return got
}

// The lock of etcd's recipes never looks whether its own key is still there: a writer whose
// session is revoked while it waits gets the lock all the same, beside the next one
// (etcd#16221).
func TestEtcd16221OfThePeer(t *testing.T) {
	c := connectEtcd(t)
	prefix := "recipe-" + cryptorand.Text()
	var sessions []*concurrency.Session
	var locks []*recipe.RWMutex
	for range 3 {
		s, err := concurrency.NewSession(c, concurrency.WithTTL(60))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		sessions, locks = append(sessions, s), append(locks, recipe.NewRWMutex(s, prefix))
	}
	if err := locks[0].Lock(); err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() { waited <- locks[1].Lock() }()
	keys := func(n int64) {
		t.Helper()
		for end := time.Now().Add(awaited); ; time.Sleep(10 * time.Millisecond) {
			r, err := c.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err == nil && r.Count == n {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d keys are not there: %v, %v", n, r, err)
			}
		}
	}
	keys(2)
	if _, err := c.Revoke(t.Context(), sessions[1].Lease()); err != nil {
		t.Fatal(err)
	}
	keys(1)
	if err := locks[0].Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := soon(t, "answer to the writer whose session was revoked", waited); err != nil {
		t.Fatalf("etcd's recipes have mended this, so say here from which version on: %v", err)
	}
	beside := make(chan error, 1)
	go func() { beside <- locks[2].Lock() }()
	if err := soon(t, "answer to the third writer", beside); err != nil {
		t.Fatalf("the peer's failing does not show: %v", err)
	}
}

// Here a writer that loses its session while it waits does not get the lock.
func TestEtcd16221(t *testing.T) {
	c := connectEtcd(t)
	prefix := "tenure-" + cryptorand.Text() + "/"
	open := func(owner string) (*rwlock.Lock, *faultstore.Store) {
		store, err := etcdstore.New(c, &etcdstore.Options{Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		faults := faultstore.New(store, nil)
		client, err := tenure.New(faults.Driver(), &tenure.Options{Owner: owner, LeaseDuration: lease, RefreshPeriod: lease / 20})
		if err != nil {
			t.Fatal(err)
		}
		session, err := client.OpenSession(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		l, err := rwlock.New(client, "file", &rwlock.Options{Session: session})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close(context.WithoutCancel(t.Context())) })
		return l, faults
	}
	first, _ := open("first")
	lost, faults := open("lost")
	next, _ := open("next")

	held, err := first.AcquireWrite(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() { _, err := lost.AcquireWrite(t.Context(), nil); waited <- err }()
	for end := time.Now().Add(awaited); ; time.Sleep(10 * time.Millisecond) {
		s, err := first.Status(t.Context())
		if err == nil && s.Front != "" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("it does not wait: %+v, %v", s, err)
		}
	}
	faults.SetBlackHole(true)
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := soon(t, "answer to the writer without a session", waited); !errors.Is(err, tenure.ErrSessionClosed) && !errors.Is(err, tenure.ErrLost) {
		t.Errorf("the writer that was cut off: %v", err)
	}
	faults.SetBlackHole(false)
	held, err = next.AcquireWrite(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(held.Check(), held.Release(t.Context())); err != nil {
		t.Error(err)
	}
}
