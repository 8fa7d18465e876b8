// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/fence"
)

// The headers of an effect, beside those of package fence.
const (
	ownerHeader   = "Effect-Owner"
	checkedHeader = "Effect-Checked"
)

// effect is what a holder has done to the resource. All of them reach the resource that has
// no fence; those that are not refused reach the one behind it.
type effect struct {
	Owner   string `json:"owner"`
	Token   uint64 `json:"token"`
	Checked int64  `json:"checked"` // the instant before the check that allowed it
	Came    int64  `json:"came"`
	Refused bool   `json:"refused"` // by the fence
}

// resource is what the holder of the lock writes to.
type resource struct {
	gate   *fence.Gate
	server *http.Server
	url    string
	served chan error

	mu      sync.Mutex // guards the fields below
	effects []effect
	bad     []string
}

func openResource() (*resource, error) {
	r := &resource{gate: fence.NewGate(nil), served: make(chan error, 1)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r.url = "http://" + listener.Addr().String()
	fenced := fence.Handler(r.gate, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), nil)
	mux := http.NewServeMux()
	mux.Handle("POST /effect", r.noted(fenced))
	r.server = &http.Server{Handler: mux}
	go func() { r.served <- r.server.Serve(listener) }()
	return r, nil
}

func (r *resource) close() error {
	err := r.server.Close()
	if served := <-r.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// noted takes an effect down, in the order in which they come, and has the fence judge it.
func (r *resource) noted(fenced http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
		e := effect{Owner: q.Header.Get(ownerHeader)}
		checked, err := strconv.ParseInt(q.Header.Get(checkedHeader), 10, 64)
		e.Checked = checked
		grant, badGrant := fence.ParseHeader(q.Header)
		if err = errors.Join(err, badGrant); err == nil {
			e.Token = grant.Token()
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if err != nil {
			r.bad = append(r.bad, "the resource was sent no effect: "+err.Error())
			return
		}
		e.Came = proc.Monotonic()
		fenced.ServeHTTP(rw, q)
		e.Refused = rw.Header().Get(fence.RefusedHeader) != ""
		r.effects = append(r.effects, e)
	})
}

// seen returns all effects, in the order in which they came, and what came that was none.
func (r *resource) seen() ([]effect, []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.effects), slices.Clone(r.bad)
}
