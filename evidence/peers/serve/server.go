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
	"sync"

	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// Library is a lock library that can be served.
type Library struct {
	Name   string
	Module string // whose version is told; empty: this checkout
	Open   func(*wire.Request) (Client, error)
	// Commands are those that it has beside the ones of package wire, or in their
	// place.
	Commands map[string]Command
}

// Roles are those of a program that serves the libraries of this package.
var Roles = map[string]proc.Role{Tenure.Name: Tenure.Role, Dynamolock.Name: Dynamolock.Role}

// Command carries out a request.
type Command func(context.Context, *Server, *wire.Request) (wire.Answer, error)

// Server is a library behind a pipe. It may be used concurrently.
type Server struct {
	library Library

	mu     sync.Mutex
	client Client
	owner  string
	locks  map[string]Lock
}

// Role serves the library to whoever has started this process. Nothing is released
// when the input ends, as in a crash.
func (l Library) Role(in io.Reader, out io.Writer) error {
	s := &Server{library: l}
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
	if command := s.library.Commands[r.Command]; command != nil {
		return command(ctx, s, r)
	}
	switch r.Command {
	case wire.Ping:
		return wire.Answer{}, nil
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
	client, err := s.Client()
	if err != nil {
		return wire.Answer{}, err
	}
	switch r.Command {
	case wire.Acquire:
		lock, err := s.Acquire(ctx, r)
		if err != nil {
			return wire.Answer{}, err
		}
		return describe(lock), nil
	case wire.Work:
		return (&work{client: client, owner: s.owner, request: r}).run(ctx)
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
	s.client, s.owner, s.locks = client, r.Owner, map[string]Lock{}
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

// Client returns the open client.
func (s *Server) Client() (Client, error) {
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

// Acquire takes a lock and keeps it under its name.
func (s *Server) Acquire(ctx context.Context, r *wire.Request) (Lock, error) {
	client, err := s.Client()
	if err != nil {
		return nil, err
	}
	lock, err := client.Acquire(ctx, r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locks[r.Name] = lock
	return lock, nil
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
