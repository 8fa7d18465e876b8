// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestServers runs the suite on two API servers of one cluster, whose caches differ.
func TestServers(t *testing.T) {
	one := enginetest.StartKubernetes(t)
	two := one.Beside(t)
	drivertest.Run(t, func(t *testing.T) drivertest.Harness {
		options := &Options{Prefix: prefixOf(t)}
		h := harness(t, one.Kubeconfig, options)
		namespace := h.Open(t).(*Store).namespace
		h.Ops, h.Hang = 100, nil // the servers are asked past the relay
		for _, server := range []*enginetest.KubernetesServer{one, two} {
			config := mustConfig(t, server.Kubeconfig, "admin")
			h.Servers = append(h.Servers, func(t *testing.T) driver.Store { return mustOpen(t, config, namespace, options) })
		}
		return h
	})
}

// compact has etcd forget all that was before, by its gateway for JSON.
func compact(t *testing.T, url string) {
	t.Helper()
	ask := func(path, body string) (answer struct{ Header struct{ Revision string } }) {
		got, err := http.Post(url+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer got.Body.Close()
		text, err := io.ReadAll(got.Body)
		if err != nil || got.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", path, text, err)
		}
		if err := json.NewDecoder(bytes.NewReader(text)).Decode(&answer); err != nil {
			t.Fatal(err)
		}
		return answer
	}
	now := ask("/v3/kv/range", `{"key":"AA=="}`).Header.Revision
	ask("/v3/kv/compaction", fmt.Sprintf(`{"revision":%q,"physical":true}`, now))
}

// TestRestartUnderAWatch kills the API server of a watch, releases the record through
// another one, compacts etcd, and starts it again. The watch is set again, and hints.
func TestRestartUnderAWatch(t *testing.T) {
	one := enginetest.StartKubernetes(t)
	two := one.Beside(t)
	namespace := newNamespace(t, one.Kubeconfig)
	watcher := mustOpen(t, mustConfig(t, one.Kubeconfig, "admin"), namespace, nil)
	other := mustOpen(t, mustConfig(t, two.Kubeconfig, "admin"), namespace, nil)
	rec := mustClaim(t, watcher, "lock")
	hints, _ := enginetest.Watched(t, watcher, "lock")
	one.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	if _, err := watcher.Swap(ctx, rec, beat(rec)); err == nil || errors.Is(err, driver.ErrPermanent) {
		t.Errorf("heartbeat without an API server: %v", err)
	}
	cancel()
	_, err := other.Swap(t.Context(), rec, released(rec))
	if err != nil {
		t.Fatal(err)
	}
	compact(t, one.Etcd.URL)
	one.Start()
	one.Await()
	enginetest.WantHint(t, hints, "a release while the API server was away")
	rec, _, err = other.Claim(t.Context(), held("lock"))
	if err != nil {
		t.Fatal(err)
	}
	for len(hints) > 0 {
		<-hints
	}
	if _, err := other.Swap(t.Context(), rec, released(rec)); err != nil {
		t.Fatal(err)
	}
	enginetest.WantHint(t, hints, "a release after that")
	enginetest.Eventually(t, "a read by the API server that is back", func(ctx context.Context) error {
		got, err := watcher.Get(ctx, "lock", driver.Strong)
		if err == nil && got.State != driver.Released {
			t.Fatalf("it shows %+v", got)
		}
		return err
	})
}

// TestHeartbeatsCallNoHint: a watch gets events in order, so a later hint shows that
// there was none before.
func TestHeartbeatsCallNoHint(t *testing.T) {
	s, other, _ := setUp(t, nil)
	rec := mustClaim(t, other, "lock")
	hints, _ := enginetest.Watched(t, s, "lock")
	for i := range 5 {
		next := beat(rec)
		if i == 3 { // a takeover is no news for a waiter either
			next.Token++
		}
		var err error
		if rec, err = other.Swap(t.Context(), rec, next); err != nil {
			t.Fatal(err)
		}
	}
	asked := beat(rec)
	asked.Beat, asked.Requests = rec.Beat, []driver.Request{{ID: "q", Kind: driver.StepDown}}
	if _, err := other.Swap(t.Context(), rec, asked); err != nil {
		t.Fatal(err)
	}
	enginetest.WantHint(t, hints, "a request")
	if n := len(hints); n > 0 {
		t.Errorf("%d more hints", n)
	}
}

// TestWatchStands: Watch returns when the API server has confirmed the watch, and
// misses no change since it began.
func TestWatchStands(t *testing.T) {
	s, other, w := setUp(t, nil)
	rec := mustClaim(t, other, "lock")
	asked, goOn := make(chan struct{}), make(chan struct{})
	w.set(func(r *http.Request) fault {
		if r.URL.Query().Get("watch") != "" {
			close(asked)
			<-goOn
		}
		return pass
	})
	resume := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(resume) // before the store is closed, which waits
	hints, stands := make(chan struct{}, 10), make(chan error, 1)
	var stop func()
	go func() {
		var err error
		stop, err = s.Watch(t.Context(), "lock", func() { hints <- struct{}{} })
		stands <- err
	}()
	await(t, asked, "the request for the watch")
	if _, err := other.Swap(t.Context(), rec, released(rec)); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-stands:
		t.Fatalf("Watch has returned before the watch stood: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	resume()
	if err := <-stands; err != nil {
		t.Fatal(err)
	}
	defer stop()
	enginetest.WantHint(t, hints, "a release while the watch was set up")
}
