// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// wire counts the requests that leave a client, each attempt of its own, and makes them
// fail.
type wire struct {
	mu    sync.Mutex
	sent  []string
	fault func(*http.Request) fault
}

type fault int

const (
	pass      fault = iota
	dropReply       // the API server gets it, the client no reply
	refuse          // the connection ends before the API server gets it
	throttle        // it is answered 429, and the API server gets nothing
	answer500       // the API server gets it, the client an answer of 500
)

// on returns a config whose requests go over the wire.
func (w *wire) on(config *rest.Config) *rest.Config {
	c := rest.CopyConfig(config)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return &wired{w, next} })
	return c
}

type wired struct {
	*wire
	next http.RoundTripper
}

func (w *wired) WrappedRoundTripper() http.RoundTripper { return w.next }

var errCut = errors.New("the connection was cut")

func (w *wired) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.sent = append(w.sent, r.Method+" "+r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:])
	f := pass
	if w.fault != nil {
		f = w.fault(r)
	}
	w.mu.Unlock()
	switch f {
	case refuse:
		return nil, errCut
	case throttle:
		return answered(r, http.StatusTooManyRequests, http.Header{"Retry-After": {"1"}}), nil
	}
	answer, err := w.next.RoundTrip(r)
	if err != nil || f == pass {
		return answer, err
	}
	_, _ = io.Copy(io.Discard, answer.Body) // it was carried out
	_ = answer.Body.Close()
	if f == answer500 {
		return answered(r, http.StatusInternalServerError, http.Header{"Retry-After": {"1"}}), nil
	}
	return nil, errCut
}

