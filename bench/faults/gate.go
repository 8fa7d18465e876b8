// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"
)

// gate stands between one process and its store, and makes faults.
type gate interface {
	// address is where the process finds its store.
	address() string
	// loseReply lets the next write through, and loses its reply: the
	// connection ends in its place.
	loseReply()
	// blackHole lets nothing through any more, in either direction, and ends no
	// connection.
	blackHole()
	// slowThenBlackHole lets the next write through, holds its reply back for d,
	// and lets nothing else through.
	slowThenBlackHole(d time.Duration)
	// slow has each request take d longer.
	slow(d time.Duration)
	// heal ends the faults, and the connections that had them.
	heal()
	// requests returns how many there were since the last call.
	requests() int
	// struck is when the last fault hit a request, and zero before.
	struck() time.Time
	close()
}

// fault is what a gate is set to.
type fault int

const (
	pass fault = iota
	losing
	holding // the next write's reply is to be held back
	hole
	swallowing // what is left of a reply that is lost
)

// httpGate is a gate of stores that are spoken to in HTTP, one request for each
// thing that is asked for.
type httpGate struct {
	inner   http.Handler
	isWrite func(*http.Request) bool
	server  *httptest.Server

	mu    sync.Mutex
	fault fault
	hold  time.Duration
	delay time.Duration
	count int
	hit   time.Time
	over  chan struct{} // closed when the gate is
}

func newHTTPGate(inner http.Handler, isWrite func(*http.Request) bool) *httpGate {
	g := &httpGate{inner: inner, isWrite: isWrite, over: make(chan struct{})}
	g.server = httptest.NewServer(g)
	return g
}

// newDynamoDBGate returns a gate in front of a DynamoDB engine.
func newDynamoDBGate(engine string) (*httpGate, error) {
	target, err := url.Parse(engine)
	if err != nil {
		return nil, err
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = &http.Transport{MaxIdleConnsPerHost: 256}
	// Of processes that were killed in the middle of a request.
	proxy.ErrorHandler = func(rw http.ResponseWriter, _ *http.Request, _ error) { rw.WriteHeader(http.StatusBadGateway) }
	return newHTTPGate(proxy, func(r *http.Request) bool {
		_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		switch operation {
		case "UpdateItem", "PutItem", "DeleteItem", "TransactWriteItems":
			return true
		}
		return false
	}), nil
}

func (g *httpGate) address() string { return g.server.URL }

func (g *httpGate) set(f fault, hold time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fault, g.hold, g.hit = f, hold, time.Time{}
}

func (g *httpGate) loseReply()                        { g.set(losing, 0) }
func (g *httpGate) blackHole()                        { g.set(hole, 0) }
func (g *httpGate) slowThenBlackHole(d time.Duration) { g.set(holding, d) }

func (g *httpGate) heal() {
	g.set(pass, 0)
	g.server.CloseClientConnections()
}

func (g *httpGate) slow(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.delay = d
}

func (g *httpGate) requests() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.count
	g.count = 0
	return n
}

func (g *httpGate) struck() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hit
}

func (g *httpGate) close() {
	close(g.over)
	g.server.CloseClientConnections()
	g.server.Close()
}

func (g *httpGate) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	// All of it: the server notices that a client is gone only when it has
	// nothing to read any more.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	g.mu.Lock()
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
	g.mu.Unlock()
	if !g.wait(r, delay) {
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
		if !g.wait(r, hold) {
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

// wait returns false if there is nobody to answer any more.
func (g *httpGate) wait(r *http.Request, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
	case <-g.over:
	}
	return false
}

// tcpGate is a gate of a store that keeps a connection for all it is asked.
type tcpGate struct {
	target   string
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	fault fault
	hold  time.Duration
	delay time.Duration
	count int
	hit   time.Time
	conns map[net.Conn]struct{}
	over  bool
}

const (
	// settled is for how long the bytes of one request may come in, and those
	// of its reply: a request is a few hundred bytes on loopback.
	settled = 150 * time.Millisecond
	// swallow is after how long a connection ends whose reply is lost.
	swallow = 20 * time.Millisecond
	chunk   = 64 << 10
)

func newTCPGate(target string) (*tcpGate, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &tcpGate{target: target, listener: listener, conns: map[net.Conn]struct{}{}}
	g.wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			g.wg.Go(func() { g.serve(conn) })
		}
	})
	return g, nil
}

