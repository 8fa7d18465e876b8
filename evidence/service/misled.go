// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/evidence/peers/service"
)

// Rules of the service that a replica can break.
const (
	acquireRenews = "acquire-renews" // an acquire of the holder renews its lease, and is granted again
	fromMemory    = "from-memory"    // a heartbeat is answered by what was seen last
)

// misled returns the handler of a server that breaks a rule; the server itself if wrong is
// empty.
func misled(right http.Handler, client *tenure.Client, store driver.Store, wrong string) (http.Handler, error) {
	switch wrong {
	case "":
		return right, nil
	case acquireRenews:
		return &renewing{right, client, store}, nil
	case fromMemory:
		return &remembering{right: right, answers: map[string]json.RawMessage{}}, nil
	}
	return nil, fmt.Errorf("%s=%s: there is no such mistake", wrongEnv, wrong)
}

// asked are the fields of calls that the mistakes go by.
type asked struct {
	Name  string `json:"name"`
	Owner string `json:"owner"`
	Token uint64 `json:"token"`
}

// read reads what a call asks, and leaves the call as it was.
func read(r *http.Request) (a asked, err error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return a, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return a, json.Unmarshal(body, &a)
}

// renewing grants the lock to its holder once more: it sends a heartbeat by itself.
type renewing struct {
	right  http.Handler
	client *tenure.Client
	store  driver.Store
}

func (h *renewing) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path == service.AcquirePath {
		if a, err := read(r); err == nil && h.renew(r.Context(), rw, a) {
			return
		}
	}
	h.right.ServeHTTP(rw, r)
}

func (h *renewing) renew(ctx context.Context, rw http.ResponseWriter, a asked) bool {
	rec, err := h.store.Get(ctx, a.Name, driver.Strong)
	if err != nil || rec.State != driver.Held || rec.Owner != a.Owner {
		return false
	}
	next := nextBeat(rec.Beat)
	renewal, err := h.client.Remote().Heartbeat(ctx, tenure.RemoteBeat{Name: a.Name, Token: rec.Token, After: rec.Beat, Next: next})
	if err != nil {
		return false
	}
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(map[string]any{ // its caller may be gone
		"name": a.Name, "token": rec.Token, "beat": next, "lease_ms": rec.Lease.Milliseconds(),
		"heartbeat_ms": renewal.Heartbeat.Milliseconds(), "free_after_ms": rec.Lease.Milliseconds() / 3,
	})
	return true
}

// nextBeat makes a beat that may follow another one.
func nextBeat(after string) string {
	term, _, _ := strings.Cut(after, "-")
	return term + "-" + rand.Text()[:13]
}

// remembering answers each heartbeat of a tenure as it has answered the first one.
type remembering struct {
	right http.Handler

	mu      sync.Mutex
	answers map[string]json.RawMessage
}

func (h *remembering) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	a, err := read(r)
	if r.URL.Path != service.HeartbeatPath || err != nil {
		h.right.ServeHTTP(rw, r)
		return
	}
	of := fmt.Sprint(a.Name, " ", a.Token)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.answers[of] == nil {
		kept := &keeping{ResponseWriter: rw, status: http.StatusOK}
		h.right.ServeHTTP(kept, r)
		if kept.status == http.StatusOK {
			h.answers[of] = kept.body.Bytes()
		}
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	_, _ = rw.Write(h.answers[of]) // its caller may be gone
}

// keeping keeps an answer that it hands on.
type keeping struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (k *keeping) WriteHeader(status int) {
	k.status = status
	k.ResponseWriter.WriteHeader(status)
}

func (k *keeping) Write(p []byte) (int, error) {
	k.body.Write(p)
	return k.ResponseWriter.Write(p)
}

func (k *keeping) Unwrap() http.ResponseWriter { return k.ResponseWriter }
