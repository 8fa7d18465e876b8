// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package gate is a proxy between processes and their store or service: it injects the
// faults of networks, middleboxes and attackers, and counts the traffic and its cost on
// DynamoDB.
//
// [relay.Relay] knows only bytes. [HTTP] knows requests: it loses, delays, doubles and repeats
// them, at random by its [Weather], or single ones by a [Strike].
package gate

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest/relay"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/wait"
)

// Gate is implemented by both kinds of gates.
type Gate interface {
	// Address is where a process finds its store.
	Address() string
	// LoseReply passes the next write on, and loses its reply: the connection
	// ends instead.
	LoseReply()
	// BlackHole drops everything, in both directions, and ends no
	// connection.
	BlackHole()
	// SlowThenBlackHole passes the next write on, holds its reply back for d,
	// and drops everything else.
	SlowThenBlackHole(d time.Duration)
	// Slow has each request take d longer.
	Slow(d time.Duration)
	// Heal ends the faults, and the connections that had them.
	Heal()
	// Count is how many requests there were.
	Count() int
	// Struck is when the last of these faults hit a request, and zero before.
	Struck() time.Time
	Close()
}

var _, _ Gate = (*HTTP)(nil), (*relay.Relay)(nil)

const (
	// kept is how many calls a gate with weather remembers.
	kept = 512
	// resendBound is how long a call without a waiting client may take.
	resendBound = 10 * time.Second
)

// HTTP is a gate in front of an HTTP server. It counts every request, with retries and those
// that a client sends in the background.
type HTTP struct {
	// Meter adds up what requests cost, in a metered gate of [NewDynamoDB].
	Meter

	servers []http.Handler
	isWrite func(*http.Request) bool
	server  *httptest.Server
	onward  http.Transport  // to the servers
	running sync.WaitGroup  // calls without a waiting client
	over    context.Context // ends with the gate
	end     context.CancelFunc

	mu      sync.Mutex // guards the fields below
	count   int
	delay   time.Duration
	hit     time.Time // when the last fault of a [Gate] hit a request
	random  *rand.Rand
	weather Weather
	strike  Strike // may be nil
	calls   []Call // the last ones, the oldest first
	counts  map[Fault]int
}

// NewHTTP returns a gate in front of a handler.
func NewHTTP(inner http.Handler, isWrite func(*http.Request) bool) *HTTP {
	g := &HTTP{
		servers: []http.Handler{inner}, isWrite: isWrite, random: rand.New(rand.NewPCG(0, 0)), counts: map[Fault]int{},
	}
	g.over, g.end = context.WithCancel(context.Background())
	g.server = httptest.NewServer(g)
	return g
}

// NewWeathered returns a gate in front of servers, each a URL of scheme and host, that has
// weather, and takes each call to a server that it draws. It is for [must.Try].
func NewWeathered(servers []string, w Weather, seed uint64, isWrite func(*http.Request) bool) *HTTP {
	g := NewHTTP(nil, isWrite)
	g.weather, g.random, g.servers = w, rand.New(rand.NewPCG(seed, 0)), nil
	// A connection to a server for each of the clients' requests under way.
	g.onward = http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	for _, server := range servers {
		target := must.Have(url.Parse(server))
		g.servers = append(g.servers, &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(target)
				r.Out.Host = r.In.Host
			},
			Transport:      &g.onward,
			ModifyResponse: g.note,
			// A server may be killed in the middle of a request.
			ErrorHandler: func(rw http.ResponseWriter, _ *http.Request, _ error) { badGateway(rw) },
		})
	}
	return g
}

// NewDynamoDB returns a gate in front of a DynamoDB engine. Metering costs little time, but is
// unwanted where the time of many requests is measured.
func NewDynamoDB(engine string, metered bool) *HTTP {
	g := NewWeathered([]string{engine}, Fair, 0, func(r *http.Request) bool {
		switch operation(r) {
		case "UpdateItem", "PutItem", "DeleteItem", "TransactWriteItems":
			return true
		}
		return false
	})
	g.metered = metered
	return g
}

