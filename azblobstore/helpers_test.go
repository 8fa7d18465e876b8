// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package azblobstore

import (
	"net/http"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// realServer is the variable that names a container on which the tests run in place of Azurite:
// its URL, with a SAS of the rights rcwdl:
//
//	https://ACCOUNT.blob.core.windows.net/CONTAINER?sv=...&sig=...
const realServer = "TENURE_TEST_AZBLOB"

// site is a container on a server.
type site struct{ url string }

// newSite returns a container of an Azurite that the test has for itself, or the container
// that the environment names.
func newSite(t testing.TB) site {
	t.Helper()
	if text := os.Getenv(realServer); text != "" {
		return site{text}
	}
	s := site{enginetest.StartAzurite(t).URL + "/locks"}
	if _, err := s.client(t).Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return s
}

// client returns a client of its own, whose settings ask for retries, and which ends with the
// test.
func (s site) client(t testing.TB) *container.Client {
	t.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 100
	t.Cleanup(transport.CloseIdleConnections)
	return s.clientWith(t, &http.Client{Transport: transport})
}

func (s site) clientWith(t testing.TB, transport policy.Transporter) *container.Client {
	t.Helper()
	options := &container.ClientOptions{ClientOptions: policy.ClientOptions{
		Transport: transport,
		Retry:     policy.RetryOptions{MaxRetries: 2, RetryDelay: time.Millisecond},
	}}
	u, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	var client *container.Client
	if u.RawQuery != "" {
		client, err = container.NewClientWithNoCredential(s.url, options)
	} else {
		var key *container.SharedKeyCredential
		if key, err = container.NewSharedKeyCredential(enginetest.AzureAccount, enginetest.AzureKey); err == nil {
			client, err = container.NewClientWithSharedKeyCredential(s.url, key, options)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// objects returns those of a client of its own.
func (s site) objects(t testing.TB) *objects {
	t.Helper()
	o, err := newObjects(s.client(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// open returns a store that ends with the test.
func (s site) open(t testing.TB, prefix string) *Store {
	t.Helper()
	store, err := Open(t.Context(), s.client(t), &Options{Prefix: prefix, PageSize: 7})
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
