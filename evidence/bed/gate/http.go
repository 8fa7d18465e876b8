// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gate

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/wait"
)

// HTTP is a gate of stores that are spoken to in HTTP, one request for each thing
// that is asked for: retries, and what a client sends in the background, too.
type HTTP struct {
	// Meter takes down what requests cost, in a gate of [NewMetered].
	Meter
	state

	inner   http.Handler
	isWrite func(*http.Request) bool
	server  *httptest.Server
	idle    func()        // closes what is open to the store
	over    chan struct{} // closed when the gate is
}

// NewHTTP returns a gate in front of a handler.
func NewHTTP(inner http.Handler, isWrite func(*http.Request) bool) *HTTP {
	g := &HTTP{inner: inner, isWrite: isWrite, idle: func() {}, over: make(chan struct{})}
	g.server = httptest.NewServer(g)
	return g
}

// NewMetered is NewDynamoDB, with the meter kept: what that takes is small, and not
// wanted where the time of many requests is looked at.
func NewMetered(engine string) (*HTTP, error) {
	g, err := NewDynamoDB(engine)
	if err == nil {
		g.metered = true
	}
	return g, err
}

// NewDynamoDB returns a gate in front of a DynamoDB engine.
func NewDynamoDB(engine string) (*HTTP, error) {
	target, err := url.Parse(engine)
	if err != nil {
		return nil, err
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	// A connection to the engine for each of the clients' requests under way.
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	proxy.Transport = transport
	// Of processes that were killed in the middle of a request.
	proxy.ErrorHandler = func(rw http.ResponseWriter, _ *http.Request, _ error) { rw.WriteHeader(http.StatusBadGateway) }
	g := NewHTTP(proxy, func(r *http.Request) bool {
		switch operation(r) {
		case "UpdateItem", "PutItem", "DeleteItem", "TransactWriteItems":
			return true
		}
		return false
	})
	g.idle = transport.CloseIdleConnections
	return g, nil
}

// operation is what a request asks DynamoDB for.
func operation(r *http.Request) string {
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	return operation
}

// Address is the URL of the gate.
func (g *HTTP) Address() string { return g.server.URL }

// Heal ends the faults, and all connections.
func (g *HTTP) Heal() {
	g.set(pass, 0)
	g.server.CloseClientConnections()
}

// Close ends the gate: what is under way is nobody's any more.
func (g *HTTP) Close() {
	close(g.over)
	g.server.CloseClientConnections()
	g.server.Close()
	g.idle()
}

func (g *HTTP) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	// All of it: the server notices that a client is gone only when it has
	// nothing to read any more.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	g.note(operation(r), body)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	g.state.mu.Lock()
	g.count++
	f, hold, delay := g.fault, g.hold, g.delay
	switch {
	case f == pass || f == hole:
	case !g.isWrite(r):
		f = pass
	case f == losing:
		g.fault, g.hit = pass, time.Now()
	case f == holding:
		g.fault, g.hit = hole, time.Now()
	}
	g.state.mu.Unlock()
	if !wait.Unless(delay, r.Context().Done(), g.over) {
		return
	}
	switch f {
	case pass:
		g.inner.ServeHTTP(rw, r)
	case losing:
		g.inner.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to end a connection without an answer
	case holding:
		answer := httptest.NewRecorder()
		g.inner.ServeHTTP(answer, r)
		if !wait.Unless(hold, r.Context().Done(), g.over) {
			return
		}
		for name, values := range answer.Header() {
			rw.Header()[name] = values
		}
		rw.WriteHeader(answer.Code)
		_, _ = rw.Write(answer.Body.Bytes()) // the client may be gone
	case hole:
		select {
		case <-r.Context().Done():
		case <-g.over:
		}
	}
}
