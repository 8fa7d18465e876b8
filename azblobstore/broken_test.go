// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package azblobstore

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/buckets"
)

// TestBrokenServers: a server that does not keep the conditions of writes is refused.
func TestBrokenServers(t *testing.T) {
	buckets.BrokenServers(t, enginetest.NewContainer, func(t *testing.T, b *enginetest.Bucket) (*Store, error) {
		return Open(t.Context(), siteAt(b).client(t), nil)
	})
}

// TestRace: a server that decides first and writes later passes the trial of one process. The
// race of 16 finds it.
func TestRace(t *testing.T) {
	b := enginetest.NewContainer(t)
	s := siteAt(b)
	s.open(t, "")
	clients := []*container.Client{s.client(t), s.client(t)}
	buckets.Race(t, b, func() error { return Race(t.Context(), clients, nil) })
	if err := Race(t.Context(), nil, nil); err == nil {
		t.Error("a race without a client")
	}
}

func TestAzuriteRace(t *testing.T) {
	if err := Race(t.Context(), []*container.Client{azurite(t).client(t)}, nil); err != nil {
		t.Error(err)
	}
}

// TestBusyServer: each second write is refused, in one of these ways, and the server works.
func TestBusyServer(t *testing.T) {
	b := enginetest.NewContainer(t)
	for _, busy := range []struct {
		status int
		code   string
	}{
		{http.StatusConflict, "BlobAlreadyExists"},
		{http.StatusConflict, "OperationTimedOut"},
		{http.StatusPreconditionFailed, "ConditionNotMet"},
		{http.StatusTooManyRequests, "TooManyRequests"},
		{http.StatusServiceUnavailable, "ServerBusy"},
	} {
		t.Run(fmt.Sprint(busy.status, busy.code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b.Break("", nil)
				s := directTo(t, b)
				b.BreakBusy(busy.status, busy.code)
				buckets.RunsAgain(t, s)
			})
		})
	}
}

// directTo returns a store that asks a server without a network.
func directTo(t *testing.T, b *enginetest.Bucket) *Store {
	t.Helper()
	s, err := Open(t.Context(), siteAt(b).clientWith(t, buckets.Direct{Handler: b}), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestServerFails: a server answers 500 to writes that it has applied.
func TestServerFails(t *testing.T) {
	b := enginetest.NewContainer(t)
	buckets.ServerFails(t, b, func(t *testing.T) driver.Store { return directTo(t, b) })
}

// TestTrustServer: without a trial deletions count as unconditional, and a lock that is
// deleted leaves its token.
func TestTrustServer(t *testing.T) {
	b := enginetest.NewContainer(t)
	s, err := Open(t.Context(), siteAt(b).client(t), &Options{TrustServer: true})
	if err != nil {
		t.Fatal(err)
	}
	rec := enginetest.Claim(t, s, buckets.Held("lock"))
	if got := b.Counts(); got[http.MethodPut] != 1 || got[http.MethodDelete] != 0 || !s.KeepsTokens() {
		t.Errorf("requests: %v", got)
	}
	if err := s.Delete(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	if now := enginetest.Claim(t, s, buckets.Held("lock")); now.Token != rec.Token+1 {
		t.Errorf("token %d after a deletion, want %d", now.Token, rec.Token+1)
	}
	gone := siteAt(b)
	gone.url += "-elsewhere"
	if _, err := Open(t.Context(), gone.client(t), &Options{TrustServer: true}); !errors.Is(err, driver.ErrPermanent) {
		t.Errorf("no container: %v", err)
	}
}
