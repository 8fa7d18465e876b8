// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package gcsstore

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"cloud.google.com/go/storage"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/buckets"
)

// answering is a server that gives one answer to all.
type answering struct {
	status int
	reason string // "": no body
	cut    bool   // the connection ends before an answer
	n      atomic.Int64
}

func (a *answering) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	a.n.Add(1)
	switch {
	case a.cut:
		panic(http.ErrAbortHandler)
	case a.reason == "":
		w.WriteHeader(a.status)
	default:
		enginetest.GCSError(w, a.status, a.reason)
	}
}

// at starts a server, and returns objects of a client whose settings ask for retries.
func (a *answering) at(t *testing.T) *objects {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	client := siteAt(server.URL).client(t)
	client.SetRetry(storage.WithPolicy(storage.RetryAlways), storage.WithMaxAttempts(3))
	return newObjects(client, "locks", nil)
}

// TestAnswers: what each answer says of a write, and that each call is one request.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		status int
		reason string
		want   buckets.Outcome
	}{
		{412, "conditionNotMet", buckets.Mismatch},
		{412, "", buckets.Mismatch},
		{412, "orgPolicyConstraintFailed", buckets.Permanent},
		{409, "conflict", buckets.Unknown},
		{409, "", buckets.Unknown},
		{404, "notFound", buckets.Permanent},
		{404, "", buckets.Unknown},
		{400, "invalid", buckets.Unknown},
		{401, "authError", buckets.Permanent},
		{403, "forbidden", buckets.Permanent},
		{403, "", buckets.Permanent},
		{403, "retentionPolicyNotMet", buckets.Permanent},
		{403, "rateLimitExceeded", buckets.Slow},
		{408, "uploadBrokenConnection", buckets.Unknown},
		{413, "uploadTooLarge", buckets.Permanent},
		{429, "rateLimitExceeded", buckets.Slow},
		{429, "", buckets.Slow},
		{500, "backendError", buckets.Unknown},
		{502, "", buckets.Unknown},
		{503, "backendError", buckets.Slow},
		{504, "", buckets.Unknown},
	} {
		t.Run(fmt.Sprint(c.status, c.reason), func(t *testing.T) {
			a := &answering{status: c.status, reason: c.reason}
			err := buckets.EachIsOneAt(t, a.at(t), "7", func() int { return int(a.n.Swap(0)) })
			if got := buckets.OutcomeOf(err); got != c.want {
				t.Errorf("%s, want %s: %v", got, c.want, err)
			}
		})
	}
}

// TestNoAnswer: a connection that ends after the request leaves the outcome open, and is not
// tried again; one that is refused does not.
func TestNoAnswer(t *testing.T) {
	a := &answering{cut: true}
	nobody := siteAt(fmt.Sprintf("http://127.0.0.1:%d", enginetest.FreePort(t)))
	_ = buckets.NoAnswer(t, a.at(t), func() int { return int(a.n.Load()) }, newObjects(nobody.client(t), "locks", nil))
}

// TestBrokenAnswer: an object that is replaced while the answer about it breaks off is not
// taken for absent.
func TestBrokenAnswer(t *testing.T) {
	n := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n++; r.URL.Query().Has("generation") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("X-Goog-Generation", "7")
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("half")) // the client sees that the rest is missing
	}))
	defer server.Close()
	_, _, err := newObjects(siteAt(server.URL).client(t), "locks", nil).Get(t.Context(), "name")
	if err == nil || errors.Is(err, driver.ErrNotFound) || n != 2 {
		t.Errorf("%d requests: %v", n, err)
	}
}

// TestNoGeneration: a server that tells no generation is refused, as is a tag that is none.
func TestNoGeneration(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	defer server.Close()
	o := newObjects(siteAt(server.URL).client(t), "locks", nil)
	if _, tag, err := o.Get(t.Context(), "name"); err != nil || tag != "" {
		t.Errorf("a look: tag %q, %v", tag, err)
	}
	if tag, err := o.Put(t.Context(), "name", []byte("body"), ""); err != nil || tag != "" {
		t.Errorf("a write: tag %q, %v", tag, err)
	}
	for _, tag := range []string{"0", "-1", "x"} {
		if _, err := o.Put(t.Context(), "name", nil, tag); buckets.OutcomeOf(err) != buckets.NotApplied {
			t.Errorf("tag %q: %v", tag, err)
		}
		if err := o.Delete(t.Context(), "name", tag); buckets.OutcomeOf(err) != buckets.NotApplied {
			t.Errorf("tag %q: %v", tag, err)
		}
	}
}

