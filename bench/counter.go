// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"
)

// counter is a proxy on loopback between a client and the engine. It counts what
// goes over the wire: retries, and what a client sends in the background, too.
type counter struct {
	URL   string
	delay time.Duration // that each request takes longer; set before there are any
	weigh bool          // keeps which items are used; the same

	server *http.Server
	proxy  *httputil.ReverseProxy

	mu   sync.Mutex
	sent usage
	used []touch
	err  error
}

func newCounter(engine string) (*counter, error) {
	target, err := url.Parse(engine)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &counter{URL: "http://" + listener.Addr().String(), proxy: httputil.NewSingleHostReverseProxy(target)}
	// A connection to the engine for each of the clients' requests under way.
	c.proxy.Transport = &http.Transport{MaxIdleConnsPerHost: 256}
	// Of clients that were killed in the middle of a request.
	c.proxy.ErrorHandler = func(rw http.ResponseWriter, _ *http.Request, _ error) { rw.WriteHeader(http.StatusBadGateway) }
	c.server = &http.Server{Handler: c, ReadHeaderTimeout: time.Minute}
	go func() { _ = c.server.Serve(listener) }() // until close
	return c, nil
}

func (c *counter) close() {
	_ = c.server.Close() // what is under way is nobody's any more
	c.proxy.Transport.(*http.Transport).CloseIdleConnections()
}

func (c *counter) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		rw.WriteHeader(http.StatusBadRequest)
		return
	}
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	u, err := price(operation, body)
	var used []touch
	if c.weigh && err == nil {
		used, err = touches(operation, body)
	}
	c.mu.Lock()
	c.sent.add(u)
	c.used = append(c.used, used...)
	if err != nil && c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	if c.delay > 0 && pause(r.Context(), c.delay) != nil {
		return // the client is gone
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	c.proxy.ServeHTTP(rw, r)
}

// take returns what was sent since the last call.
func (c *counter) take() (usage, error) {
	u, _, err := c.takeAll()
	return u, err
}

// takeAll is take, with the items that were used.
func (c *counter) takeAll() (usage, []touch, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u, used := c.sent, c.used
	c.sent, c.used = usage{}, nil
	return u, used, c.err
}

// requests returns how many were sent since the last take.
func (c *counter) requests() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent.Requests
}