// operation is what a request asks DynamoDB for.
func operation(r *http.Request) string {
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	return operation
}

// Address is the URL of the gate.
func (g *HTTP) Address() string { return g.server.URL }

// Close ends the gate, and all calls under way. It may be called again.
func (g *HTTP) Close() {
	g.end()
	g.server.CloseClientConnections()
	g.server.Close()
	g.running.Wait()
	g.onward.CloseIdleConnections()
}

// Count is how many requests there were.
func (g *HTTP) Count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count
}

// Struck is when the last fault of a [Gate] hit a request: see there.
func (g *HTTP) Struck() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hit
}

// Slow has each request take d longer.
func (g *HTTP) Slow(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.delay = d
}

// Counts returns how often each fault has happened.
func (g *HTTP) Counts() map[Fault]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.counts)
}

// Call is a call as it came.
type Call struct {
	Method string
	URI    string // path and query
	Path   string
	Header http.Header
	Host   string
	Body   []byte

	write bool
}

// request is the call, to be handed on.
func (c Call) request(ctx context.Context) *http.Request {
	r := httptest.NewRequestWithContext(ctx, c.Method, c.URI, bytes.NewReader(c.Body))
	r.Header, r.Host = c.Header.Clone(), c.Host
	return r
}

func (g *HTTP) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	// All of it: the server notices that a client is gone only when it has
	// nothing to read any more.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	body = g.asking(body)
	c := Call{r.Method, r.URL.RequestURI(), r.URL.Path, r.Header.Clone(), r.Host, body, g.isWrite(r)}
	g.mu.Lock()
	g.count++
	f := g.weather.draw(g.random, len(g.servers))
	if g.strike != nil {
		if fault, late := g.strike(c); fault != None {
			f.fault, f.late = fault, max(f.late, late)
		}
	}
	g.counts[f.fault]++
	if f.fault != Hole {
		g.calls = append(g.calls, c)
		g.calls = g.calls[max(0, len(g.calls)-kept):]
	}
	delay := g.delay
	g.mu.Unlock()
	g.pause(r.Context(), delay)
	g.meet(r.Context(), rw, c, f)
}

// pause waits for a while. If the client or the gate is gone by then, it ends the connection.
func (g *HTTP) pause(ctx context.Context, d time.Duration) {
	if !wait.Unless(d, ctx.Done(), g.over.Done()) {
		hangUp()
	}
}

// meet applies a call's fate to it.
func (g *HTTP) meet(ctx context.Context, rw http.ResponseWriter, c Call, f fate) {
	another := (f.server + 1) % len(g.servers)
	switch f.fault {
	case Hole:
		select {
		case <-ctx.Done():
		case <-g.over.Done():
		}
	case LoseRequest:
		hangUp()
	case LoseAnswer:
		g.do(ctx, c, f.server) // carried out or not: no client learns
		hangUp()
	case DelayAnswer:
		a := g.do(ctx, c, f.server)
		g.pause(ctx, f.late)
		a.write(rw)
	case BadGateway:
		g.do(ctx, c, f.server)
		badGateway(rw)
	case GaveUp:
		g.later(f.late, c, f.server)
		http.Error(rw, "<html><body>504 Gateway Time-out</body></html>", http.StatusGatewayTimeout)
	case Cut:
		g.do(ctx, c, f.server).cut(rw)
	default:
		switch f.fault {
		case Delay:
			g.pause(ctx, f.late)
		case Double:
			g.later(0, c, another)
		case Again:
			defer g.later(f.again, c, another) // never before it was carried out once
		}
		g.servers[f.server].ServeHTTP(rw, c.request(ctx))
	}
}

// later carries a call out after a while, for no client.
func (g *HTTP) later(after time.Duration, c Call, server int) {
	g.running.Go(func() {
		if !wait.Unless(after, g.over.Done(), nil) {
			return
		}
		ctx, cancel := context.WithTimeout(g.over, resendBound)
		defer cancel()
		g.do(ctx, c, server)
	})
}

