// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/versioned"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
)

func TestConformance(t *testing.T) {
	file := enginetest.Shared(t, enginetest.Kubernetes, "kubernetes")
	drivertest.Run(t, func(t *testing.T) drivertest.Harness {
		return harness(t, file, &Options{Prefix: prefixOf(t)})
	})
}

// TestConformanceShared runs the suite on names that electors of client-go share.
func TestConformanceShared(t *testing.T) {
	file := enginetest.Shared(t, enginetest.Kubernetes, "kubernetes")
	drivertest.Run(t, func(t *testing.T) drivertest.Harness {
		return harness(t, file, &Options{Prefix: prefixOf(t), SharedLease: true})
	})
}

// harness is what all tests of conformance have in common.
func harness(t *testing.T, file string, options *Options) drivertest.Harness {
	config, namespace := mustConfig(t, file, "admin"), newNamespace(t, file)
	raw := mustOpen(t, config, namespace, options)
	set := func(t *testing.T, key, note string, value *string) {
		patch := map[string]any{"metadata": map[string]any{"annotations": map[string]*string{note: value}}}
		if err := raw.calls.patch(t.Context(), leases, namespace, raw.object(key), patch, nil); err != nil {
			t.Fatal(err)
		}
	}
	relay := enginetest.NewRelay(t, addrOf(t, config))
	return drivertest.Harness{
		Open: func(t *testing.T) driver.Store {
			return mustOpen(t, through(t, config, relay.Addr), namespace, options)
		},
		Hang:           func(*testing.T) func() { return relay.Hold() },
		Watches:        true,
		Raises:         true,
		EventualReads:  true,
		TimePrecision:  time.Nanosecond,
		LeasePrecision: time.Nanosecond,
		NoSessions:     options.SharedLease,
		Ops:            300,
		PlantUnreadable: func(t *testing.T, key string) {
			plant(t, raw, held(key))
			text := `{"key":"` + key + `","version":"v"}`
			set(t, key, noteRecord, &text)
		},
		Plant: func(t *testing.T, rec driver.Record) { plant(t, raw, rec) },
		PlantLater: func(t *testing.T, key string) {
			text := strings.TrimSuffix(mustLease(t, raw, key).Annotations[noteRecord], "}") + `,"later":"kept"}`
			set(t, key, noteRecord, &text)
		},
		HasLater: func(t *testing.T, key string) bool {
			return strings.Contains(mustLease(t, raw, key).Annotations[noteRecord], `"later":"kept"`)
		},
		OlderState: func(t *testing.T, key string) driver.State {
			var older struct{ State driver.State }
			if err := json.Unmarshal([]byte(mustLease(t, raw, key).Annotations[noteRecord]), &older); err != nil {
				t.Fatal(err)
			}
			return older.State
		},
	}
}

// plant writes a record as it is.
func plant(t *testing.T, s *Store, rec driver.Record) {
	t.Helper()
	is, err := s.read(t.Context(), rec.Key, driver.Strong)
	if err != nil {
		t.Fatal(err)
	}
	if rec.Token == 0 {
		rec.Token = 1
	}
	if _, err := s.apply(t.Context(), &is, versioned.Step{Record: rec}); err != nil {
		t.Fatal(err)
	}
}

func mustLease(t *testing.T, s *Store, key string) v1.Lease {
	t.Helper()
	var o v1.Lease
	if err := s.calls.get(t.Context(), leases, s.namespace, s.object(key), nil, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func prefixOf(t testing.TB) string { return "t-" + hashOf(t.Name())[:12] + "." }

// mustConfig returns how a user reaches the API server.
func mustConfig(t testing.TB, file, user string) *rest.Config {
	t.Helper()
	config, _, err := Config(file, user)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// newNamespace creates a namespace for one test. It stays: the API server alone does not
// empty one.
func newNamespace(t testing.TB, file string) string {
	t.Helper()
	c, err := newClient(rest.CopyConfig(mustConfig(t, file, "admin")))
	if err != nil {
		t.Fatal(err)
	}
	defer c.drop()
	name := "t-" + strings.ReplaceAll(time.Now().Format("150405.000000000"), ".", "-")
	body := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}
	in, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.rest.Post().AbsPath("/api/v1/namespaces").MaxRetries(0).Body(in).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	return name
}

// mustOpen opens a store that ends with the test.
func mustOpen(t testing.TB, config *rest.Config, namespace string, options *Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), config, namespace, options)
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

func held(key string) driver.Record {
	version := "v" + strings.ReplaceAll(time.Now().Format("150405.000000000"), ".", "-")
	return driver.Record{Key: key, Version: version, Beat: version, Owner: "o", Lease: time.Second, State: driver.Held}
}

// through returns the config with the address of a relay.
func through(t testing.TB, config *rest.Config, addr string) *rest.Config {
	t.Helper()
	u, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = addr
	c := rest.CopyConfig(config)
	c.Host = u.String()
	return c
}

func addrOf(t testing.TB, config *rest.Config) string {
	t.Helper()
	u, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}
