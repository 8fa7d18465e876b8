// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package enginetest tells tests which engines there are, and what each cannot
// do. The engines are started by scripts/engines, which names them in the
// environment.
package enginetest

import (
	"fmt"
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
	// NoOldOnFailure says that a failed condition comes without the item that
	// it failed on, as of old emulators.
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

// Wire is a proxy in front of an engine that counts requests and makes them
// fail.
type Wire struct {
	URL string

	mu     sync.Mutex
	counts map[string]int
	fault  func(operation string) Fault
}

// Fault is what happens to a request on a [Wire].
type Fault int

// What can happen.
const (
	Pass         Fault = iota
	DropReply          // the engine gets it, the client no reply
	Refuse             // the connection ends before the engine gets it
	Answer500          // the engine gets it, the client an answer of 500
	Unrecognized       // the client's key is not known, and the engine gets nothing
	Denied             // the client may not do that, and the engine gets nothing
	Throttled          // the table has no capacity left, and the engine gets nothing
)

// NewWire starts a proxy, which ends with the test.
func NewWire(t *testing.T, e DynamoDB) *Wire {
	t.Helper()
	target, err := url.Parse(e.URL)
	if err != nil {
		t.Fatal(err)
	}
	w := &Wire{counts: map[string]int{}}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = &http.Transport{MaxIdleConnsPerHost: 100}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.serve(proxy, rw, r) }))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		proxy.Transport.(*http.Transport).CloseIdleConnections()
	})
	w.URL = server.URL
	return w
}

func (w *Wire) serve(proxy http.Handler, rw http.ResponseWriter, r *http.Request) {
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	w.mu.Lock()
	w.counts[operation]++
	fault := Pass
	if w.fault != nil {
		fault = w.fault(operation)
	}
	w.mu.Unlock()
	switch fault {
	case Pass:
		proxy.ServeHTTP(rw, r)
		return
	case Unrecognized:
		reject(rw, "com.amazon.coral.service#UnrecognizedClientException", "The security token included in the request is invalid.")
		return
	case Denied:
		reject(rw, "com.amazon.coral.service#AccessDeniedException", "User: arn:aws:iam::1:user/test is not authorized to perform: dynamodb:"+operation)
		return
	case Throttled:
		reject(rw, "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException", "The level of configured provisioned throughput for the table was exceeded.")
		return
	case Refuse:
	case DropReply, Answer500:
		answer := httptest.NewRecorder()
		proxy.ServeHTTP(answer, r)
		if fault == Answer500 && answer.Code == http.StatusOK {
			http.Error(rw, `{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError","message":"of a test"}`, http.StatusInternalServerError)
			return
		}
	}
	panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to end a connection without an answer
}

// reject answers as DynamoDB does when a request is refused for good.
func reject(rw http.ResponseWriter, kind, text string) {
	rw.Header().Set("Content-Type", "application/x-amz-json-1.0")
	rw.WriteHeader(http.StatusBadRequest)
	fmt.Fprintf(rw, `{"__type":%q,"message":%q}`, kind, text)
}

// SetFault has fault asked for each request from now on, one at a time; nil
// ends that.
func (w *Wire) SetFault(fault func(operation string) Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = fault
}

// Counts returns how many requests of each operation have come since the last call.
func (w *Wire) Counts() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	counts := w.counts
	w.counts = map[string]int{}
	return counts
}
