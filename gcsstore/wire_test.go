// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package gcsstore

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/storage"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/buckets"
)

// answering is a server that answers with a status, and a reason if it is not empty.
func answering(status int, reason string) *buckets.Answer {
	a := &buckets.Answer{Status: status}
	if reason != "" {
		a.Header = map[string]string{"Content-Type": "application/json"}
		a.Body = fmt.Sprintf(`{"error":{"code":%d,"message":"of a test","errors":[{"reason":%q,"message":"of a test"}]}}`, status, reason)
	}
	return a
}

// objectsAt returns the objects of a client whose settings ask for retries.
func objectsAt(t *testing.T, url string) *objects {
	t.Helper()
	client := siteAt(url).client(t)
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
			a := answering(c.status, c.reason)
			err := buckets.EachIsOne(t, objectsAt(t, a.Serve(t)), "7", a)
			if got := buckets.OutcomeOf(err); got != c.want {
				t.Errorf("%s, want %s: %v", got, c.want, err)
			}
		})
	}
}

// TestNoAnswer: a connection that ends after the request leaves the outcome open, and is not
// tried again; a refused connection leaves nothing open.
func TestNoAnswer(t *testing.T) {
	a := &buckets.Answer{Cut: true}
	nobody := siteAt(fmt.Sprintf("http://127.0.0.1:%d", enginetest.FreePort(t)))
	_ = buckets.NoAnswer(t, objectsAt(t, a.Serve(t)), a, newObjects(nobody.client(t), "locks", nil))
}

// TestBrokenAnswer: an object that is replaced while the answer about it is cut off is not
// read as absent.
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

// TestNoGeneration: a server that returns no generation is refused, as is an invalid tag.
func TestNoGeneration(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	defer server.Close()
	o := newObjects(siteAt(server.URL).client(t), "locks", nil)
	if _, tag, err := o.Get(t.Context(), "name"); err != nil || tag != "" {
		t.Errorf("a read: tag %q, %v", tag, err)
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

// TestWrite: a write is one request, whatever its length. It names the generation that it
// replaces, has a checksum, and keeps caches away; a deletion names the generation too.
func TestWrite(t *testing.T) {
	body := slices.Repeat([]byte("x"), 2*driver.MaxDataLen)
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.Query().Get("ifGenerationMatch"))
		if r.Method == http.MethodDelete {
			return
		}
		object, media, err := uploaded(r)
		sum := base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.Checksum(media, castagnoli)))
		if err != nil || object.Name != "name" || object.CacheControl != "no-store" || object.CRC32C != sum || !bytes.Equal(media, body) {
			t.Errorf("%+v of %d bytes, whose checksum is %s: %v", object, len(media), sum, err)
		}
		_, _ = w.Write([]byte(`{"generation":"8"}`))
	}))
	defer server.Close()
	o := newObjects(siteAt(server.URL).client(t), "locks", nil)
	for _, tag := range []string{"", "7"} {
		if got, err := o.Put(t.Context(), "name", body, tag); err != nil || got != "8" {
			t.Errorf("tag %q, %v", got, err)
		}
	}
	if err := o.Delete(t.Context(), "name", "8"); err != nil {
		t.Error(err)
	}
	if want := []string{"POST 0", "POST 7", "DELETE 8"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
}

// uploaded reads an upload of two parts: what it says of its object, and the object.
func uploaded(r *http.Request) (object struct{ Name, CacheControl, CRC32C string }, media []byte, err error) {
	_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return object, nil, err
	}
	parts := multipart.NewReader(r.Body, params["boundary"])
	part, err := parts.NextPart()
	if err == nil {
		err = json.NewDecoder(part).Decode(&object)
	}
	if err != nil {
		return object, nil, err
	}
	if part, err = parts.NextPart(); err == nil {
		media, err = io.ReadAll(part)
	}
	return object, media, err
}

// direct asks a server without a network: time stands still meanwhile.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	answer := httptest.NewRecorder()
	d.ServeHTTP(answer, r)
	return answer.Result(), nil
}

// TestWritesAreLimited: the service refuses a write of an object within a second after another
// one. After that the next write waits, and the writes of a race wait from the beginning.
func TestWritesAreLimited(t *testing.T) {
	a := answering(http.StatusTooManyRequests, "rateLimitExceeded")
	synctest.Test(t, func(t *testing.T) {
		web := &http.Client{Transport: direct{a}}
		client := newClient(t, option.WithEndpoint("http://bucket.test/storage/v1/"), option.WithHTTPClient(web))
		o := newObjects(client, "locks", nil)
		takes := func(what string, want time.Duration, put func(ctx context.Context, name string, body []byte, tag string) (string, error), name string) {
			t.Helper()
			begun := time.Now()
			if _, err := put(t.Context(), name, []byte("body"), "7"); buckets.OutcomeOf(err) != buckets.Slow || time.Since(begun) != want {
				t.Errorf("%s takes %v, want %v: %v", what, time.Since(begun), want, err)
			}
		}
		takes("the first", 0, o.Put, "one")
		takes("the second", writePause, o.Put, "one")
		takes("one of another object", 0, o.Put, "another")
		takes("one of a race", writePause, slowly{o}.Put, "raced")
	})
}

// TestOpen: without rights, or a bucket, nothing is tried again, and the sentence says what to
// do.
func TestOpen(t *testing.T) {
	for _, c := range []struct {
		status       int
		reason, says string
	}{
		{http.StatusForbidden, "forbidden", "Storage Object User"},
		{http.StatusNotFound, "notFound", "no such bucket"},
	} {
		for _, trust := range []bool{false, true} {
			a := answering(c.status, c.reason)
			_, err := Open(t.Context(), siteAt(a.Serve(t)).client(t), "locks", &Options{TrustServer: trust})
			if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), c.says) || a.Requests() != 1 {
				t.Errorf("trust %t: %d requests: %v", trust, a.Requests(), err)
			}
		}
	}
}

// TestTrustServer: without a trial deletions count as unconditional.
func TestTrustServer(t *testing.T) {
	s, err := New(siteAt("http://127.0.0.1").client(t), "locks", &Options{TrustServer: true})
	if err != nil || !s.KeepsTokens() {
		t.Errorf("%v, %v", s, err)
	}
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
	server := answering(http.StatusNotFound, "notFound").Serve(t)
	relay := enginetest.NewRelay(t, strings.TrimPrefix(server, "http://"))
	closed := 0
	s, err := New(siteAt("http://"+relay.Addr).client(t), "locks", &Options{CloseIdleConnections: func() { closed++ }})
	if err != nil {
		t.Fatal(err)
	}
	buckets.IdleConnectionsGo(t, relay, s, func() int { return closed })
}
