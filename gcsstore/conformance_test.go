// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package gcsstore

import (
	"strings"
	"testing"

	"cloud.google.com/go/storage"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/buckets"
)

func TestFakeGCSConformance(t *testing.T) {
	s := newSite(t)
	drivertest.Run(t, func(t *testing.T) drivertest.Harness { return harness(t, s) })
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

func TestFakeGCSRace(t *testing.T) {
	s := newSite(t)
	if err := Race(t.Context(), []*storage.Client{s.client(t), s.client(t)}, s.bucket, nil); err != nil {
		t.Error(err)
	}
	if err := Race(t.Context(), nil, s.bucket, nil); err == nil {
		t.Error("the race needs a client")
	}
}
