// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/tenurelock/tenure/fence"
)

// guarded is what the workers write to: a resource for each partition, behind a
// gate. It keeps an account of its own of what came through, so that the gate is
// not believed.
type guarded struct {
	*httptest.Server
	gate *fence.Gate

	mu       sync.Mutex
	accepted int
	highest  map[string]uint64
	late     []string // writes that came through after one with a higher token
}

func newGuarded() *guarded {
	g := &guarded{gate: fence.NewGate(nil), highest: map[string]uint64{}}
	g.Server = httptest.NewServer(fence.Handler(g.gate, http.HandlerFunc(g.write), nil))
	return g
}

// write is reached by what the gate lets through.
func (g *guarded) write(rw http.ResponseWriter, r *http.Request) {
	grant, err := fence.ParseHeader(r.Header)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.accepted++
	if before := g.highest[grant.Name()]; before > grant.Token() {
		g.late = append(g.late, fmt.Sprintf("%s was written under token %d after %d", grant.Name(), grant.Token(), before))
		return
	}
	g.highest[grant.Name()] = grant.Token()
}

// fenced is what came of it.
type fenced struct {
	Accepted int `json:"accepted"`
	// Refused is how many had a token that was no more the highest.
	Refused uint64   `json:"refused"`
	Late    []string `json:"acceptedLate"`
}

func (g *guarded) found() fenced {
	g.mu.Lock()
	defer g.mu.Unlock()
	return fenced{g.accepted, g.gate.Refusals(), append([]string{}, g.late...)}
}

// forget makes it a new resource: of another group, whose locks are others. What
// was counted stays.
func (g *guarded) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name := range g.highest {
		g.gate.Forget(name)
	}
	clear(g.highest)
}
