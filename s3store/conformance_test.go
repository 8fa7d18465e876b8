// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package s3store

import (
	"net/url"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/objectmap"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/buckets"
)

func TestConformance(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Harness { return harness(t, newSite(t)) })
}

// TestConformanceConditionalDelete: on a server that makes deletions depend on the ETag.
func TestConformanceConditionalDelete(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Harness { return harness(t, siteAt(enginetest.NewBucket(t).URL)) })
}

func TestVersitygwConformance(t *testing.T) {
	gateway := enginetest.StartVersitygw(t, 1, "locks")[0]
	drivertest.Run(t, func(t *testing.T) drivertest.Harness { return harness(t, siteAt(gateway.URL)) })
}

// TestVersitygwTwoGateways: over one folder, each asked in turn.
func TestVersitygwTwoGateways(t *testing.T) {
	gateways := enginetest.StartVersitygw(t, 2, "locks")
	drivertest.Run(t, func(t *testing.T) drivertest.Harness {
		prefix := buckets.NewPrefix()
		h := harnessAt(t, siteAt(gateways[0].URL), prefix)
		for _, g := range gateways {
			h.Servers = append(h.Servers, func(t *testing.T) driver.Store { return siteAt(g.URL).open(t, prefix) })
		}
		h.Hang = nil
		return h
	})
}

func harness(t *testing.T, s site) drivertest.Harness {
	prefix := buckets.NewPrefix()
	h := harnessAt(t, s, prefix)
	u, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	if u.Scheme == "http" {
		relay := enginetest.NewRelay(t, u.Host)
		relayed := s
		relayed.url = "http://" + relay.Addr
		h.Open = func(t *testing.T) driver.Store { return relayed.open(t, prefix) }
		h.Hang = func(*testing.T) func() { return relay.Hold() }
	}
	return h
}

// harnessAt is what all tests of conformance have in common.
func harnessAt(t *testing.T, s site, prefix string) drivertest.Harness {
	return buckets.Harness(newObjects(s.client(t), s.bucket), s.open(t, prefix).Store, func(t *testing.T) driver.Store { return s.open(t, prefix) })
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

func TestRace(t *testing.T) {
	if err := race(t, "locks", newSite(t).client(t)); err != nil {
		t.Errorf("gofakes3: %v", err)
	}
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

// TestNoConditionalDelete: a server that refuses a deletion under If-Match works, and a lock
// that is deleted leaves its token.
func TestNoConditionalDelete(t *testing.T) {
	b := enginetest.NewBucket(t)
	b.Break(enginetest.NoConditionalDelete)
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