// TestGRPC: the errors of the client that speaks gRPC say that it is the wrong one.
func TestGRPC(t *testing.T) {
	o := newObjects(siteAt("http://127.0.0.1").client(t), "locks", nil)
	for _, code := range []codes.Code{codes.FailedPrecondition, codes.NotFound, codes.Unavailable} {
		if err := o.writeFault(t.Context(), status.Error(code, "of a test")); buckets.OutcomeOf(err) != buckets.Permanent || !strings.Contains(err.Error(), "storage.NewClient") {
			t.Errorf("%v: %v", code, err)
		}
	}
}

// TestRequests: what each call of the store sends.
func TestRequests(t *testing.T) {
	b := enginetest.NewGCSBucket(t)
	s := siteAt(b.URL).open(t, "")
	buckets.Requests(t, b.Bucket, s)
	if got := b.CacheControl(); got != "no-store" {
		t.Errorf("caches are told %q", got)
	}
	b.Break("", nil)
	long := buckets.Held("long")
	long.Data = slices.Repeat([]byte("x"), driver.MaxDataLen)
	enginetest.Claim(t, s, long)
	if got := b.Counts()[http.MethodPut]; got != 1 {
		t.Errorf("all data that there can be: %d writes", got)
	}
}

// TestOddNames: what no folder can be called comes back, in order.
func TestOddNames(t *testing.T) { buckets.OddNames(t, newSite(t).open(t, buckets.NewPrefix())) }

func TestFakeGCSOddNames(t *testing.T) {
	buckets.OddNames(t, siteAt(enginetest.StartFakeGCS(t, "locks").URL).open(t, ""))
}

// TestDenied: without rights nothing is tried again, and the sentence says what to do.
func TestDenied(t *testing.T) {
	b := enginetest.NewGCSBucket(t)
	b.Deny(true)
	_, err := Open(t.Context(), siteAt(b.URL).client(t), b.Name, nil)
	if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "Storage Object User") {
		t.Errorf("%v", err)
	}
	b.Deny(false)
	for _, trust := range []bool{false, true} {
		_, err = Open(t.Context(), siteAt(b.URL).client(t), "another", &Options{TrustServer: trust})
		if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "no such bucket") {
			t.Errorf("trust %t: %v", trust, err)
		}
	}
}

func TestTrustServer(t *testing.T) {
	b := enginetest.NewGCSBucket(t)
	s, err := Open(t.Context(), siteAt(b.URL).client(t), b.Name, &Options{TrustServer: true})
	if err != nil {
		t.Fatal(err)
	}
	buckets.Trusts(t, b.Bucket, s)
}

func TestOptions(t *testing.T) {
	client := siteAt("http://127.0.0.1").client(t)
	if _, err := New(client, "locks", &Options{Prefix: "no-slash"}); err == nil || !strings.HasPrefix(err.Error(), "gcsstore: prefix") {
		t.Errorf("%v", err)
	}
	if _, err := New(nil, "locks", nil); err == nil {
		t.Error("no client, no error")
	}
	if _, err := New(client, "", nil); err == nil {
		t.Error("no bucket, no error")
	}
}

// TestIdleConnectionsGo: after a call without an answer the program's way to close connections
// is taken.
func TestIdleConnectionsGo(t *testing.T) {
	b := enginetest.NewGCSBucket(t)
	relay := enginetest.NewRelay(t, strings.TrimPrefix(b.URL, "http://"))
	closed := 0
	s, err := New(siteAt("http://"+relay.Addr).client(t), b.Name, &Options{CloseIdleConnections: func() { closed++ }})
	if err != nil {
		t.Fatal(err)
	}
	buckets.IdleConnectionsGo(t, relay, s, func() int { return closed })
}
