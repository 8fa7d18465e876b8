// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/interop/peer/wire"
)

// serveEnv makes this program a process that holds locks with one of the
// libraries in Go.
const serveEnv = "TENURE_FAULTS_SERVE"

// library is a lock library with an open client.
type library interface {
	// acquire takes the lock, and waits for it unless the order says not to.
	acquire(ctx context.Context, o order) (held, error)
	close() error
}

// held is a lock in hand.
type held interface {
	// check asks the library whether the lock is still this holder's.
	check() bool
	// notice is closed when the library says by itself that it is not, or soon
	// will not be. It may be nil.
	notice() <-chan struct{}
	// token returns the fencing token, if the library has one.
	token() (uint64, bool)
	release() error
}

var (
	errHeld    = errors.New("held")
	errNoTry   = errors.New("the library cannot try without waiting")
	errNoLock  = errors.New("no lock of this name")
	errNotOpen = errors.New("not open")
)

// libraries are what an order to open can name.
var libraries = map[string]struct {
	module string // "" is this checkout
	open   func(order) (library, error)
}{
	tenureName:     {"", openTenure},
	dynamolockName: {"cirello.io/dynamolock/v2", openDynamolock},
	etcdName:       {"go.etcd.io/etcd/client/v3", openEtcd},
	kubeName:       {"k8s.io/client-go", openKube},
}

// server is a library behind a pipe.
type server struct {
	out struct {
		sync.Mutex
		io.Writer
	}

	mu      sync.Mutex
	library library
	locks   map[string]held
	ending  chan struct{} // closed when the client is told to close
	drain   time.Duration

	hurry atomic.Int64 // work asks without a pause up to this instant of the wall clock
}

// serve answers requests until the input ends. Nothing is released then, as in
// a crash.
func serve(in io.Reader, out io.Writer) error {
	s := &server{locks: map[string]held{}, ending: make(chan struct{})}
	s.out.Writer = out
	if err := s.write(reply{Answer: wire.Answer{Event: wire.Ready, OK: true, Runtime: runtime.Version(), PID: os.Getpid()}}); err != nil {
		return err
	}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var o order
		if err := json.Unmarshal(line, &o); err != nil {
			return fmt.Errorf("order %q: %w", line, err)
		}
		// One that waits for a lock must not hold up the others.
		go func() {
			if s.write(s.answer(o)) != nil {
				os.Exit(1) // nobody listens any more
			}
		}()
	}
}

func (s *server) write(a reply) error {
	line, err := json.Marshal(a)
	if err != nil {
		return err
	}
	s.out.Lock()
	defer s.out.Unlock()
	_, err = s.out.Write(append(line, '\n'))
	return err
}

func (s *server) answer(o order) reply {
	sent := wire.Monotonic()
	a, err := s.run(context.Background(), o)
	a.ID, a.OK, a.SentNs, a.GotNs = o.ID, err == nil, sent, wire.Monotonic()
	if err != nil {
		a.Kind, a.Class, a.Message = wire.Other, fmt.Sprintf("%T", err), err.Error()
		switch {
		case errors.Is(err, errHeld):
			a.Kind = wire.Held
		case errors.Is(err, errNoTry):
			a.Kind = wire.Unsupported
		}
	}
	return a
}

func (s *server) run(ctx context.Context, o order) (reply, error) {
	if o.Command == wire.Open {
		return s.open(o)
	}
	s.mu.Lock()
	lib, lock := s.library, s.locks[o.Name]
	s.mu.Unlock()
	if lib == nil {
		return reply{}, errNotOpen
	}
	switch o.Command {
	case wire.Acquire:
		h, err := s.acquire(ctx, lib, o)
		if err != nil {
			return reply{}, err
		}
		return reply{Token: tokenOf(h)}, nil
	case wire.Work:
		return reply{}, s.work(ctx, lib, o)
	case wire.Close:
		return reply{}, lib.close()
	case end:
		return reply{}, s.end(lib, o)
	case hurry:
		s.hurry.Store(time.Now().Add(hurryBound).UnixNano())
		return reply{}, nil
	case wire.Release, wire.Holds:
		if lock == nil {
			return reply{}, errNoLock
		}
		if o.Command == wire.Release {
			return reply{}, lock.release()
		}
		holds := lock.check()
		return reply{Answer: wire.Answer{Holds: &holds}}, nil
	}
	return reply{}, fmt.Errorf("no command %q", o.Command)
}

