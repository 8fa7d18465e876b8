// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
)

func TestMain(m *testing.M) {
	enginetest.DefaultSignals() // of the servers that tests start
	os.Exit(m.Run())
}

// TestConformance: the server goes back to its last dump, which is a real loss, and a start.
func TestConformance(t *testing.T) {
	server := enginetest.StartRedis(t)
	drivertest.Run(t, func(t *testing.T) drivertest.Harness {
		options := Options{Prefix: prefixOf(t)}
		h := harness(t, server, options)
		h.Lose = func(t *testing.T) func() {
			mustDo(t, server.Addr, "SAVE")
			dump, err := os.ReadFile(filepath.Join(server.Data, "dump.rdb"))
			if err != nil {
				t.Fatal(err)
			}
			return func() { server.Restore("dump.rdb", dump) }
		}
		return h
	})
}

// TestConformanceOfSingle: on a server that flushes each write nothing is guarded.
func TestConformanceOfSingle(t *testing.T) {
	enginetest.MakeVerify(t)
	server := enginetest.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	drivertest.Run(t, func(t *testing.T) drivertest.Harness {
		return harness(t, server, Options{Prefix: prefixOf(t), Single: true})
	})
}

// harness is what all tests of conformance have in common. It creates the store.
func harness(t *testing.T, server *enginetest.Engine, options Options) drivertest.Harness {
	relay := enginetest.NewRelay(t, server.Addr)
	raw := created(t, server.Addr, options)
	rest := func(t *testing.T, key string) string {
		text, err := mustDo(t, server.Addr, "HGET", raw.recordKey(key), "r").ToString()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	set := func(t *testing.T, key string, fields ...string) {
		mustDo(t, server.Addr, "ZADD", raw.key("names"), "0", key)
		mustDo(t, server.Addr, append([]string{"HSET", raw.recordKey(key)}, fields...)...)
	}
	return drivertest.Harness{
		Open:           func(t *testing.T) driver.Store { return mustOpen(t, relay.Addr, options) },
		Hang:           func(*testing.T) func() { return relay.Hold() },
		Watches:        true,
		Raises:         true,
		TimePrecision:  time.Nanosecond,
		LeasePrecision: time.Nanosecond,
		PlantUnreadable: func(t *testing.T, key string) {
			set(t, key, "f", "2", "v", "v", "t", "1", "s", "held", "r", "{}")
		},
		Plant: func(t *testing.T, rec driver.Record) {
			mustDo(t, server.Addr, "DEL", raw.recordKey(rec.Key))
			set(t, rec.Key, "f", format, "v", rec.Version, "t", tokenText(rec.Token), "s", stateOf(rec), "r", textOf(rec),
				"p", prevOf(rec), "b", briefOf(rec), "d", string(rec.Data), "l", lifeOf(t, server.Addr))
		},
		PlantLater: func(t *testing.T, key string) {
			set(t, key, "r", strings.TrimSuffix(rest(t, key), "}")+`,"later":"kept"}`)
		},
		HasLater: func(t *testing.T, key string) bool { return strings.Contains(rest(t, key), `"later":"kept"`) },
		OlderState: func(t *testing.T, key string) driver.State {
			var older struct{ State driver.State }
			if err := json.Unmarshal([]byte(rest(t, key)), &older); err != nil {
				t.Fatal(err)
			}
			return older.State
		},
	}
}

func prefixOf(testing.TB) string { return time.Now().Format("t150405.000000000") }

// option names one server.
func option(addr string) rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true}
}

// created creates a store, and opens it.
func created(t testing.TB, addr string, options Options) *Store {
	t.Helper()
	s := connect(t, addr, options)
	if _, err := s.Create(t.Context(), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// connect returns a store that ends with the test.
func connect(t testing.TB, addr string, options Options) *Store {
	t.Helper()
	s, err := Connect(option(addr), &options)
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

// mustOpen opens a store that ends with the test.
func mustOpen(t testing.TB, addr string, options Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), option(addr), &options)
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

// mustDo sends a command on a connection of its own.
func mustDo(t testing.TB, addr string, command ...string) rueidis.RedisResult {
	t.Helper()
	out := do(t, addr, command...)
	if err := out.Error(); err != nil && !rueidis.IsRedisNil(err) {
		t.Fatalf("%q: %v", command, err)
	}
	return out
}

func do(t testing.TB, addr string, command ...string) rueidis.RedisResult {
	t.Helper()
	client, err := rueidis.NewClient(option(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	return client.Do(t.Context(), client.B().Arbitrary(command...).Build())
}

// info returns a field of the server's information.
func info(t testing.TB, addr, section, name string) string {
	t.Helper()
	text, err := mustDo(t, addr, "INFO", section).ToString()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func lifeOf(t testing.TB, addr string) string { return info(t, addr, "replication", "master_replid") }
