// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package s3store

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
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
		prefix := newPrefix()
		h := harnessAt(t, siteAt(gateways[0].URL), prefix)
		for _, g := range gateways {
			h.Servers = append(h.Servers, func(t *testing.T) driver.Store { return siteAt(g.URL).open(t, prefix) })
		}
		h.Hang = nil
		return h
	})
}

func harness(t *testing.T, s site) drivertest.Harness {
	prefix := newPrefix()
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
	raw := newObjects(s.client(t), s.bucket)
	names := s.open(t, prefix)
	read := func(t *testing.T, key string) (text, tag string) {
		body, tag, err := raw.Get(t.Context(), names.ObjectName(key))
		if err != nil {
			t.Fatal(err)
		}
		return string(body), tag
	}
	set := func(t *testing.T, key, text, tag string) {
		if _, err := raw.Put(t.Context(), names.ObjectName(key), []byte(text), tag); err != nil {
			t.Fatal(err)
		}
	}
	return drivertest.Harness{
		Open:                func(t *testing.T) driver.Store { return s.open(t, prefix) },
		Raises:              true,
		TokensOutliveDelete: names.KeepsTokens(),
		TimePrecision:       time.Nanosecond,
		LeasePrecision:      time.Nanosecond,
		Ops:                 200,
		PlantUnreadable:     func(t *testing.T, key string) { set(t, key, `{"key":"`+key+`","version":"v"}`, "") },
		Plant:               func(t *testing.T, rec driver.Record) { set(t, rec.Key, recordcodec.Encode(rec), "") },
		PlantLater: func(t *testing.T, key string) {
			text, tag := read(t, key)
			set(t, key, strings.TrimSuffix(text, "}")+`,"later":"kept"}`, tag)
		},
		HasLater: func(t *testing.T, key string) bool {
			text, _ := read(t, key)
			return strings.Contains(text, `"later":"kept"`)
		},
		OlderState: func(t *testing.T, key string) driver.State {
			text, _ := read(t, key)
			var older struct{ State driver.State }
			if err := json.Unmarshal([]byte(text), &older); err != nil {
				t.Fatal(err)
			}
			return older.State
		},
	}
}
