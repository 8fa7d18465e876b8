// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/tenurelock/tenure/evidence/chaos/replica"
	"github.com/tenurelock/tenure/fence"
)

// registers are two resources that all replicas write to while they lead: one
// behind a fence, and one that anybody may write.
type registers struct {
	watch  replica.Watch
	gate   *fence.Gate
	server *http.Server
	url    string
	served chan error

	mu     sync.Mutex // guards the fields below
	fenced string
	plain  string
	visits map[string]visit
	twice  []string // ids that came again; nothing sends twice
}

// visit is an operation as the register saw it.
type visit struct {
	ID      string     `json:"id"` // of the operation
	Do      replica.Do `json:"do"`
	Token   uint64     `json:"token"`
	From    int64      `json:"from"` // it came
	To      int64      `json:"to"`   // it was done
	Ran     bool       `json:"ran"`  // it was let in
	Refused bool       `json:"refused"`
}

// openRegisters starts the server. Open says that the fence lets everybody in,
// to show that a run finds it.
func openRegisters(watch replica.Watch, open bool) (*registers, error) {
	r := &registers{watch: watch, gate: fence.NewGate(nil), visits: map[string]visit{}, served: make(chan error, 1)}
	var guard fence.Guard = r.gate
	if open {
		guard = ajar{}
	}
	mux := http.NewServeMux()
	options := &fence.HandlerOptions{Lock: func(*http.Request) string { return replica.LockName }}
	mux.Handle("POST /write", r.watched(fence.Handler(guard, http.HandlerFunc(r.write), options)))
	mux.Handle("POST /read", r.watched(fence.Handler(guard, http.HandlerFunc(r.read), options)))
	mux.Handle("POST /plain", r.watched(http.HandlerFunc(r.write)))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r.url = "http://" + listener.Addr().String()
	r.server = &http.Server{Handler: mux}
	go func() { r.served <- r.server.Serve(listener) }()
	return r, nil
}

// ajar is a guard that refuses nobody.
type ajar struct{}

func (ajar) Do(ctx context.Context, _ string, _ uint64, write func(context.Context) error) error {
	return write(ctx)
}

func (r *registers) close() error {
	err := r.server.Close()
	if served := <-r.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// watched notes when an operation comes, and when it is done.
func (r *registers) watched(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		id := req.URL.Query().Get("id")
		v := visit{ID: id, Do: replica.Do(req.URL.Path[1:]), From: r.watch.Now()}
		if grant, err := fence.ParseHeader(req.Header); err == nil {
			v.Token = grant.Token()
		}
		r.mu.Lock()
		if _, twice := r.visits[id]; twice {
			r.twice = append(r.twice, id)
		}
		r.visits[id] = v
		r.mu.Unlock()
		next.ServeHTTP(w, req)
		r.mu.Lock()
		defer r.mu.Unlock()
		v = r.visits[id]
		v.To, v.Refused = r.watch.Now(), w.Header().Get(fence.RefusedHeader) == "stale"
		r.visits[id] = v
	})
}

// enter notes that an operation was let in. The lock must be held.
func (r *registers) enter(req *http.Request) {
	id := req.URL.Query().Get("id")
	v := r.visits[id]
	v.Ran = true
	r.visits[id] = v
}

func (r *registers) write(w http.ResponseWriter, req *http.Request) {
	value, err := io.ReadAll(req.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.enter(req)
	if req.URL.Path == "/plain" {
		r.plain = string(value)
	} else {
		r.fenced = string(value)
	}
}

func (r *registers) read(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.enter(req)
	value := r.fenced
	r.mu.Unlock()
	_, _ = io.WriteString(w, value) // who cannot be reached learns nothing
}
