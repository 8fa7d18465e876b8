// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package peers builds and drives the real clients of other lock libraries, each
// a separate process that speaks the protocol of package wire:
// cirello.io/dynamolock/v2 in Go and com.amazonaws:dynamodb-lock-client in Java.
//
// The clients in Go are roles of the program that starts them: see [Own]. The Java
// client is built once: [Build] takes a file lock, so that concurrent test binaries
// share one build. A [Process] is one run of a [Program].
// It answers requests, several at once, and can be killed, stopped and continued as
// an operating system does it.
//
// The harness runs on Linux, because only there the processes are known to share
// one clock: see [proc.Monotonic].
package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// ErrExited is returned for a request that the process did not answer because
// it has ended. It may have carried the request out.
var ErrExited = errors.New("the peer's process has ended")

// Process is one run of a program. It may be used concurrently. It must be
// ended with Kill.
type Process struct {
	proc.Process
	// Ready is the first event of the process: the client's version, the runtime.
	Ready wire.Answer

	mu      sync.Mutex
	nextID  int64
	pending map[int64]*Call // nil: no answer will come any more
	failed  error           // why, if it is not the end of the process alone
}

// Refused is the error of a request that the peer answered with a refusal.
type Refused struct{ wire.Answer }

func (r *Refused) Error() string {
	return fmt.Sprintf("refused as %s: %s: %s", r.Kind, r.Class, r.Message)
}

// Start starts a process and waits until it says that it is ready. It runs
// until it is killed: ctx bounds only the start.
func (p *Program) Start(ctx context.Context) (*Process, error) {
	ps := &Process{pending: map[int64]*Call{}, failed: ErrExited}
	ready := ps.expect("start") // its answer has no id
	command := p.Command
	command.Line, command.Ended = ps.line, ps.ended
	err := ps.Start(command)
	if err != nil {
		return nil, err
	}
	if ps.Ready, err = ready.Wait(ctx); err != nil {
		ps.Kill()
		return nil, fmt.Errorf("%s: %w", p.Kind, err)
	}
	return ps, nil
}

// expect returns a call whose answer will come, with the next id. The caller holds mu, if others
// know of the process.
func (ps *Process) expect(command string) *Call {
	c := &Call{process: ps, command: command, id: ps.nextID}
	c.over, c.end = context.WithCancel(context.Background())
	ps.nextID++
	if ps.pending == nil {
		c.lost = ps.failed
		c.end()
		return c
	}
	ps.pending[c.id] = c
	return c
}

// line passes an answer to the call that waits for it.
func (ps *Process) line(line []byte) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var a wire.Answer
	err := json.Unmarshal(line, &a)
	c := ps.pending[a.ID]
	switch {
	case err != nil:
		// A line of another program, or half a line of a killed process. If this went on,
		// no call would get an answer.
		ps.failed = fmt.Errorf("%w: output %.200q: %w", ErrExited, line, err)
		go ps.Kill()
	case c != nil:
		delete(ps.pending, a.ID)
		c.answer = a
		c.end()
	}
}

func (ps *Process) ended(*os.ProcessState) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, c := range ps.pending {
		c.lost = ps.failed
		c.end()
	}
	ps.pending = nil
}

// Do sends a request and waits for its answer, which is the returned one even
// when the error is a [*Refused]. The request's id is overwritten. When ctx ends
// first the request may still be carried out: the peers cannot take one back.
func (ps *Process) Do(ctx context.Context, req wire.Request) (wire.Answer, error) {
	return ps.Begin(req).Wait(ctx)
}

// Begin sends a request and does not wait for its answer.
func (ps *Process) Begin(req wire.Request) *Call {
	ps.mu.Lock()
	c := ps.expect(req.Command)
	ps.mu.Unlock()
	req.ID = c.id
	// The end of a process fails its calls: an error here need not be reported
	// twice.
	_ = ps.Send(req)
	return c
}

// Call is a request that was sent.
type Call struct {
	process *Process
	command string
	id      int64

	over   context.Context // when the fields below are there
	end    context.CancelFunc
	answer wire.Answer
	lost   error // why there is no answer
}

// Done is closed when [Call.Wait] returns at once.
func (c *Call) Done() <-chan struct{} { return c.over.Done() }

// Answered says that it does.
func (c *Call) Answered() bool { return c.over.Err() != nil }

// Wait returns the answer, as [Process.Do] does. It may be called again.
func (c *Call) Wait(ctx context.Context) (wire.Answer, error) {
	select {
	case <-c.over.Done():
		switch {
		case c.lost != nil:
			return wire.Answer{}, fmt.Errorf("%s: %w\n%s", c.command, c.lost, c.process.Stderr())
		case !c.answer.OK:
			return c.answer, fmt.Errorf("%s: %w", c.command, &Refused{c.answer})
		default:
			return c.answer, nil
		}
	case <-ctx.Done():
		return wire.Answer{}, fmt.Errorf("%s: no answer yet: %w", c.command, context.Cause(ctx))
	}
}

// Member is a process with an open client, which holds locks and waits for
// them.
type Member struct {
	*Process
	RefreshMs *int64 // between two looks at a held lock; nil: as the client does by itself
}

// Open starts a process and opens its client. Like what a member does it is for [must.Try].
func (p *Program) Open(ctx context.Context, r wire.Request) *Member {
	ctx, cancel := context.WithTimeout(ctx, wait.Bound)
	defer cancel()
	ps := must.Have(p.Start(ctx))
	if _, err := ps.Do(ctx, r); err != nil {
		ps.Kill()
		must.Do(fmt.Errorf("%s: %w", p.Kind, err))
	}
	return &Member{ps, r.RefreshMs}
}

// Asking is a request about a lock. To acquire it means to wait for as long as it
// takes: some clients give up by default.
func (m *Member) Asking(command, name string) wire.Request {
	return wire.Request{Command: command, Name: name, RefreshMs: m.RefreshMs, WaitMs: Milliseconds(time.Hour)}
}

// Acquire waits for the lock, for as long as ctx lasts.
func (m *Member) Acquire(ctx context.Context, name string) wire.Answer {
	return must.Have(m.Do(ctx, m.Asking(wire.Acquire, name)))
}

// Release gives the lock back.
func (m *Member) Release(ctx context.Context, name string) wire.Answer {
	return must.Have(m.Do(ctx, m.Asking(wire.Release, name)))
}

// Holds reports whether the member's handle says that it still has the lock.
func (m *Member) Holds(ctx context.Context, name string) bool {
	a := must.Have(m.Do(ctx, m.Asking(wire.Holds, name)))
	return a.Holds != nil && *a.Holds
}

// Usage is what the member's process uses.
func (m *Member) Usage(ctx context.Context, collect bool) wire.Usage {
	return *must.Have(m.Do(ctx, wire.Request{Command: wire.Measure, Collect: collect})).Usage
}
