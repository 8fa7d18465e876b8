// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package s3store

import (
	"net/url"
	"testing"

	"github.com/tenurelock/tenure/driver"
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
