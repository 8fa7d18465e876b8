// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package serve puts a lock library behind the language of package wire: what a
// peer's process does.
package serve

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// Library is a lock library that can be served.
type Library struct {
	Name   string
	Module string // whose version is told; empty: this checkout
	Open   func(*wire.Request) (Client, error)
}

// Roles are those of a program that serves the libraries of this package.
var Roles = map[string]proc.Role{Tenure.Name: Tenure.Role, Dynamolock.Name: Dynamolock.Role}

// Server is a library behind a pipe. It may be used concurrently.
type Server struct {
	library Library
	orders  orders

	mu     sync.Mutex
	client Client
	owner  string
	notice bool
	locks  map[string]Lock
}

// Role serves the library to whoever has started this process. Nothing is released
// when the input ends, as in a crash.
func (l Library) Role(in io.Reader, out io.Writer) error {
	s := &Server{library: l, orders: orders{ending: make(chan struct{})}}
	lines, now := proc.NewLines(out), proc.Monotonic()
	err := lines.Say(wire.Answer{
		Event: wire.Ready, OK: true, Peer: l.Name, Version: version(l.Module), Runtime: runtime.Version(),
		PID: os.Getpid(), SentNs: now, GotNs: now,
	})
	if err != nil {
		return err
	}
	return proc.Serve(in, lines, func(r *wire.Request) any { return s.answer(r) })
}

func (s *Server) answer(r *wire.Request) (a wire.Answer) {
	sent := proc.Monotonic()
	defer func() {
		// A client is known to panic, and that is an answer too.
		if p := recover(); p != nil {
			a = refused(fmt.Errorf("panic: %v", p))
		}
		a.ID, a.SentNs, a.GotNs = r.ID, sent, proc.Monotonic()
		a.ElapsedMs = float64(a.GotNs-a.SentNs) / 1e6
	}()
	a, err := s.run(context.Background(), r)
	if err != nil {
		return refused(err)
	}
	a.OK = true
	return a
}

func (s *Server) run(ctx context.Context, r *wire.Request) (wire.Answer, error) {
	switch r.Command {
	case wire.Ping:
		return wire.Answer{}, nil
	case wire.Measure:
		u := measure(r.Collect)
		return wire.Answer{Usage: &u}, nil
	case wire.Hurry:
		s.orders.hurry.Store(time.Now().Add(hurryBound).UnixNano())
		return wire.Answer{}, nil
	case wire.End:
		s.orders.end(Milliseconds(&r.DrainMs))
		return wire.Answer{}, s.close()
	case wire.Open:
		return wire.Answer{}, s.open(r)
	case wire.Close:
		return wire.Answer{}, s.close()
	case wire.Holds:
		lock, err := s.lock(r.Name)
		if err != nil {
			return wire.Answer{}, err
		}
		holds := lock.Check()
		return wire.Answer{Holds: &holds}, nil
	case wire.Acquire, wire.Release, wire.Get, wire.Heartbeat, wire.Work:
		return s.ask(ctx, r)
	}
	return wire.Answer{}, unsupported(r)
}

func unsupported(r *wire.Request) error {
	return Refuse(wire.Unsupported, fmt.Errorf("command %q: %w", r.Command, errUnsupported))
}

// ask carries out a request that the client is needed for.
func (s *Server) ask(ctx context.Context, r *wire.Request) (wire.Answer, error) {
	client, err := s.opened()
	if err != nil {
		return wire.Answer{}, err
	}
	switch r.Command {
	case wire.Acquire:
		lock, err := client.Acquire(ctx, r)
		if err != nil {
			return wire.Answer{}, err
		}
		s.mu.Lock()
		s.locks[r.Name] = lock
		s.mu.Unlock()
		return describe(lock), nil
	case wire.Work:
		return (&work{orders: &s.orders, client: client, owner: s.owner, notice: s.notice, request: r}).run(ctx)
	case wire.Get:
		if g, ok := client.(Getter); ok {
			lock, err := g.Get(r)
			return wire.Answer{Lock: lock}, err
		}
	case wire.Release, wire.Heartbeat:
		lock, err := s.lock(r.Name)
		if err != nil {
			return wire.Answer{}, err
		}
		if r.Command == wire.Release {
			return wire.Answer{}, lock.Release(r)
		}
		if b, ok := lock.(Beater); ok {
			return wire.Answer{}, b.Heartbeat(r)
		}
	}
	return wire.Answer{}, unsupported(r)
}

func (s *Server) open(r *wire.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		return errAlreadyOpen
	}
	client, err := s.library.Open(r)
	if err != nil {
		return err
	}
	s.client, s.owner, s.notice, s.locks = client, r.Owner, r.Notice, map[string]Lock{}
	if s.owner == "" {
		s.owner = fmt.Sprint(os.Getpid())
	}
	return nil
}

// close takes the client out before it closes it: that may wait for an acquire that
// is under way, and meanwhile the other commands must be answered.
func (s *Server) close() error {
	s.mu.Lock()
	client := s.client
	s.client = nil
	s.mu.Unlock()
	if client == nil {
		return errNotOpen
	}
	return client.Close()
}

func (s *Server) opened() (Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		return nil, errNotOpen
	}
	return s.client, nil
}

func (s *Server) lock(name string) (Lock, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lock := s.locks[name]; lock != nil {
		return lock, nil
	}
	return nil, errNoLock
}

func describe(lock Lock) (a wire.Answer) {
	if d, ok := lock.(Describer); ok {
		a.Lock = d.Describe()
	}
	if token, ok := lock.Token(); ok {
		a.Token = &token
	}
	return a
}

// measure is what this process uses.
func measure(collect bool) (u wire.Usage) {
	if collect {
		debug.FreeOSMemory()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.Heap, u.Goroutines = int64(m.HeapAlloc), runtime.NumGoroutine()
	var pages int64
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		_, _ = fmt.Sscan(string(text), new(int64), &pages) // none, then
	}
	u.RSS = pages * int64(os.Getpagesize())
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err == nil {
		u.CPU = float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
	}
	return u
}
