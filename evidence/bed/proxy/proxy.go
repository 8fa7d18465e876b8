// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/wait"
)

const (
	// kept is how many calls the proxy remembers.
	kept = 512
	// resendBound is how long a call that nobody waits for may take.
	resendBound = 10 * time.Second
	// longestAnswer is how much of an answer is read. A stream is handed on as it comes.
	longestAnswer = 8 << 20
)

// Proxy hands calls on to servers, each to one that is drawn. It may be used concurrently.
// [Proxy.Close] ends what it does by itself.
type Proxy struct {
	targets   []*url.URL
	transport *http.Transport
	running   sync.WaitGroup // calls that nobody waits for
	over      context.Context
	end       context.CancelFunc

	mu      sync.Mutex
	random  *rand.Rand
	weather Weather
	strikes []*Strike
	calls   []Call // the last ones, the oldest first
	cache   map[string]*answer
	counts  map[Fault]int
}

// New returns a proxy in front of servers, each a URL of scheme and host.
func New(targets []string, w Weather, seed uint64) (*Proxy, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	if len(targets) == 0 {
		return nil, errors.New("proxy: no server: give at least one")
	}
	p := &Proxy{
		// A connection for each of the calls under way: one that is reused might be of a
		// server that was killed.
		transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true},
		random:    rand.New(rand.NewPCG(seed, 0)), weather: w, cache: map[string]*answer{}, counts: map[Fault]int{},
	}
	for _, text := range targets {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" {
			return nil, fmt.Errorf("proxy: server %q: want http://HOST:PORT", text)
		}
		p.targets = append(p.targets, u)
	}
	p.over, p.end = context.WithCancel(context.Background())
	return p, nil
}

// Close ends the calls that are carried out late.
func (p *Proxy) Close() {
	p.end()
	p.running.Wait()
	p.transport.CloseIdleConnections()
}

// Change has other weather from now on.
func (p *Proxy) Change(w Weather) error {
	if err := w.check(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.weather = w
	return nil
}

// Counts says how often each fault has happened.
func (p *Proxy) Counts() map[Fault]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// Call is a call as it came.
type Call struct {
	Method string
	URI    string // path and query
	Path   string
	Header http.Header
	Host   string
	Body   []byte
}

// read takes a call down.
func read(r *http.Request) (Call, error) {
	body, err := io.ReadAll(r.Body)
	return Call{r.Method, r.URL.RequestURI(), r.URL.Path, r.Header.Clone(), r.Host, body}, err
}

func (p *Proxy) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	c, err := read(r)
	if err != nil {
		return // the caller is gone
	}
	p.mu.Lock()
	f := p.weather.draw(p.random, c.Method == http.MethodGet, len(p.targets))
	if fault, struck := p.struck(c); struck {
		f.fault = fault
	}
	if f.fault == Cached && p.cache[c.URI] == nil {
		f.fault = None
	}
	p.counts[f.fault]++
	p.calls = append(p.calls, c)
	p.calls = p.calls[max(0, len(p.calls)-kept):]
	p.mu.Unlock()
	p.meet(rw, r, c, f)
}

// meet has a call meet its fate.
func (p *Proxy) meet(rw http.ResponseWriter, r *http.Request, c Call, f fate) {
	ctx := r.Context()
	switch f.fault {
	case LoseRequest, Withhold:
		hangUp()
	case LoseAnswer:
		_, _ = p.do(ctx, c, f.target) // carried out or not: nobody is told
		hangUp()
	case Delay:
		if !wait.Unless(f.late, ctx.Done(), p.over.Done()) {
			hangUp()
		}
		p.forward(ctx, rw, c, f.target)
	case DelayAnswer:
		a, err := p.do(ctx, c, f.target)
		if !wait.Unless(f.late, ctx.Done(), p.over.Done()) {
			hangUp()
		}
		a.write(rw, err)
	case Double:
		p.later(0, c, p.another(f.target))
		p.forward(ctx, rw, c, f.target)
	case Again:
		defer p.later(f.again, c, p.another(f.target)) // never before it was carried out once
		p.forward(ctx, rw, c, f.target)
	case BadGateway:
		_, _ = p.do(ctx, c, f.target)
		badGateway(rw)
	case GaveUp:
		p.later(f.late, c, f.target)
		http.Error(rw, "<html><body>504 Gateway Time-out</body></html>", http.StatusGatewayTimeout)
	case Cut:
		a, err := p.do(ctx, c, f.target)
		a.cut(rw, err)
	case Cached:
		p.mu.Lock()
		a := p.cache[c.URI]
		p.mu.Unlock()
		a.write(rw, nil)
	default:
		p.forward(ctx, rw, c, f.target)
	}
}

// another is the server after one.
func (p *Proxy) another(target int) int { return (target + 1) % len(p.targets) }

// later carries a call out after a while, for nobody.
func (p *Proxy) later(after time.Duration, c Call, target int) {
	p.running.Go(func() {
		if !wait.Unless(after, p.over.Done(), nil) {
			return
		}
		ctx, cancel := context.WithTimeout(p.over, resendBound)
		defer cancel()
		_, _ = p.do(ctx, c, target)
	})
}

// send sends a call to a server.
func (p *Proxy) send(ctx context.Context, c Call, target int) (*http.Response, error) {
	to := p.targets[target]
	r, err := http.NewRequestWithContext(ctx, c.Method, to.Scheme+"://"+to.Host+c.URI, bytes.NewReader(c.Body))
	if err != nil {
		return nil, err
	}
	r.Header, r.Host = c.Header.Clone(), c.Host
	for _, name := range []string{"Connection", "Keep-Alive", "Te", "Upgrade", "Http2-Settings"} {
		r.Header.Del(name) // they are of the caller's connection
	}
	return p.transport.RoundTrip(r)
}

// do carries a call out, and reads the whole answer.
func (p *Proxy) do(ctx context.Context, c Call, target int) (*answer, error) {
	response, err := p.send(ctx, c, target)
	if err != nil {
		return nil, err
	}
	return p.take(c, response)
}

// take reads an answer, and keeps that of a GET.
func (p *Proxy) take(c Call, response *http.Response) (*answer, error) {
	defer func() { _ = response.Body.Close() }() // it was only read
	body, err := io.ReadAll(io.LimitReader(response.Body, longestAnswer))
	if err != nil {
		return nil, err
	}
	a := &answer{response.StatusCode, response.Header, body}
	if c.Method == http.MethodGet && a.status == http.StatusOK {
		p.mu.Lock()
		p.cache[c.URI] = a
		p.mu.Unlock()
	}
	return a, nil
}

// forward hands a call on, and its answer back. A stream is handed on as it comes.
func (p *Proxy) forward(ctx context.Context, rw http.ResponseWriter, c Call, target int) {
	response, err := p.send(ctx, c, target)
	if err != nil {
		(*answer)(nil).write(rw, err)
		return
	}
	if response.Header.Get("Content-Type") == "text/event-stream" {
		stream(rw, response)
		return
	}
	a, err := p.take(c, response)
	a.write(rw, err)
}

func stream(rw http.ResponseWriter, response *http.Response) {
	defer func() { _ = response.Body.Close() }() // it was only read
	(&answer{response.StatusCode, response.Header, nil}).head(rw)
	flush := http.NewResponseController(rw).Flush
	_ = flush() // who does not hear it is gone, and the next write fails
	piece := make([]byte, 4<<10)
	for {
		n, err := response.Body.Read(piece)
		if _, failed := rw.Write(piece[:n]); failed != nil || err != nil {
			return
		}
		_ = flush()
	}
}
