// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package gcsstore

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"

	"cloud.google.com/go/storage"
	"google.golang.org/api/option"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/buckets"
)

// TestBrokenServers: a server that does not keep the conditions of writes is refused.
func TestBrokenServers(t *testing.T) {
	start := func(t testing.TB) *enginetest.Bucket { return enginetest.NewGCSBucket(t).Bucket }
	buckets.BrokenServers(t, start, func(t *testing.T, b *enginetest.Bucket) (*Store, error) {
		return Open(t.Context(), siteAt(b.URL).client(t), b.Name, nil)
	})
}

// TestRace: a server that decides first and writes later passes the trial of one process. The
// race of 16 finds it. One that lets an object be written once a second can be tried.
func TestRace(t *testing.T) {
	b := enginetest.NewGCSBucket(t)
	synctest.Test(t, func(t *testing.T) {
		clients := []*storage.Client{directClient(t, b), directClient(t, b)}
		race := func() error { return Race(t.Context(), clients, b.Name, nil) }
		b.LimitWrites(true)
		if err := race(); err != nil || b.Refused() == 0 {
			t.Errorf("a server that limits writes: %v", err)
		}
		b.LimitWrites(false)
		buckets.Race(t, b.Bucket, race)
	})
	if err := Race(t.Context(), nil, b.Name, nil); err == nil {
		t.Error("a race without a client")
	}
}

func TestFakeGCSRace(t *testing.T) {
	s := siteAt(enginetest.StartFakeGCS(t, "locks").URL)
	if err := Race(t.Context(), []*storage.Client{s.client(t), s.client(t)}, "locks", nil); err != nil {
		t.Error(err)
	}
}

// TestBusyServer: each second write is refused, in one of these ways, and the server works.
func TestBusyServer(t *testing.T) {
	b := enginetest.NewGCSBucket(t)
	for _, busy := range []struct {
		status int
		reason string
	}{
		{http.StatusConflict, "conflict"},
		{http.StatusPreconditionFailed, "conditionNotMet"},
		{http.StatusTooManyRequests, "rateLimitExceeded"},
		{http.StatusServiceUnavailable, "backendError"},
	} {
		t.Run(fmt.Sprint(busy.status, busy.reason), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b.Break("", nil)
				s := directTo(t, b)
				b.BreakBusy(busy.status, busy.reason)
				buckets.RunsAgain(t, s)
			})
		})
	}
}

// directClient returns a client that asks a server without a network.
func directClient(t *testing.T, b *enginetest.GCSBucket) *storage.Client {
	t.Helper()
	return newClient(t, option.WithEndpoint("http://bucket.test/storage/v1/"), option.WithHTTPClient(&http.Client{Transport: buckets.Direct{Handler: b}}))
}

// directTo returns a store on such a client.
func directTo(t *testing.T, b *enginetest.GCSBucket) *Store {
	t.Helper()
	s, err := Open(t.Context(), directClient(t, b), b.Name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestServerFails: a server answers 500 to writes that it has applied.
func TestServerFails(t *testing.T) {
	b := enginetest.NewGCSBucket(t)
	buckets.ServerFails(t, b.Bucket, func(t *testing.T) driver.Store { return directTo(t, b) })
}

// TestWritesAreLimited: the service refuses a write of an object within a second after another
// one. Three processes that contend for a lock do well, and do not run into that again and
// again.
func TestWritesAreLimited(t *testing.T) {
	b := enginetest.NewGCSBucket(t)
	synctest.Test(t, func(t *testing.T) {
		buckets.Contend(t, "lock", func(t *testing.T) driver.Store { return directTo(t, b) }, func() {
			b.LimitWrites(true)
			b.Counts()
		})
	})
	writes, refused := b.Counts()[http.MethodPut], b.Refused()
	const tenures, most = 9, 4 // refusals in each of them
	if refused == 0 || refused > most*tenures {
		t.Errorf("%d writes were refused, and %d were not", refused, writes)
	}
}
