// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package spec_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/trace"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/tenuretest"
)

// lock is the name of the lock that all traces are of.
const lock = "k"

const (
	lease          = 15 * time.Second
	heartbeat      = lease / 5
	requestTimeout = lease / 10
)

// world records all that its processes and its store do.
type world struct {
	*tenuretest.World
	t         *testing.T
	tape      *tape
	processes map[string]*process
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, tape: newTape(), processes: map[string]*process{}}
	records := memstore.New()
	w.World = tenuretest.On(t, func() driver.Store { return &below{Store: records.Open(), tape: w.tape} })
	w.Wrap(func(name string, s driver.Store) driver.Store {
		return &above{Store: s, tape: w.tape, p: w.processes[name]}
	})
	return w
}

// process is a client with its own clock. It has one acquire or lease at a time.
type process struct {
	*tenuretest.Client
	w    *world
	name string

	mu      sync.Mutex
	who     string // who acquires, or asks
	count   int
	writers map[string]string // by version
	asking  map[string]bool   // whose requests are under way
}

// process starts a process whose clock runs wrong by drift.
func (w *world) process(name string, drift float64) *process {
	w.t.Helper()
	p := &process{w: w, name: name, writers: map[string]string{}, asking: map[string]bool{}}
	w.processes[name] = p
	p.Client = w.Client(name, func(o *tenure.Options) { o.LeaseDuration, o.HistoryLimit = lease, -1 })
	p.SetRate(1 + drift)
	timing := protocol.Timing{Lease: lease}.WithDefaults()
	w.tape.mu.Lock()
	defer w.tape.mu.Unlock()
	w.tape.Add(trace.Event{At: time.Since(w.tape.start), Do: trace.Start, Proc: name, Timing: &trace.Timing{
		Lease: lease, Grace: timing.Grace, Window: timing.Window(), Drift: timing.Drift,
	}})
	return p
}

// next begins another acquire or request of the process.
func (p *process) next() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	p.who = fmt.Sprintf("%s/%d", p.name, p.count)
	return p.who
}

func (p *process) event(do trace.Kind, who string) {
	p.w.tape.note(trace.Event{Do: do, Proc: p.name, Who: who})
}

// held is a lease whose checks are noted.
type held struct {
	*tenure.Lease
	p   *process
	who string
}

// acquire waits for the lock.
func (p *process) acquire() *held {
	p.w.t.Helper()
	who := p.next()
	l, err := p.Acquire(p.w.t.Context(), lock, nil)
	if err != nil {
		p.w.t.Fatal(err)
	}
	h := &held{l, p, who}
	h.check()
	context.AfterFunc(l.Context(), func() {
		p.w.tape.note(trace.Event{Do: trace.End, Proc: p.name, Who: who, Cause: cause(context.Cause(l.Context()))})
	})
	return h
}

// giveUp cancels an acquire after a while.
func (p *process) giveUp(after time.Duration) {
	p.w.t.Helper()
	who := p.next()
	ctx, stop := context.WithCancel(p.w.t.Context())
	time.AfterFunc(after, func() {
		p.event(trace.Leave, who)
		stop()
	})
	if _, err := p.Acquire(ctx, lock, nil); !errors.Is(err, context.Canceled) {
		p.w.t.Errorf("acquire of %s: %v", p.name, err)
	}
}

func cause(err error) string {
	var asked *tenure.StepDownError
	switch {
	case errors.As(err, &asked):
		return protocol.Asked.String()
	case errors.Is(err, tenure.ErrExpired):
		return protocol.Expired.String()
	case errors.Is(err, tenure.ErrSuperseded):
		return protocol.Superseded.String()
	}
	return protocol.Stopped.String()
}

// check notes whether the lease's check passes now.
func (h *held) check() bool {
	h.p.w.tape.mu.Lock()
	defer h.p.w.tape.mu.Unlock()
	if h.Check() != nil {
		return false
	}
	h.p.w.tape.add(trace.Event{Do: trace.Check, Proc: h.p.name, Who: h.who})
	return true
}

func (h *held) release() {
	h.p.w.t.Helper()
	if err := h.Release(h.p.w.t.Context()); err != nil {
		h.p.w.t.Logf("release of %s: %v", h.who, err)
	}
}

func (p *process) fault(op faultstore.Op, skip, count int, f faultstore.Fault) {
	p.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{op}, Skip: skip, Count: count, Fault: f})
}
