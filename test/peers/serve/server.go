// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package serve serves a lock library over the protocol of package wire: it is the
// program of a peer's process.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tenurelock/tenure/test/harness/dynamo"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// Library is a lock library that can be served.
type Library struct {
	Name   string
	Module string // whose version is reported; empty: this checkout
	Open   func(*wire.Request) Client
}

// Roles are the roles of a program that serves the libraries of this package.
var Roles = map[string]proc.Role{Tenure.Name: Tenure.Role, Dynamolock.Name: Dynamolock.Role}

// server is a library behind a pipe. It may be used concurrently.
type server struct {
	library Library
	orders  orders

	mu     sync.Mutex
	client Client
	owner  string
	notice bool
	locks  map[string]Lock
}

// Role serves the library to the program that started this process. It releases nothing
// when the input ends, as in a crash.
func (l Library) Role(in io.Reader, out io.Writer) error {
	s := &server{library: l}
	s.orders.work, s.orders.end = context.WithCancel(context.Background())
	lines, now := proc.NewLines(out), proc.Monotonic()
	err := lines.Say(wire.Answer{
		OK: true, Version: version(l.Module), Runtime: runtime.Version(), SentNs: now, GotNs: now,
	})
	if err != nil {
		return err
	}
	return proc.Serve(in, lines, func(r *wire.Request) any { return s.answer(r) })
}

// version returns the linked version of a module.
func version(module string) string {
	if module == "" {
		return "this checkout"
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == module {
				return dep.Version
			}
		}
	}
	return "unknown"
}

func (s *server) answer(r *wire.Request) (a wire.Answer) {
	sent := proc.Monotonic()
	defer func() {
		// A client is known to panic, and that is an answer too.
		if p := recover(); p != nil {
			a = refused(fmt.Errorf("panic: %v", p))
		}
		a.ID, a.SentNs, a.GotNs = r.ID, sent, proc.Monotonic()
	}()
	if err := must.Try(func() { a = s.run(context.Background(), r) }); err != nil {
		return refused(err)
	}
	a.OK = true
	return a
}

// run carries out a command. It is for [must.Try].
func (s *server) run(ctx context.Context, r *wire.Request) (a wire.Answer) {
	switch r.Command {
	case wire.Ping:
	case wire.Measure:
		a.Usage = measure(r.Collect)
	case wire.Hurry:
		s.orders.hurry.Store(time.Now().Add(hurryBound).UnixNano())
	case wire.End:
		s.orders.drain = Milliseconds(&r.DrainMs)
		s.orders.end()
		must.Do(s.close())
	case wire.Open:
		s.open(r)
	case wire.Close:
		must.Do(s.close())
	case wire.Holds:
		holds := s.lock(r.Name).Check()
		a.Holds = &holds
	case wire.Release:
		must.Do(s.lock(r.Name).Release(r))
	case wire.Acquire:
		lock := s.opened().Acquire(ctx, r)
		s.mu.Lock()
		s.locks[r.Name] = lock
		s.mu.Unlock()
		if d, ok := lock.(describer); ok {
			a.Lock = d.Describe()
		}
		if token, ok := lock.Token(); ok {
			a.Token = &token
		}
	case wire.Work:
		w := &work{orders: &s.orders, client: s.opened(), owner: s.owner, notice: s.notice, request: r}
		a.Counts = w.run(ctx)
	case wire.Get:
		client := s.opened()
		g, ok := client.(getter)
		supported(ok, r)
		a.Lock = must.Have(g.Get(r))
	case wire.Heartbeat:
		b, ok := s.lock(r.Name).(beater)
		supported(ok, r)
		must.Do(b.Heartbeat(r))
	default:
		supported(false, r)
	}
	return a
}

func supported(ok bool, r *wire.Request) {
	if !ok {
		must.Do(Refuse(wire.Unsupported, fmt.Errorf("the library has no command %q", r.Command)))
	}
}

func (s *server) open(r *wire.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		must.Do(errors.New("already open"))
	}
	s.client, s.owner, s.notice, s.locks = s.library.Open(r), r.Owner, r.Notice, map[string]Lock{}
	if s.owner == "" {
		s.owner = fmt.Sprint(os.Getpid())
	}
}

// close takes the client out before it closes it: that may wait for an acquire that
// is under way, and meanwhile the other commands must be answered.
func (s *server) close() error {
	client := s.opened()
	s.mu.Lock()
	s.client = nil
	s.mu.Unlock()
	return client.Close()
}

func (s *server) opened() Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		must.Do(errors.New("not open"))
	}
	return s.client
}

func (s *server) lock(name string) Lock {
	s.mu.Lock()
	defer s.mu.Unlock()
	lock := s.locks[name]
	if lock == nil {
		must.Do(errors.New("no handle of this name"))
	}
	return lock
}

// measure is what this process uses.
func measure(collect bool) *wire.Usage {
	if collect {
		debug.FreeOSMemory()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := &wire.Usage{Heap: int64(m.HeapAlloc), Goroutines: runtime.NumGoroutine()}
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err == nil {
		u.CPU = float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
	}
	return u
}

// Client is a library's open client. What it does is for [must.Try].
type Client interface {
	// Acquire takes the lock, and waits for it unless the request says not to.
	Acquire(context.Context, *wire.Request) Lock
	Close() error
}

// Lock is a lock in hand.
type Lock interface {
	// Check asks the library whether the lock is still this holder's.
	Check() bool
	// Notice is closed when the library says by itself that it is not, or soon
	// will not be. It may be nil.
	Notice() <-chan struct{}
	// Token returns the fencing token, if the library has one.
	Token() (uint64, bool)
	Release(*wire.Request) error
}

// What some libraries can do beside that: look at a lock, say what the handle says of it, send a heartbeat,
// name what it fences, and ask the work to stop.
type (
	getter interface {
		Get(*wire.Request) (wire.Lock, error)
	}
	describer interface{ Describe() wire.Lock }
	beater    interface{ Heartbeat(*wire.Request) error }
	namer     interface{ Name() string }   // under which the resource compares the token
	stopper   interface{ Stopping() bool } // the library asks the work to stop
)

// onDynamoDB opens a client with connections of its own, to where the request says.
func onDynamoDB(open func(*dynamodb.Client, *wire.Request) Client) func(*wire.Request) Client {
	return func(r *wire.Request) Client {
		db := dynamo.Connect(r.Endpoint)
		if r.Wide {
			db, _ = dynamo.ConnectWide(r.Endpoint)
		}
		return open(db, r)
	}
}

// Milliseconds is the time of a field that may be left out; zero, then.
func Milliseconds(ms *int64) time.Duration {
	if ms == nil {
		return 0
	}
	return time.Duration(*ms) * time.Millisecond
}

// refusal is an error of a library whose kind is known.
type refusal struct {
	error
	kind string
}

func (r *refusal) Unwrap() error { return r.error }

// Refuse returns the error as an error of a kind of package wire.
func Refuse(kind string, err error) error { return &refusal{err, kind} }

// kindOf is the kind of an error, Other if it has none, and the library's own error.
func kindOf(err error) (string, error) {
	if r := (*refusal)(nil); errors.As(err, &r) {
		return r.kind, r.error
	}
	return wire.Other, err
}

// refused is the answer to a request that came to an error: it shows the library's
// own.
func refused(err error) wire.Answer {
	kind, err := kindOf(err)
	return wire.Answer{Kind: kind, Class: fmt.Sprintf("%T", err), Message: err.Error()}
}
