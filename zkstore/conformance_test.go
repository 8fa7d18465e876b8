// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package zkstore

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/zkstore/internal/wire"
)

func TestConformance(t *testing.T) {
	address := enginetest.Shared(t, enginetest.ZooKeeper, "zookeeper")
	drivertest.Run(t, func(t *testing.T) drivertest.Harness {
		root := rootOf(t)
		h := harness(t, root, address)
		relay := enginetest.NewRelay(t, address)
		h.Open = func(t *testing.T) driver.Store { return mustOpen(t, root, relay.Addr) }
		h.Hang = func(*testing.T) func() { return relay.Hold() }
		return h
	})
}

// harness is what all tests of conformance have in common.
func harness(t *testing.T, root, address string) drivertest.Harness {
	raw := mustOpen(t, root, address)
	do := func(t *testing.T, requests ...wire.Request) wire.Reply {
		t.Helper()
		replies, err := raw.client.Do(t.Context(), requests...)
		if err != nil {
			t.Fatal(err)
		}
		if code, err := replies[0].Failed(); len(requests) == 1 && requests[0].Size() > 0 && replies[0].Code != wire.OK {
			t.Fatalf("%v, %v", code, err)
		}
		return replies[0]
	}
	value := func(t *testing.T, key string) string {
		replies, err := raw.client.Do(t.Context(), barrier(), wire.GetData(raw.path(key))) // the server may be behind
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := replies[1].Data()
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	set := func(t *testing.T, key, text string) {
		do(t, wire.Alone(wire.SetData(raw.path(key), []byte(text), wire.AnyVersion)))
	}
	plant := func(t *testing.T, key, text string) {
		t.Helper()
		path := raw.path(key)
		if err := raw.makeFolders(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		do(t, wire.Multi(wire.Create(path, []byte(text), raw.acl), wire.Create(path+"/planted", nil, raw.acl)))
	}
	return drivertest.Harness{
		Open:           func(t *testing.T) driver.Store { return mustOpen(t, root, address) },
		Watches:        true,
		Raises:         true,
		EventualReads:  true,
		TimePrecision:  time.Nanosecond,
		LeasePrecision: time.Nanosecond,
		PlantUnreadable: func(t *testing.T, key string) {
			plant(t, key, "planted\n"+`{"key":"`+key+`","version":"v"}`)
		},
		Plant: func(t *testing.T, rec driver.Record) {
			plant(t, rec.Key, string(encode(state{rec: rec, mark: "planted"})))
		},
		PlantLater: func(t *testing.T, key string) {
			set(t, key, strings.TrimSuffix(value(t, key), "}")+`,"later":"kept"}`)
		},
		HasLater: func(t *testing.T, key string) bool { return strings.Contains(value(t, key), `"later":"kept"`) },
		OlderState: func(t *testing.T, key string) driver.State {
			var older struct{ State driver.State }
			_, text, _ := strings.Cut(value(t, key), "\n")
			if err := json.Unmarshal([]byte(text), &older); err != nil {
				t.Fatal(err)
			}
			return older.State
		},
	}
}

func rootOf(t *testing.T) string {
	return "/" + strings.ReplaceAll(t.Name(), "/", "_") + time.Now().Format("-150405.000000000")
}

// mustOpen opens a store that ends with the test.
func mustOpen(t testing.TB, root string, hosts ...string) *Store {
	t.Helper()
	s, err := Open(t.Context(), hosts, &Options{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	s.page = 7
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
