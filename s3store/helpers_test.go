// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package s3store

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// site is a bucket on a server.
type site struct {
	url, bucket, region  string
	key, secret, session string
}

// realServer is the variable that names a bucket on another server, on which the tests run in
// place of gofakes3: https://s3.eu-central-1.amazonaws.com/BUCKET?region=eu-central-1. The
// credentials are in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.
const realServer = "TENURE_TEST_S3"

// newSite returns a bucket of gofakes3, within this process, or of the server that the
// environment names.
func newSite(t testing.TB) site {
	t.Helper()
	if text := os.Getenv(realServer); text != "" {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return site{
			url: u.Scheme + "://" + u.Host, bucket: strings.Trim(u.Path, "/"), region: cmp.Or(u.Query().Get("region"), enginetest.S3Region),
			key: os.Getenv("AWS_ACCESS_KEY_ID"), secret: os.Getenv("AWS_SECRET_ACCESS_KEY"), session: os.Getenv("AWS_SESSION_TOKEN"),
		}
	}
	backend := s3mem.New()
	if err := backend.CreateBucket("locks"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return siteAt(server.URL)
}

// siteAt is the bucket "locks" of a server that a test has for itself.
func siteAt(url string) site {
	return site{url: url, bucket: "locks", region: enginetest.S3Region, key: enginetest.S3Key, secret: enginetest.S3Secret}
}

// client returns a client of its own, which ends with the test.
func (s site) client(t testing.TB) *s3.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 100
	t.Cleanup(transport.CloseIdleConnections)
	return s3.New(s3.Options{
		BaseEndpoint: &s.url, Region: s.region, UsePathStyle: true, HTTPClient: &http.Client{Transport: transport},
		Credentials: credentials.NewStaticCredentialsProvider(s.key, s.secret, s.session),
	})
}

// open returns a store that ends with the test.
func (s site) open(t testing.TB, prefix string) *Store {
	t.Helper()
	store, err := Open(t.Context(), s.client(t), s.bucket, &Options{Prefix: prefix, PageSize: 7})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}