func answered(r *http.Request, code int, header http.Header) *http.Response {
	header.Set("Content-Type", "application/json")
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"of a test","code":%d}`, code)
	return &http.Response{StatusCode: code, Header: header, Request: r, Body: io.NopCloser(strings.NewReader(body)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
}

// requests returns those since the last call.
func (w *wire) requests() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	sent := w.sent
	w.sent = nil
	return sent
}

func (w *wire) set(f func(*http.Request) fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = f
}

// setUp returns a store over a wire, and another store without it.
func setUp(t *testing.T, options *Options) (s, other *Store, w *wire) {
	t.Helper()
	file := enginetest.Shared(t, enginetest.Kubernetes, "kubernetes")
	config, namespace := mustConfig(t, file, "admin"), newNamespace(t, file)
	w = &wire{}
	s, other = mustOpen(t, w.on(config), namespace, options), mustOpen(t, config, namespace, options)
	w.requests()
	return s, other, w
}

func beat(rec driver.Record) driver.Record {
	next := held(rec.Key)
	next.Token = rec.Token
	return next
}

func released(rec driver.Record) driver.Record {
	next := beat(rec)
	next.State, next.End = driver.Released, driver.EndReleased
	return next
}

func TestRoundTrips(t *testing.T) {
	s, other, w := setUp(t, nil)
	ctx := t.Context()
	costs := func(what string, want int, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if sent := w.requests(); len(sent) != want {
			t.Errorf("%s: requests %q, want %d", what, sent, want)
		}
	}
	conflicts := func(what string, err error, version string) {
		t.Helper()
		if conflict := (*driver.ConflictError)(nil); !errors.As(err, &conflict) || conflict.Current.Version != version {
			t.Errorf("%s: %v", what, err)
		}
	}
	rec, _, err := s.Claim(ctx, held("lock"))
	costs("claim of an absent lock", 1, err)
	rec, err = s.Swap(ctx, rec, beat(rec))
	costs("heartbeat", 1, err)
	_, _, err = s.Claim(ctx, held("lock"))
	conflicts("claim of a held lock", err, rec.Version)
	costs("claim of a lock that is known to be held", 1, nil)
	rec, err = s.Swap(ctx, rec, released(rec))
	costs("release", 1, err)
	rec, _, err = s.Claim(ctx, held("lock"))
	costs("claim of a lock that was released here", 1, err)
	rec, err = other.Swap(ctx, rec, beat(rec))
	costs("nothing", 0, err)
	stale := beat(rec)
	_, err = s.Swap(ctx, stale, beat(rec))
	conflicts("heartbeat that conflicts", err, rec.Version)
	costs("heartbeat that conflicts", 1, nil)
	rec, err = other.Swap(ctx, rec, released(rec))
	costs("nothing", 0, err)
	rec, _, err = s.Claim(ctx, held("lock"))
	costs("claim of a lock that was released elsewhere", 2, err)
	_, err = s.Get(ctx, "lock", driver.Strong)
	costs("strong look", 1, err)
	_, err = s.Get(ctx, "lock", driver.Eventual)
	costs("eventual look", 1, err)
	w.requests()
	err = s.Delete(ctx, rec)
	costs("deletion", 1, err)
	rec, _, err = other.Claim(ctx, held("lock"))
	costs("nothing", 0, err)
	_, _, err = s.Claim(ctx, held("lock"))
	conflicts("claim of a lock that is held, and not known", err, rec.Version)
	costs("claim of a lock that is held, and not known", 2, nil)
}

// TestOutcomes: requests that client-go would repeat are sent once, and each error
// says what is certain.
func TestOutcomes(t *testing.T) {
	s, other, w := setUp(t, nil)
	ctx := t.Context()
	rec := mustClaim(t, s, "lock")
	writes := func(f fault) func(*http.Request) fault {
		return func(r *http.Request) fault {
			if r.Method == http.MethodGet {
				return pass
			}
			return f
		}
	}
	for _, c := range []struct {
		name               string
		fault              fault
		applied, throttled bool
		unknown            bool
	}{
		{name: "throttled", fault: throttle, throttled: true},
		{name: "no reply", fault: dropReply, applied: true, unknown: true},
		{name: "an error after it was carried out", fault: answer500, applied: true, unknown: true},
		{name: "cut before it was sent", fault: refuse, unknown: true},
	} {
		for _, op := range []string{"Swap", "Claim", "Delete"} {
			t.Run(c.name+"/"+op, func(t *testing.T) {
				key := "absent-" + hashOf(t.Name())
				is, err := s.Get(ctx, rec.Key, driver.Strong) // so that it is known
				if op == "Delete" {
					is, _, err = s.Claim(ctx, held(key))
				}
				if err != nil {
					t.Fatal(err)
				}
				next := beat(rec)
				w.requests()
				w.set(writes(c.fault))
				switch op {
				case "Swap":
					_, err = s.Swap(ctx, rec, next)
				case "Claim":
					_, _, err = s.Claim(ctx, held(key))
				case "Delete":
					err = s.Delete(ctx, is)
				}
				w.set(nil)
				if sent := w.requests(); len(sent) != 1 {
					t.Errorf("requests: %q, want one", sent)
				}
				if err == nil || errors.Is(err, driver.ErrNotApplied) == c.unknown || errors.Is(err, driver.ErrThrottled) != c.throttled || errors.Is(err, driver.ErrPermanent) {
					t.Errorf("%v", err)
				}
				got, err := other.Get(ctx, map[bool]string{true: rec.Key, false: key}[op == "Swap"], driver.Strong)
				if err != nil && !errors.Is(err, driver.ErrNotFound) {
					t.Fatal(err)
				}
				applied := map[string]bool{"Swap": got.Version == next.Version, "Claim": err == nil, "Delete": err != nil}[op]
				if applied != c.applied {
					t.Errorf("applied: %t, want %t", applied, c.applied)
				}
				if op == "Swap" {
					rec = got
				}
			})
		}
	}
}

// TestHungConnection: what hangs is one connection, and not the store.
func TestHungConnection(t *testing.T) {
	file := enginetest.Shared(t, enginetest.Kubernetes, "kubernetes")
	config, namespace := mustConfig(t, file, "admin"), newNamespace(t, file)
	relay := enginetest.NewRelay(t, addrOf(t, config))
	s := mustOpen(t, through(t, config, relay.Addr), namespace, nil)
	rec := mustClaim(t, s, "lock")
	hints, _ := enginetest.Watched(t, s, "lock") // a watch stands beside
	resume := relay.Hold()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	_, err := s.Swap(ctx, rec, beat(rec))
	cancel()
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrNotApplied) {
		t.Errorf("heartbeat: %v", err)
	}
	resume()
	enginetest.Eventually(t, "a read", func(ctx context.Context) (err error) {
		rec, err = s.Get(ctx, "lock", driver.Strong)
		return err
	})
	enginetest.Eventually(t, "a release", func(ctx context.Context) error {
		now, err := s.Swap(ctx, rec, released(rec))
		if conflict := (*driver.ConflictError)(nil); errors.As(err, &conflict) && conflict.Current.State == driver.Released {
			return nil
		} else if errors.As(err, &conflict) {
			rec = conflict.Current // the late heartbeat
		} else if err == nil {
			rec = now
		}
		return err
	})
	enginetest.WantHint(t, hints, "a release")
}

const patience = time.Minute

func mustClaim(t *testing.T, s *Store, key string) driver.Record {
	t.Helper()
	now, _, err := s.Claim(t.Context(), held(key))
	if err != nil {
		t.Fatal(err)
	}
	return now
}
