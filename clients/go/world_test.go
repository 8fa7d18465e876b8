// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/server"
	"github.com/tenurelock/tenure/tenuretest"
)

const (
	leaseTime = 15 * time.Second
	secret    = "a-secret-of-a-program-that-holds-locks-0001"
)

// world is a lock service with two servers, in a bubble of virtual time.
type world struct {
	*testing.T
	*tenuretest.World
	operator *tenuretest.Client
	servers  []*wire
}

// inWorld runs a test in a bubble.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	tenuretest.Test(t, func(t *testing.T, in *tenuretest.World) {
		w := &world{T: t, World: in}
		w.operator = in.Client("ops", func(o *tenure.Options) { o.LeaseDuration = leaseTime })
		for _, name := range []string{"tenured-1", "tenured-2"} {
			w.servers = append(w.servers, w.serve(name))
		}
		test(t, w)
	})
}

func (w *world) serve(name string) *wire {
	w.Helper()
	c := w.World.Client(name, func(o *tenure.Options) { o.LeaseDuration, o.MaxClockDrift = leaseTime, 0.01 })
	options := server.Options{Principals: testutil.Must(server.ParsePrincipals("ci " + secret + " admin:\n"))(w.T)}
	s := testutil.Must(server.New(c.Client, options))(w.T)
	w.Cleanup(func() {
		ctx := context.WithoutCancel(w.Context())
		testutil.Want(w.T, errors.Join(s.Shutdown(ctx), c.Close(ctx)), nil)
	})
	return &wire{handler: s}
}

// Client returns a client whose clock a test can move by the returned number of nanoseconds.
func (w *world) client(edit ...func(*Options)) (*Client, *atomic.Int64) {
	w.Helper()
	o := Options{Servers: []string{"http://localhost:1", "http://localhost:2"}, Token: secret, Owner: "web-7"}
	for _, e := range edit {
		e(&o)
	}
	c := testutil.Must(New(o))(w.T)
	for i := range c.servers {
		c.servers[i].RoundTripper = w.servers[i%len(w.servers)]
	}
	c.server.Store(0)
	ahead := new(atomic.Int64)
	now := c.now
	c.now = func() time.Duration { return now() + time.Duration(ahead.Load()) }
	w.Cleanup(func() { testutil.Want(w.T, c.Close(context.WithoutCancel(w.Context())), nil) })
	return c, ahead
}

// both has a fault happen to calls of the path at both servers.
func (w *world) both(path string, f fault) {
	for _, s := range w.servers {
		s.always(path, f)
	}
}

// calls returns the bodies of the calls of a path, at both servers in the order in which they were sent.
func (w *world) calls(path string) []fields {
	var all []fields
	for _, s := range w.servers {
		s.mu.Lock()
		for _, sent := range s.sent {
			if sent.path == path {
				all = append(all, sent.body)
			}
		}
		s.mu.Unlock()
	}
	return all
}

// fault is what happens to a call: it answers in place of the service, by carry if it likes.
type fault func(q *http.Request, carry func() (*http.Response, error)) (*http.Response, error)

var errWire = errors.New("the connection broke")

// dropped loses the call.
func dropped(*http.Request, func() (*http.Response, error)) (*http.Response, error) {
	return nil, errWire
}

// answerLost carries the call out, and loses the answer.
func answerLost(_ *http.Request, carry func() (*http.Response, error)) (*http.Response, error) {
	if r, err := carry(); err == nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	return nil, errWire
}

// badGateway carries the call out; a proxy answers 502 in HTML.
func badGateway(q *http.Request, carry func() (*http.Response, error)) (*http.Response, error) {
	_, _ = answerLost(q, carry)
	return says(502, "text/html", "<h1>502 Bad Gateway</h1>"), nil
}

// doubled carries the call out twice, and gives the second answer.
func doubled(q *http.Request, carry func() (*http.Response, error)) (*http.Response, error) {
	_, _ = answerLost(q, carry)
	return carry()
}

// hangs gives no answer.
func hangs(q *http.Request, _ func() (*http.Response, error)) (*http.Response, error) {
	<-q.Context().Done()
	return nil, q.Context().Err()
}

// late carries the call out at once, and answers so much later.
func late(d time.Duration) fault {
	return func(_ *http.Request, carry func() (*http.Response, error)) (*http.Response, error) {
		r, err := carry()
		time.Sleep(d)
		return r, err
	}
}