// do carries a call out, and reads the whole answer.
func (g *HTTP) do(ctx context.Context, c Call, server int) answer {
	rw := httptest.NewRecorder()
	g.servers[server].ServeHTTP(rw, c.request(ctx))
	return answer{rw.Code, rw.Header(), rw.Body.Bytes()}
}

// answer is a server's answer.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) write(rw http.ResponseWriter) {
	maps.Copy(rw.Header(), a.header)
	rw.WriteHeader(a.status)
	_, _ = rw.Write(a.body) // the caller may be gone
}

// cut passes half of an answer on, and ends the connection.
func (a answer) cut(rw http.ResponseWriter) {
	if len(a.body) < 2 {
		hangUp()
	}
	rw.Header().Set("Content-Length", fmt.Sprint(len(a.body)))
	rw.Header().Set("Content-Type", a.header.Get("Content-Type"))
	rw.WriteHeader(a.status)
	_, _ = rw.Write(a.body[:len(a.body)/2])
	_ = http.NewResponseController(rw).Flush() // the half has to be on its way
	hangUp()
}

// badGateway answers as a proxy does when a server has not answered.
func badGateway(rw http.ResponseWriter) {
	rw.Header().Set("Content-Type", "text/html")
	rw.WriteHeader(http.StatusBadGateway)
	_, _ = rw.Write([]byte("<html><body><h1>502 Bad Gateway</h1></body></html>\n"))
}

// hangUp ends the connection without an answer.
func hangUp() {
	panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to end a connection without an answer
}

// Strike returns the fault of a call in place of the drawn one, and how late that is; None: no
// other. It is called for one call after the other.
type Strike func(Call) (Fault, time.Duration)

// Strike gives calls faults from now on, in place of an earlier strike's.
func (g *HTTP) Strike(s Strike) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.strike, g.hit = s, time.Time{}
}

// strikeWrite gives the next write a fault, and all calls after it another one.
func (g *HTTP) strikeWrite(fault Fault, late time.Duration, then Fault) {
	g.Strike(func(c Call) (Fault, time.Duration) {
		switch {
		case !g.hit.IsZero():
			return then, 0
		case c.write:
			g.hit = time.Now()
			return fault, late
		}
		return None, 0
	})
}

// LoseReply loses the reply to the next write: see [Gate].
func (g *HTTP) LoseReply() { g.strikeWrite(LoseAnswer, 0, None) }

// BlackHole drops everything.
func (g *HTTP) BlackHole() { g.Strike(func(Call) (Fault, time.Duration) { return Hole, 0 }) }

// SlowThenBlackHole holds back the reply to the next write.
func (g *HTTP) SlowThenBlackHole(d time.Duration) { g.strikeWrite(DelayAnswer, d, Hole) }

// Heal ends the faults, except the weather's, and all connections.
func (g *HTTP) Heal() {
	g.Strike(nil)
	g.server.CloseClientConnections()
}

// Change replaces the weather.
func (g *HTTP) Change(w Weather) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.weather = w
}

// Attack replays a call of a kind that it has seen, each period, until ctx ends: the last few
// calls one after the other, to a random server. It ignores the answers, and returns how many
// calls it has sent.
func (g *HTTP) Attack(ctx context.Context, period time.Duration, few int, of func(Call) bool) (sent int) {
	for n := 0; ctx.Err() == nil; n++ {
		g.mu.Lock()
		calls := slices.DeleteFunc(slices.Clone(g.calls), func(c Call) bool { return !of(c) })
		server := g.random.IntN(len(g.servers))
		g.mu.Unlock()
		if calls = calls[max(0, len(calls)-few):]; len(calls) > 0 {
			bound, cancel := context.WithTimeout(ctx, resendBound)
			g.do(bound, calls[n%len(calls)], server)
			cancel()
			sent++
		}
		wait.Rest(ctx, period)
	}
	return sent
}