func (g *tcpGate) address() string { return g.listener.Addr().String() }

func (g *tcpGate) set(f fault, hold time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fault, g.hold, g.hit = f, hold, time.Time{}
}

func (g *tcpGate) loseReply()                        { g.set(losing, 0) }
func (g *tcpGate) blackHole()                        { g.set(hole, 0) }
func (g *tcpGate) slowThenBlackHole(d time.Duration) { g.set(holding, d) }

func (g *tcpGate) heal() {
	g.set(pass, 0)
	g.mu.Lock()
	defer g.mu.Unlock()
	for conn := range g.conns {
		_ = conn.Close()
	}
}

func (g *tcpGate) slow(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.delay = d
}

func (g *tcpGate) requests() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.count
	g.count = 0
	return n
}

func (g *tcpGate) struck() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hit
}

func (g *tcpGate) close() {
	_ = g.listener.Close() // nobody is there any more
	g.mu.Lock()
	g.over = true
	for conn := range g.conns {
		_ = conn.Close()
	}
	g.mu.Unlock()
	g.wg.Wait()
}

// own keeps a connection, to be closed with the gate.
func (g *tcpGate) own(conn net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		_ = conn.Close()
		return false
	}
	g.conns[conn] = struct{}{}
	return true
}

func (g *tcpGate) serve(client net.Conn) {
	store, err := net.Dial("tcp", g.target)
	if err != nil {
		_ = client.Close()
		return
	}
	if !g.own(client) || !g.own(store) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { g.pump(client, store, g.there) })
	both.Go(func() { g.pump(store, client, g.back) })
	both.Wait()
	g.mu.Lock()
	delete(g.conns, client)
	delete(g.conns, store)
	g.mu.Unlock()
}

// pump carries bytes, each as late as asked for. judge returns when those that
// came now may go on, and false if they must not.
func (g *tcpGate) pump(from, to net.Conn, judge func(end func()) (time.Duration, bool)) {
	defer func() { _ = from.Close(); _ = to.Close() }()
	type part struct {
		bytes []byte
		due   time.Time
	}
	parts := make(chan part, 1024)
	var out sync.WaitGroup
	out.Go(func() {
		failed := false
		for p := range parts {
			time.Sleep(time.Until(p.due)) //nolint:forbidigo // a delay that is the thing itself; bounded by the row's
			if _, err := to.Write(p.bytes); err != nil && !failed {
				failed = true
				_ = from.Close()
			}
		}
	})
	end := func() { _ = from.Close(); _ = to.Close() }
	for {
		buffer := make([]byte, chunk)
		n, err := from.Read(buffer)
		if n > 0 {
			if d, ok := judge(end); ok {
				parts <- part{buffer[:n], time.Now().Add(d)}
			}
		}
		if err != nil {
			break
		}
	}
	close(parts)
	out.Wait()
}

// there judges bytes on their way to the store.
func (g *tcpGate) there(func()) (time.Duration, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch g.fault {
	case hole:
		return 0, false
	case losing, holding:
		if g.hit.IsZero() {
			g.hit = time.Now()
		} else if g.fault == holding && time.Since(g.hit) > settled {
			return 0, false
		}
	}
	g.count++
	return g.delay / 2, true
}

// back judges bytes on their way from the store.
func (g *tcpGate) back(end func()) (time.Duration, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.fault == hole:
		return 0, false
	case g.fault == losing && !g.hit.IsZero():
		g.fault = swallowing
		time.AfterFunc(swallow, end)
		return 0, false
	case g.fault == swallowing:
		if time.Since(g.hit) < swallow {
			return 0, false
		}
		g.fault = pass
	case g.fault == holding && !g.hit.IsZero():
		if time.Since(g.hit) > settled {
			return 0, false
		}
		return g.hold, true
	}
	return g.delay / 2, true
}
