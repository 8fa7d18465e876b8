// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package enginetest gives tests the available engines, and says what each
// cannot do. scripts/engines starts the engines, and names them in the
// environment.
package enginetest

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
)

// DynamoDB is an endpoint that speaks DynamoDB's protocol.
type DynamoDB struct {
	Name, URL string
	// NoOldOnFailure says that a failed condition comes without the item, as
	// in old emulators.
	NoOldOnFailure bool
	// NoTransactions says that there is no TransactWriteItems.
	NoTransactions bool
	// NoTTL says that items cannot be made to expire.
	NoTTL bool
}

// Variables of the environment, and what they name.
const (
	Dynoxide = "TENURE_TEST_DYNOXIDE" // has the whole API
	Dynalite = "TENURE_TEST_DYNALITE" // has the least that Tenure needs
	Other    = "TENURE_TEST_DYNAMODB" // any other endpoint, in place of the two
)

// EachDynamoDB runs test on each DynamoDB engine: on the two emulators, or on the one
// endpoint that TENURE_TEST_DYNAMODB names.
func EachDynamoDB(t *testing.T, test func(t *testing.T, e DynamoDB)) {
	t.Helper()
	for _, e := range engines() {
		t.Run(e.Name, func(t *testing.T) {
			e.need(t)
			test(t, e)
		})
	}
}

// FullDynamoDB returns the engine that has the whole API.
func FullDynamoDB(t *testing.T) DynamoDB {
	t.Helper()
	e := engines()[0]
	e.need(t)
	return e
}

func engines() []DynamoDB {
	if other := os.Getenv(Other); other != "" {
		return []DynamoDB{{Name: "other", URL: other}}
	}
	return []DynamoDB{
		{Name: "dynoxide", URL: os.Getenv(Dynoxide)},
		{Name: "dynalite", URL: os.Getenv(Dynalite), NoOldOnFailure: true, NoTransactions: true, NoTTL: true},
	}
}

func (e DynamoDB) need(t *testing.T) {
	t.Helper()
	if e.URL == "" {
		Missing(t, e.Name, "scripts/engines run "+e.Name+" starts it")
	}
}

// Wire is a proxy in front of an engine that counts requests.
type Wire struct {
	URL string

	mu     sync.Mutex
	counts map[string]int
}

// NewWire starts a proxy, which ends with the test.
func NewWire(t *testing.T, e DynamoDB) *Wire {
	t.Helper()
	target, err := url.Parse(e.URL)
	if err != nil {
		t.Fatal(err)
	}
	w := &Wire{counts: map[string]int{}}
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	server := httptest.NewServer(&httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		_, operation, _ := strings.Cut(r.In.Header.Get("X-Amz-Target"), ".")
		w.mu.Lock()
		w.counts[operation]++
		w.mu.Unlock()
		r.SetURL(target)
	}})
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	w.URL = server.URL
	return w
}

// Counts returns how many requests of each operation have come since the last call.
func (w *Wire) Counts() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	counts := w.counts
	w.counts = map[string]int{}
	return counts
}
