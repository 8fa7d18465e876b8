// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/peers/serve"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// roles are what this program can be: a process that holds locks with one of the
// libraries in Go, and a command that is run under a lock.
var roles = map[string]proc.Role{
	tenureName: serving(serve.Tenure), dynamolockName: serving(serve.Dynamolock), etcdName: serving(etcdLibrary), kubeName: serving(kubeLibrary),
	riverName:      serving(riverLibrary),
	onPostgresName: serving(tenureOn(onPostgresName)), onEtcdName: serving(tenureOn(onEtcdName)), onZooKeeperName: serving(tenureOn(onZooKeeperName)),
	onKubernetesName: serving(tenureOn(onKubernetesName)), inBucketName: serving(tenureOn(inBucketName)),
	tickRole: tick,
}

// worker is the work of a process: it is looked at more closely here than package
// serve does.
type worker struct {
	ending chan struct{} // closed when the client is told to close
	hurry  atomic.Int64  // work asks without a pause up to this instant of the wall clock

	mu    sync.Mutex
	drain time.Duration
}

// serving returns the role of a process of the library.
func serving(l serve.Library) proc.Role {
	return func(in io.Reader, out io.Writer) error {
		w := &worker{ending: make(chan struct{})}
		l.Commands = map[string]serve.Command{wire.Work: w.work, wire.End: w.end, wire.Hurry: w.hurries}
		return l.Role(in, out)
	}
}

// checkPeriod is how often work asks whether it may go on.
const checkPeriod = time.Millisecond

// A process that is to be stopped asks without a pause, so that a check is the
// first thing that it does when it goes on: a pause would end after the timers
// of the library that were due meanwhile. wire.Hurry has it do so, for hurryBound at
// most, and for hurryAfter when it goes on.
const (
	hurryBound = 500 * time.Millisecond
	hurryAfter = 20 * time.Millisecond
)

func (w *worker) hurries(context.Context, *serve.Server, *wire.Request) (wire.Answer, error) {
	w.hurry.Store(time.Now().Add(hurryBound).UnixNano())
	return wire.Answer{}, nil
}

// work acquires a lock once and works until the library says that it must not,
// or until the hold is over. Its log has the lines that the work of package serve
// has, and two more; the notice comes when it comes:
//
//	begin OWNER NS
//	no OWNER NS
//	end OWNER NS
//	notice OWNER NS
//
// end is the last instant that came before a check that was passed, no is when the
// check that was not passed gave its answer: a check may hang. If the client is
// told to end, end is the end of the work, which may outlast the lock.
func (w *worker) work(ctx context.Context, s *serve.Server, r *wire.Request) (wire.Answer, error) {
	log, err := os.OpenFile(r.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return wire.Answer{}, err
	}
	owner := fmt.Sprint(os.Getpid())
	write := func(what string, ns int64) {
		_, _ = fmt.Fprintln(log, wire.LogLine{What: what, Owner: owner, At: ns}) // who reads it misses it
	}
	h, err := s.Acquire(ctx, r)
	if err != nil {
		return wire.Answer{}, err
	}
	begin := proc.Monotonic()
	write(wire.LogBegin, begin)
	if notice := h.Notice(); notice != nil {
		go func() {
			<-notice
			write("notice", proc.Monotonic())
		}()
	}
	// In the loop by the wall clock, which is read without a system call: after one
	// of those others may run first.
	last, no := time.Now().UnixNano(), int64(0)
	ending := w.ending
	for until := last + (time.Duration(r.HoldMs) * time.Millisecond).Nanoseconds(); last < until; {
		// The instant first, then the check: it was passed after that instant.
		now := time.Now().UnixNano()
		if !h.Check() {
			no = time.Now().UnixNano()
			break
		}
		stood := now-last > hurryBound.Nanoseconds()
		last = now
		if hurry := w.hurry.Load(); now < hurry {
			continue
		} else if stood && hurry > 0 {
			// It was stopped meanwhile. What was due then comes now, and takes a moment.
			w.hurry.Store(now + hurryAfter.Nanoseconds())
			continue
		}
		select {
		case <-ending:
			w.drained(ctx, h, write)
			return wire.Answer{}, nil
		case <-time.After(checkPeriod):
		}
	}
	select {
	case <-ending: // by which the check may fail before it is seen here
		w.drained(ctx, h, write)
		return wire.Answer{}, nil
	default:
	}
	toMonotonic := proc.Monotonic() - time.Now().UnixNano()
	if no > 0 {
		write("no", no+toMonotonic)
	}
	write(wire.LogEnd, last+toMonotonic)
	return wire.Answer{}, nil
}

// drained is the rest of work that was told to stop: it takes its time, and
// releases the lock then.
func (w *worker) drained(ctx context.Context, h serve.Lock, write func(string, int64)) {
	w.mu.Lock()
	drain := w.drain
	w.mu.Unlock()
	select {
	case <-time.After(drain):
	case <-ctx.Done():
	}
	write(wire.LogEnd, proc.Monotonic())
	_ = h.Release(&wire.Request{}) // it may be released already: that is what is looked at
}

// end closes the client, and tells the work to stop, as a program that ends does.
func (w *worker) end(_ context.Context, s *serve.Server, r *wire.Request) (wire.Answer, error) {
	client, err := s.Client()
	if err != nil {
		return wire.Answer{}, err
	}
	w.mu.Lock()
	w.drain = time.Duration(r.DrainMs) * time.Millisecond
	close(w.ending)
	w.mu.Unlock()
	return wire.Answer{}, client.Close()
}
