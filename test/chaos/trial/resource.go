// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package trial

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"

	"github.com/tenurelock/tenure/fence"
)

// effectHeader has an effect in JSON; the headers of package fence have its lock and token.
const effectHeader = "Effect"

// Send sends the effect to the resource at a URL, and returns what was read there. The error of
// an effect that the fence refuses is a [fence.StaleError].
func (e Effect) Send(ctx context.Context, client *http.Client, url string) (string, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return "", err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/effect", nil)
	if err != nil {
		return "", err
	}
	fence.SetHeader(q.Header, fence.Fixed(e.Lock, e.Token))
	q.Header.Set(effectHeader, string(text))
	answer, err := client.Do(q)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	if err := fence.Refusal(answer); err != nil {
		return "", err
	}
	text, err = io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("the resource says %s: %s", answer.Status, text)
	}
	return string(text), err
}

// Resource is what the holders of locks write to and read from, in POST /effect: a register for
// each lock, behind a fence. It logs all requests.
type Resource struct {
	server *httptest.Server
	guard  fence.Guard
	now    func() int64

	mu        sync.Mutex // guards the fields below
	effects   []*Effect
	byID      map[string]bool
	registers map[string]string
	bad       []string
}

// OpenResource starts a resource. With open its fence accepts every token, to show that a run
// finds that.
func OpenResource(now func() int64, open bool) *Resource {
	r := &Resource{now: now, guard: fence.NewGate(nil), byID: map[string]bool{}, registers: map[string]string{}}
	if open {
		r.guard = ajar{}
	}
	r.server = httptest.NewServer(http.HandlerFunc(r.take))
	return r
}

// ajar is a guard that refuses no token.
type ajar struct{}

func (ajar) Do(ctx context.Context, _ string, _ uint64, write func(context.Context) error) error {
	return write(ctx)
}

// URL is where the resource is.
func (r *Resource) URL() string { return r.server.URL }

// Close ends the resource.
func (r *Resource) Close() {
	r.server.CloseClientConnections()
	r.server.Close()
}

// take logs an effect when it arrives, when the fence accepts it, and when it has an answer.
func (r *Resource) take(rw http.ResponseWriter, q *http.Request) {
	e, err := read(q)
	r.mu.Lock()
	if err == nil && e.ID != "" && r.byID[e.ID] {
		err = fmt.Errorf("effect %s came twice", e.ID)
	}
	if err != nil {
		r.bad = append(r.bad, "the resource was sent no effect: "+err.Error())
		r.mu.Unlock()
		return
	}
	e.Came = r.now()
	r.byID[e.ID] = true
	r.effects = append(r.effects, e)
	r.mu.Unlock()
	enter := func(rw http.ResponseWriter, _ *http.Request) { r.enter(e, rw) }
	fence.Handler(r.guard, http.HandlerFunc(enter), nil).ServeHTTP(rw, q)
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Left, e.Refused = r.now(), rw.Header().Get(fence.RefusedHeader) == "stale"
}

func read(q *http.Request) (*Effect, error) {
	grant, err := fence.ParseHeader(q.Header)
	if err != nil {
		return nil, err
	}
	e := &Effect{}
	err = json.Unmarshal([]byte(q.Header.Get(effectHeader)), e)
	e.Lock, e.Token = grant.Name(), grant.Token()
	return e, err
}

// enter serves what the fence accepts.
func (r *Resource) enter(e *Effect, rw http.ResponseWriter) {
	r.mu.Lock()
	e.Entered = r.now()
	if !e.Read {
		r.registers[e.Lock] = e.Value
	}
	e.Value = r.registers[e.Lock]
	value := e.Value
	r.mu.Unlock()
	if e.Read {
		_, _ = io.WriteString(rw, value) // who cannot be reached learns nothing
	}
}

// Seen returns all effects, in the order in which they came, and all invalid requests.
func (r *Resource) Seen() (effects []Effect, bad []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.effects {
		effects = append(effects, *e)
	}
	return effects, slices.Clone(r.bad)
}
