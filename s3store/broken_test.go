// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package s3store

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/objectmap"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/buckets"
)

// TestBrokenServers: a server that does not keep the conditions of writes is refused.
func TestBrokenServers(t *testing.T) {
	buckets.BrokenServers(t, enginetest.NewBucket, func(t *testing.T, b *enginetest.Bucket) (*Store, error) {
		return Open(t.Context(), siteAt(b.URL).client(t), b.Name, nil)
	})
}

// TestRace: a server that decides first and writes later passes the trial of one process. The
// race of 16 finds it.
func TestRace(t *testing.T) {
	b := enginetest.NewBucket(t)
	s := siteAt(b.URL)
	s.open(t, "")
	buckets.Race(t, b, func() error { return race(t, b.Name, s.client(t), s.client(t)) })
	if err := race(t, "locks", newSite(t).client(t)); err != nil {
		t.Errorf("gofakes3: %v", err)
	}
}

// race has 16 writers write through the clients in turn, as Diagnose does.
func race(t *testing.T, bucket string, clients ...*s3.Client) error {
	t.Helper()
	var ways []objectmap.Objects
	for _, client := range clients {
		ways = append(ways, newObjects(client, bucket))
	}
	return objectmap.Race(t.Context(), ways, DefaultPrefix, raceWriters, raceRounds)
}

func TestVersitygwRace(t *testing.T) {
	gateways := enginetest.StartVersitygw(t, 2, "locks")
	one, other := siteAt(gateways[0].URL).client(t), siteAt(gateways[1].URL).client(t)
	for _, ways := range [][]*s3.Client{{one}, {one, other}} {
		if err := race(t, "locks", ways...); err != nil {
			t.Errorf("%d gateways: %v", len(ways), err)
		}
	}
}

// TestBusyServer: one that says to each second write that another one is under way works.
func TestBusyServer(t *testing.T) {
	b := enginetest.NewBucket(t)
	b.Break(enginetest.BusyEachSecond, nil)
	s := siteAt(b.URL).open(t, "")
	buckets.RunsAgain(t, s)
}

// TestNoConditionalDelete: a server that refuses a deletion under If-Match works, and a lock
// that is deleted leaves its token.
func TestNoConditionalDelete(t *testing.T) {
	b := enginetest.NewBucket(t)
	b.Break(enginetest.NoConditionalDelete, nil)
	s := siteAt(b.URL).open(t, "")
	if left := b.Names(); !s.KeepsTokens() || len(left) > 0 {
		t.Errorf("it keeps tokens: %t; left: %q", s.KeepsTokens(), left)
	}
	rec := enginetest.Claim(t, s, buckets.Held("lock"))
	if err := s.Delete(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	if now := enginetest.Claim(t, s, buckets.Held("lock")); now.Token != rec.Token+1 {
		t.Errorf("token %d after a deletion, want %d", now.Token, rec.Token+1)
	}
}

// directTo returns a store that asks a server so.
func directTo(t *testing.T, b *enginetest.Bucket) *Store {
	t.Helper()
	url := "http://bucket.test"
	s, err := Open(t.Context(), s3.New(s3.Options{
		BaseEndpoint: &url, Region: enginetest.S3Region, UsePathStyle: true, HTTPClient: buckets.Direct{Handler: b},
		Credentials: credentials.NewStaticCredentialsProvider(enginetest.S3Key, enginetest.S3Secret, ""),
	}), b.Name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestServerFails: a server answers 500 to writes that it has applied.
func TestServerFails(t *testing.T) {
	b := enginetest.NewBucket(t)
	buckets.ServerFails(t, b, func(t *testing.T) driver.Store { return directTo(t, b) })
}
