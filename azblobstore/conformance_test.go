// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package azblobstore

import (
	"net/url"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/buckets"
)

func TestAzuriteConformance(t *testing.T) {
	s := newSite(t)
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

func TestAzuriteRace(t *testing.T) {
	if err := Race(t.Context(), []*container.Client{newSite(t).client(t)}, nil); err != nil {
		t.Error(err)
	}
	if err := Race(t.Context(), nil, nil); err == nil {
		t.Error("the race needs a client")
	}
}
