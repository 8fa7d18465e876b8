// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
)

func TestConformance(t *testing.T) {
	address := enginetest.Shared(t, enginetest.Etcd, "etcd")
	drivertest.Run(t, func(t *testing.T) drivertest.Harness {
		prefix := prefixOf(t)
		h := harness(t, prefix, address)
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		relay := enginetest.NewRelay(t, u.Host)
		h.Open = func(t *testing.T) driver.Store { return mustOpen(t, prefix, "http://"+relay.Addr) }
		h.Hang = func(*testing.T) func() { return relay.Hold() }
		return h
	})
}

// harness is what all tests of conformance have in common.
func harness(t *testing.T, prefix, address string) drivertest.Harness {
	raw := mustOpen(t, prefix, address)
	value := func(t *testing.T, key string) string {
		out, err := raw.client.Get(t.Context(), raw.recordKey(key))
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Kvs) == 0 {
			t.Fatalf("there is no record of %q", key)
		}
		return string(out.Kvs[0].Value)
	}
	set := func(t *testing.T, key, text string) {
		if _, err := raw.client.Put(t.Context(), raw.recordKey(key), text); err != nil {
			t.Fatal(err)
		}
	}
	return drivertest.Harness{
		Open:           func(t *testing.T) driver.Store { return mustOpen(t, prefix, address) },
		Watches:        true,
		Raises:         true,
		EventualReads:  true,
		TimePrecision:  time.Nanosecond,
		LeasePrecision: time.Nanosecond,
		PlantUnreadable: func(t *testing.T, key string) {
			set(t, key, `{"key":"`+key+`","version":"v"}`)
		},
		Plant: func(t *testing.T, rec driver.Record) {
			ops, _ := raw.put(state{}, rec)
			if _, err := raw.client.Txn(t.Context()).Then(ops...).Commit(); err != nil {
				t.Fatal(err)
			}
		},
		PlantLater: func(t *testing.T, key string) {
			set(t, key, strings.TrimSuffix(value(t, key), "}")+`,"later":"kept"}`)
		},
		HasLater: func(t *testing.T, key string) bool { return strings.Contains(value(t, key), `"later":"kept"`) },
		OlderState: func(t *testing.T, key string) driver.State {
			var older struct{ State driver.State }
			if err := json.Unmarshal([]byte(value(t, key)), &older); err != nil {
				t.Fatal(err)
			}
			return older.State
		},
	}
}

func prefixOf(t *testing.T) string {
	return "test/" + strings.ReplaceAll(t.Name(), "/", "_") + time.Now().Format("-150405.000000000") + "/"
}

// mustOpen opens a store that ends with the test.
func mustOpen(t testing.TB, prefix string, endpoints ...string) *Store {
	t.Helper()
	var s *Store
	enginetest.Eventually(t, "a store", func(context.Context) (err error) { // perhaps the etcd elects a leader
		s, err = Open(t.Context(), clientv3.Config{Endpoints: endpoints, DialTimeout: 20 * time.Second}, &Options{Prefix: prefix})
		return err
	})
	s.page = 7
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
