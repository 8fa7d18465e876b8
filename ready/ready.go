// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package ready answers the readiness probe of a program that leads, so that requests for the
// leader reach the leader.
//
// A [Handler] knows the lease of the work that runs through [Handler.Lead]:
//
//	probe := ready.New(nil)
//	mux.Handle("GET /readyz", probe)
//	err := election.Run(ctx, probe.Lead(work))
//
// It asks no store: the answer costs no request, and is there while the store is away. It is
// a hint for load balancers. It does not replace [tenure.Lease.Check] before a side
// effect, since a request may be on its way for longer than a lease lasts.
package ready

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
)

// State is what a program is in an election.
type State string

// The states.
const (
	// Follows: it does not lead, or leads no more.
	Follows State = "follows"
	// Leads: it leads, and its heartbeats are confirmed.
	Leads State = "leads"
	// Jeopardy: it leads, and less than [Options.Least] is left of its lease, since its
	// heartbeats were not confirmed.
	Jeopardy State = "jeopardy"
)

// Options say what is ready. The zero value is: the leader alone.
type Options struct {
	// Followers says that a program is ready as well while it follows. A rolling update
	// that waits for each new program to be ready needs that, unless the one before it
	// hands over meanwhile.
	Followers bool
	// Least is how much of the lease must be left. If zero, it is a third of the lease,
	// which is less than what is left after a heartbeat that comes in time, where the
	// heartbeat period is at most a third of the lease, too. It must not be negative.
	Least time.Duration
}

// Handler is an [http.Handler] that says whether its program leads. Its methods may be called
// concurrently.
type Handler struct {
	options Options

	mu    sync.Mutex
	lease *tenure.Lease // of the work that runs, nil if none does
}

// New returns a handler for one election. Options may be nil. It panics if they are not
// valid: they stand in the program.
func New(options *Options) *Handler {
	h := &Handler{}
	if options != nil {
		h.options = *options
	}
	if h.options.Least < 0 {
		panic("ready: Options.Least must not be negative") //nolint:forbidigo // a mistake in the program
	}
	return h
}

// Lead returns the work, for [tenure.Election.Run] or [tenure.Client.Run], so that the handler
// knows of its lease while it runs.
func (h *Handler) Lead(work func(context.Context, *tenure.Lease) error) func(context.Context, *tenure.Lease) error {
	return func(ctx context.Context, lease *tenure.Lease) error {
		h.set(lease)
		defer h.set(nil)
		return work(ctx, lease)
	}
}

func (h *Handler) set(lease *tenure.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lease = lease
}

// State returns what the program is at the moment, and the lease by which it leads, nil while
// it follows.
func (h *Handler) State() (State, *tenure.Lease) {
	h.mu.Lock()
	lease := h.lease
	h.mu.Unlock()
	if lease == nil || lease.Check() != nil {
		return Follows, nil
	}
	least := h.options.Least
	if least == 0 {
		least = lease.Timing().LeaseDuration / 3
	}
	if lease.Remaining() < least {
		return Jeopardy, lease
	}
	return Leads, lease
}

// answer is the body of an answer.
type answer struct {
	State State  `json:"state"`
	Lock  string `json:"lock,omitempty"`
	Token uint64 `json:"token,omitempty"`
	// RemainingMs is what is left of a leader's lease, in whole milliseconds: 0 in the last one.
	RemainingMs *int64 `json:"remaining_ms,omitempty"`
}

// ServeHTTP answers GET and HEAD with 200 if the program is ready, and else with 503. The body
// is JSON: state, and of a leader lock, token and remaining_ms. An answer is not to be kept.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "ready: "+http.StatusText(http.StatusMethodNotAllowed)+": use GET or HEAD", http.StatusMethodNotAllowed)
		return
	}
	state, lease := h.State()
	a := answer{State: state}
	if lease != nil {
		left := lease.Remaining().Milliseconds()
		a.Lock, a.Token, a.RemainingMs = lease.Name(), lease.Token(), &left
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if state != Leads && (state != Follows || !h.options.Followers) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(a) // the probe has gone: nobody is left to be told
}
