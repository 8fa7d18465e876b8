// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package gcsstore

import (
	"net/http"
	"os"
	"testing"

	"cloud.google.com/go/storage"
	"google.golang.org/api/option"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// The variable realBucket names a bucket for the tests, instead of an emulator, and realEndpoint
// another server than Google's, such as http://127.0.0.1:4443. The client finds its credentials,
// and uses none with an endpoint.
const (
	realBucket   = "TENURE_TEST_GCS"
	realEndpoint = "TENURE_TEST_GCS_ENDPOINT"
)

// site is a bucket on a server.
type site struct {
	url, bucket string // "": Google's
}

// newSite returns the bucket of an emulator that the test has for itself, or the bucket that
// the environment names.
func newSite(t testing.TB) site {
	t.Helper()
	if bucket := os.Getenv(realBucket); bucket != "" {
		return site{os.Getenv(realEndpoint), bucket}
	}
	return siteAt(enginetest.StartFakeGCS(t, "locks").URL)
}

// siteAt is the bucket "locks" of a server that a test has for itself.
func siteAt(url string) site { return site{url, "locks"} }

// client returns a client of its own, which ends with the test.
func (s site) client(t testing.TB) *storage.Client {
	t.Helper()
	if s.url == "" {
		return newClient(t)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 100
	t.Cleanup(transport.CloseIdleConnections)
	return newClient(t, option.WithEndpoint(s.url+"/storage/v1/"), option.WithHTTPClient(&http.Client{Transport: transport}))
}

func newClient(t testing.TB, options ...option.ClientOption) *storage.Client {
	t.Helper()
	client, err := storage.NewClient(t.Context(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
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
