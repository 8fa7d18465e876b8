// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package s3store

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/objectmap"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/buckets"
)

// answering is a server that answers with a status, and a code if it is not empty.
func answering(status int, code string) *buckets.Answer {
	a := &buckets.Answer{Status: status}
	if code != "" {
		a.Body = "<Error><Code>" + code + "</Code><Message>of a test</Message></Error>"
	}
	return a
}

// objectsAt returns the objects of a client whose settings ask for retries.
func objectsAt(url string) *objects {
	return newObjects(s3.New(s3.Options{
		BaseEndpoint: &url, Region: enginetest.S3Region, UsePathStyle: true, RetryMaxAttempts: 2, RetryMode: aws.RetryModeStandard,
		Credentials: credentials.NewStaticCredentialsProvider(enginetest.S3Key, enginetest.S3Secret, ""),
	}), "locks")
}

// TestAnswers: what each answer says of a write, and that each call is one request.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		want   buckets.Outcome
	}{
		{412, "PreconditionFailed", buckets.Mismatch},
		{404, "NoSuchKey", buckets.Mismatch},
		{404, "NoSuchBucket", buckets.Permanent},
		{404, "", buckets.Unknown},
		{409, "ConditionalRequestConflict", buckets.Busy},
		{409, "OperationAborted", buckets.Unknown},
		{409, "ObjectParentIsFile", buckets.Unknown},
		{409, "", buckets.Unknown},
		{400, "EntityTooLarge", buckets.Permanent},
		{400, "RequestTimeout", buckets.Unknown},
		{400, "ExpiredToken", buckets.NotApplied},
		{400, "InvalidRequest", buckets.Permanent},
		{400, "BadDigest", buckets.NotApplied},
		{400, "SomethingElse", buckets.Unknown},
		{401, "", buckets.Permanent},
		{403, "AccessDenied", buckets.Permanent},
		{403, "InvalidAccessKeyId", buckets.Permanent},
		{403, "SignatureDoesNotMatch", buckets.Permanent},
		{403, "RequestTimeTooSkewed", buckets.NotApplied},
		{301, "PermanentRedirect", buckets.Permanent},
		{307, "TemporaryRedirect", buckets.NotApplied},
		{429, "TooManyRequests", buckets.Slow},
		{500, "InternalError", buckets.Unknown},
		{501, "NotImplemented", buckets.Permanent},
		{502, "", buckets.Unknown},
		{503, "SlowDown", buckets.Slow},
		{504, "", buckets.Unknown},
	} {
		t.Run(fmt.Sprint(c.status, c.code), func(t *testing.T) {
			a := answering(c.status, c.code)
			err := buckets.EachIsOne(t, objectsAt(a.Serve(t)), `"tag"`, a)
			if got := buckets.OutcomeOf(err); got != c.want {
				t.Errorf("%s, want %s: %v", got, c.want, err)
			}
			if c.status == 403 && c.code == "RequestTimeTooSkewed" && !strings.Contains(err.Error(), "clock of this machine") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestNoAnswer: a connection that ends after the request leaves the outcome open, and is not
// tried again; a refused connection leaves nothing open.
func TestNoAnswer(t *testing.T) {
	a := &buckets.Answer{Cut: true}
	nobody := siteAt(fmt.Sprintf("http://127.0.0.1:%d", enginetest.FreePort(t)))
	_ = buckets.NoAnswer(t, objectsAt(a.Serve(t)), a, newObjects(nobody.client(t), "locks"))
}

// TestBucketWantsAChecksum: a bucket with a default retention (Object Lock) refuses each write
// without a checksum in its header.
func TestBucketWantsAChecksum(t *testing.T) {
	at, err := url.Parse(enginetest.NewBucket(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	bucket := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = at.Scheme, at.Host
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		sum := binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(body))
		if r.Method == http.MethodPut && r.Header.Get("x-amz-checksum-crc32") != base64.StdEncoding.EncodeToString(sum) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, "<Error><Code>InvalidRequest</Code><Message>Content-MD5 OR x-amz-checksum- HTTP header is required</Message></Error>")
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		bucket.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	client, err := tenure.New(siteAt(server.URL+at.Path).open(t, ""), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Run(t.Context(), "x", nil, func(context.Context, *tenure.Lease) error { return nil }); err != nil {
		t.Error(err)
	}
	if err := client.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestDenied: without rights nothing is tried again, and the sentence says what to do.
func TestDenied(t *testing.T) {
	b := enginetest.NewBucket(t)
	b.Break(enginetest.DeniesAll)
	_, err := Open(t.Context(), siteAt(b.URL).client(t), b.Name, nil)
	if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "tenure table policy") {
		t.Errorf("%v", err)
	}
	b.Break("")
	if _, err = Open(t.Context(), siteAt(b.URL).client(t), "another", &Options{TrustServer: true}); !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "no such bucket") {
		t.Errorf("%v", err)
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
	if _, err := New(client, "locks", &Options{Prefix: "no-slash"}); err == nil || !strings.HasPrefix(err.Error(), "s3store: prefix") {
		t.Errorf("%v", err)
	}
	if _, err := New(nil, "locks", nil); err == nil {
		t.Error("no client, no error")
	}
	if _, err := New(client, "", nil); err == nil {
		t.Error("no bucket, no error")
	}
}

// TestIdleConnectionsGo: a call without an answer closes the idle connections, since the
// network may have dropped them; a call with an answer does not.
func TestIdleConnectionsGo(t *testing.T) {
	b := enginetest.NewBucket(t)
	relay := enginetest.NewRelay(t, strings.TrimPrefix(b.URL, "http://"))
	url := "http://" + relay.Addr
	o := newObjects(siteAt(url).client(t), b.Name)
	closed, closeIdle := 0, o.Idle
	o.Idle = objectmap.NewIdle(func() {
		closed++
		closeIdle.Unheard()
	})
	s, err := objectmap.New(o, nil)
	if err != nil {
		t.Fatal(err)
	}
	buckets.IdleConnectionsGo(t, relay, s, func() int { return closed })
}