func (s *server) open(o order) (reply, error) {
	l, found := libraries[o.Library]
	if !found {
		return reply{}, fmt.Errorf("no library %q", o.Library)
	}
	lib, err := l.open(o)
	if err != nil {
		return reply{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.library = lib
	return reply{Answer: wire.Answer{Version: version(l.module)}}, nil
}

func (s *server) acquire(ctx context.Context, lib library, o order) (held, error) {
	h, err := lib.acquire(ctx, o)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locks[o.Name] = h
	return h, nil
}

func tokenOf(h held) *uint64 {
	if token, ok := h.token(); ok {
		return &token
	}
	return nil
}

// checkPeriod is how often work asks whether it may go on.
const checkPeriod = time.Millisecond

// A process that is to be stopped asks without a pause, so that a check is the
// first thing that it does when it goes on: a pause would end after the timers
// of the library that were due meanwhile. hurry has it do so, for hurryBound at
// most, and for hurryAfter when it goes on.
const (
	hurry      = "hurry"
	hurryBound = 500 * time.Millisecond
	hurryAfter = 20 * time.Millisecond
)

// work acquires a lock once and works until the library says that it must not,
// or until the hold is over. Its log has the lines that those of the interop rig
// have, and one more, as the notice comes when it comes:
//
//	begin OWNER NS
//	no OWNER NS
//	end OWNER NS
//	notice OWNER NS
//
// end is the last instant that came before a check that was passed, no is when the
// check that was not passed gave its answer: a check may hang. If the client is
// told to end, end is the end of the work, which may outlast the lock.
func (s *server) work(ctx context.Context, lib library, o order) error {
	log, err := os.OpenFile(o.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	write := func(what string, ns int64) {
		_, _ = fmt.Fprintf(log, "%s %d %d\n", what, os.Getpid(), ns) // who reads it misses it
	}
	h, err := s.acquire(ctx, lib, o)
	if err != nil {
		return err
	}
	begin := wire.Monotonic()
	write(wire.LogBegin, begin)
	if notice := h.notice(); notice != nil {
		go func() {
			<-notice
			write("notice", wire.Monotonic())
		}()
	}
	// In the loop by the wall clock, which is read without a system call: after one
	// of those others may run first.
	last, no := time.Now().UnixNano(), int64(0)
	ending := s.ending
	for until := last + (time.Duration(o.HoldMs) * time.Millisecond).Nanoseconds(); last < until; {
		// The instant first, then the check: it was passed after that instant.
		now := time.Now().UnixNano()
		if !h.check() {
			no = time.Now().UnixNano()
			break
		}
		stood := now-last > hurryBound.Nanoseconds()
		last = now
		if hurry := s.hurry.Load(); now < hurry {
			continue
		} else if stood && hurry > 0 {
			// It was stopped meanwhile. What was due then comes now, and takes a moment.
			s.hurry.Store(now + hurryAfter.Nanoseconds())
			continue
		}
		select {
		case <-ending:
			return s.drained(ctx, h, write)
		case <-time.After(checkPeriod):
		}
	}
	select {
	case <-ending: // by which the check may fail before it is seen here
		return s.drained(ctx, h, write)
	default:
	}
	toMonotonic := wire.Monotonic() - time.Now().UnixNano()
	if no > 0 {
		write("no", no+toMonotonic)
	}
	write(wire.LogEnd, last+toMonotonic)
	return nil
}

// drained is the rest of work that was told to stop: it takes its time, and
// releases the lock then.
func (s *server) drained(ctx context.Context, h held, write func(string, int64)) error {
	s.mu.Lock()
	drain := s.drain
	s.mu.Unlock()
	select {
	case <-time.After(drain):
	case <-ctx.Done():
	}
	write(wire.LogEnd, wire.Monotonic())
	_ = h.release() // it may be released already: that is what is looked at
	return nil
}

// end closes the client, and tells the work to stop, as a program that ends does.
func (s *server) end(lib library, o order) error {
	s.mu.Lock()
	s.drain = time.Duration(o.DrainMs) * time.Millisecond
	close(s.ending)
	s.mu.Unlock()
	return lib.close()
}

// version is that of a module as it was linked.
func version(module string) string {
	if module == "" {
		return "this checkout"
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			return dep.Version
		}
	}
	return "unknown"
}

func duration(ms *int64) time.Duration {
	if ms == nil {
		return 0
	}
	return time.Duration(*ms) * time.Millisecond
}
