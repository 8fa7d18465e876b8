// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package buckets has the tests that all stores on object stores have in common.
package buckets

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/objectmap"
	"github.com/tenurelock/tenure/driver/recordcodec"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/launcher"
)

// NewPrefix returns a prefix that no other test has.
func NewPrefix() string { return "test/" + rand.Text() + "/" }

// Held returns the record of a held lock, for a claim.
func Held(key string) driver.Record {
	version := rand.Text()
	return driver.Record{Key: key, Version: version, Beat: version, Owner: "o", Lease: time.Second, State: driver.Held}
}

// Harness returns a harness for stores that open opens, all below one prefix. It plants and
// reads with raw, in the objects of an open store.
func Harness(raw objectmap.Objects, names *objectmap.Store, open func(t *testing.T) driver.Store) drivertest.Harness {
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
		Open:                open,
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

// Answer is a server that gives one answer to all requests, and counts them.
type Answer struct {
	Status int
	Header map[string]string
	Body   string
	Cut    bool // the connection ends before an answer

	requests atomic.Int64
}

func (a *Answer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.requests.Add(1)
	_, _ = io.Copy(io.Discard, r.Body) // whatever comes
	if a.Cut {
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to end a connection without an answer
	}
	for name, value := range a.Header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(a.Status)
	_, _ = io.WriteString(w, a.Body) // the client may have gone
}

// Serve starts the server, and returns its URL.
func (a *Answer) Serve(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	return server.URL
}

// Requests returns how many there were.
func (a *Answer) Requests() int { return int(a.requests.Load()) }

// Outcome is what an error says of a write.
type Outcome string

// Outcomes.
const (
	Unknown    Outcome = "unknown"
	Slow       Outcome = "slow"
	Mismatch   Outcome = "mismatch"
	Busy       Outcome = "busy"
	NotApplied Outcome = "not applied"
	Permanent  Outcome = "permanent" // and not applied
)

// OutcomeOf returns the outcome of an error.
func OutcomeOf(err error) Outcome {
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case err == nil:
		return "none"
	case is(objectmap.ErrMismatch):
		return Mismatch
	case is(objectmap.ErrBusy):
		return Busy
	case is(driver.ErrPermanent) && !is(driver.ErrNotApplied):
		return "permanent, but unknown"
	case is(driver.ErrPermanent):
		return Permanent
	case is(driver.ErrNotApplied):
		return NotApplied
	case is(driver.ErrThrottled):
		return Slow
	}
	return Unknown
}

// EachIsOne tests that each call of objects is one request to the server, which answers with an
// error, and returns the error of the write. Tag is a tag that the engine could give.
func EachIsOne(t *testing.T, o objectmap.Objects, tag string, server *Answer) (err error) {
	before := server.Requests()
	for what, call := range map[string]func(context.Context) error{
		"a write":    func(ctx context.Context) error { _, err = o.Put(ctx, "name", []byte("body"), tag); return err },
		"a read":     func(ctx context.Context) error { _, _, err := o.Get(ctx, "name"); return err },
		"a deletion": func(ctx context.Context) error { return o.Delete(ctx, "name", tag) },
		"a list":     func(ctx context.Context) error { _, _, err := o.Names(ctx, "", ""); return err },
	} {
		_ = call(t.Context()) // what it says is another matter
		n := server.Requests()
		if n != before+1 {
			t.Errorf("%s took %d requests", what, n-before)
		}
		before = n
	}
	return err
}

// NoAnswer tests that a connection which ends after the request leaves the outcome of a write
// open, and that nothing is sent again; and that a write that reached no server was not applied.
// The server of cut ends all connections; no server listens at the address of nobody. It returns
// the error of the latter.
func NoAnswer(t *testing.T, cut objectmap.Objects, server *Answer, nobody objectmap.Objects) error {
	t.Helper()
	if _, err := cut.Put(t.Context(), "name", []byte("body"), ""); OutcomeOf(err) != Unknown || server.Requests() != 1 {
		t.Errorf("%d requests, %v", server.Requests(), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := cut.Put(ctx, "name", []byte("body"), ""); OutcomeOf(err) != NotApplied ||
		!errors.Is(err, context.Canceled) || server.Requests() != 1 {
		t.Errorf("a context that was over before: %d requests, %v", server.Requests(), err)
	}
	_, err := nobody.Put(t.Context(), "name", []byte("body"), "")
	if OutcomeOf(err) != NotApplied {
		t.Errorf("nobody listens: %v", err)
	}
	return err
}

// IdleConnectionsGo tests that a call without an answer closes the idle connections, since
// the network may have dropped them, and that a call with an answer does not. The store
// reaches an empty server through the relay; closed returns how often it has closed them.
func IdleConnectionsGo(t *testing.T, relay *enginetest.Relay, s driver.Store, closed func() int) {
	t.Helper()
	look := func(within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		_, err := s.Get(ctx, "lock", driver.Strong)
		return err
	}
	if err := look(launcher.Patience); !errors.Is(err, driver.ErrNotFound) || closed() != 0 {
		t.Fatalf("closed %d times, %v", closed(), err)
	}
	resume := relay.Hold()
	if err := look(100 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) || closed() != 1 {
		t.Errorf("a server that hangs: closed %d times, %v", closed(), err)
	}
	resume()
	if err := look(launcher.Patience); !errors.Is(err, driver.ErrNotFound) || closed() != 1 {
		t.Errorf("after that: closed %d times, %v", closed(), err)
	}
	if err := s.Close(); err != nil || closed() != 2 {
		t.Errorf("after Close: closed %d times, %v", closed(), err)
	}
}
