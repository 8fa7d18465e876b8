// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package gcsstore

import (
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/buckets"
)

func TestConformance(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Harness { return harness(t, newSite(t)) })
}

func TestFakeGCSConformance(t *testing.T) {
	server := enginetest.StartFakeGCS(t, "locks")
	drivertest.Run(t, func(t *testing.T) drivertest.Harness { return harness(t, siteAt(server.URL)) })
}

func harness(t *testing.T, s site) drivertest.Harness {
	prefix := buckets.NewPrefix()
	h := buckets.Harness(newObjects(s.client(t), s.bucket, nil), s.open(t, prefix).Store, func(t *testing.T) driver.Store { return s.open(t, prefix) })
	if host, ok := strings.CutPrefix(s.url, "http://"); ok {
		relay := enginetest.NewRelay(t, host)
		relayed := site{"http://" + relay.Addr, s.bucket}
		h.Open = func(t *testing.T) driver.Store { return relayed.open(t, prefix) }
		h.Hang = func(*testing.T) func() { return relay.Hold() }
	}
	return h
}
