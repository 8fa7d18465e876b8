// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package azblobstore

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

func TestAzuriteConformance(t *testing.T) {
	s := azurite(t)
	drivertest.Run(t, func(t *testing.T) drivertest.Harness { return harness(t, s) })
}

func harness(t *testing.T, s site) drivertest.Harness {
	prefix := buckets.NewPrefix()
	h := buckets.Harness(s.objects(t), s.open(t, prefix).Store, func(t *testing.T) driver.Store { return s.open(t, prefix) })
	u, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	if u.Scheme == "http" {
		relay := enginetest.NewRelay(t, u.Host)
		u.Host = relay.Addr
		relayed := site{u.String()}
		h.Open = func(t *testing.T) driver.Store { return relayed.open(t, prefix) }
		h.Hang = func(*testing.T) func() { return relay.Hold() }
	}
	return h
}