// problemOf is an answer of the service.
func problemOf(kind string, status int) fault {
	return func(*http.Request, func() (*http.Response, error)) (*http.Response, error) {
		return says(status, problemType, fmt.Sprintf(`{"type": "urn:tenure:problem:%s", "status": %d, "detail": "so"}`, kind, status)), nil
	}
}

// edited changes the text of an answer.
func edited(edit func(string) string) fault {
	return func(_ *http.Request, carry func() (*http.Response, error)) (*http.Response, error) {
		r, err := carry()
		if err != nil {
			return r, err
		}
		b, err := io.ReadAll(r.Body)
		return says(r.StatusCode, r.Header.Get("Content-Type"), edit(string(b))), err
	}
}

func says(status int, contentType, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(strings.NewReader(body))}
}

type sentCall struct {
	path, accept string
	body         fields
}

// wire carries calls to a server, without a network, and with faults.
type wire struct {
	handler http.Handler

	mu    sync.Mutex
	sent  []sentCall
	once  map[string][]fault // by path, for the next calls; nil: none
	every map[string]fault   // by path
	down  bool
}

// next has faults happen to the next calls of a path, one each; nil means none.
func (w *wire) next(path string, faults ...fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.once == nil {
		w.once = map[string][]fault{}
	}
	w.once[path] = append(w.once[path], faults...)
}

// always has a fault happen to all calls of a path, or none if it is nil.
func (w *wire) always(path string, f fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.every == nil {
		w.every = map[string]fault{}
	}
	w.every[path] = f
}

// kill ends the server, as far as the client sees.
func (w *wire) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = true
}

func (w *wire) RoundTrip(q *http.Request) (*http.Response, error) {
	b, err := io.ReadAll(q.Body)
	if err != nil {
		return nil, err
	}
	call := sentCall{path: q.URL.Path, accept: q.Header.Get("Accept")}
	if err := json.Unmarshal(b, &call.body); err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.sent = append(w.sent, call)
	f := w.every[call.path]
	if queue := w.once[call.path]; len(queue) > 0 {
		f, w.once[call.path] = queue[0], queue[1:]
	}
	down := w.down
	w.mu.Unlock()
	if down {
		return nil, errWire
	}
	carry := func() (*http.Response, error) { return w.carry(q, string(b)) }
	if f != nil {
		return f(q, carry)
	}
	return carry()
}

// carry has the server answer, as it would over a connection.
func (w *wire) carry(q *http.Request, body string) (*http.Response, error) {
	ctx, hangUp := context.WithCancel(q.Context())
	r := q.Clone(ctx)
	r.Host, r.RemoteAddr, r.RequestURI = "localhost", "192.0.2.1:1", q.URL.Path
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	reads, writes := io.Pipe()
	a := &answering{header: http.Header{}, begun: make(chan struct{}), writes: writes}
	go func() {
		w.handler.ServeHTTP(a, r)
		a.WriteHeader(http.StatusOK)
		_ = writes.Close()
	}()
	select {
	case <-a.begun:
		unhook := context.AfterFunc(ctx, func() { _ = reads.CloseWithError(ctx.Err()) })
		return &http.Response{StatusCode: a.status, Header: a.header, Body: closing{reads, func() { unhook(); hangUp() }}}, nil
	case <-ctx.Done():
		hangUp()
		_ = reads.Close()
		return nil, ctx.Err()
	}
}

type closing struct {
	*io.PipeReader
	hangUp func()
}

func (c closing) Close() error { c.hangUp(); return c.PipeReader.Close() }

// answering is the ResponseWriter of a server.
type answering struct {
	header http.Header
	once   sync.Once
	status int
	begun  chan struct{}
	writes *io.PipeWriter
}

func (a *answering) Header() http.Header { return a.header }
func (a *answering) WriteHeader(status int) {
	a.once.Do(func() { a.status = status; close(a.begun) })
}

func (a *answering) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.writes.Write(p)
}

func (a *answering) FlushError() error { a.WriteHeader(http.StatusOK); return nil }

// must takes a lock.
func (w *world) must(l *Lease, err error) *Lease {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
	testutil.Want(w.T, l.Check(), nil)
	return l
}

// ends checks that a lease has ended for such a reason, by its check and by its context.
func (w *world) ends(l *Lease, why error) {
	w.Helper()
	synctest.Wait()
	testutil.Want(w.T, l.Check(), why)
	testutil.Want(w.T, context.Cause(l.Context()), why)
	if left := l.Remaining(); left != 0 {
		w.Errorf("%v remain", left)
	}
}

// release releases a lease that was good until now.
func (w *world) release(l *Lease) {
	w.Helper()
	testutil.Want(w.T, l.Release(w.Context()), nil)
}
