// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/interop/peer/wire"
)

// ErrExited is returned for a request that the process did not answer because
// it has ended. It may have carried the request out.
var ErrExited = errors.New("the peer's process has ended")

// stderrTail is how much of a process's standard error is kept.
const stderrTail = 16 << 10

// Process is one run of a program. It may be used concurrently. It must be
// ended with [Process.Kill] or [Process.Finish].
type Process struct {
	// Ready is the event with which the process began: the client's version,
	// the runtime, the process id.
	Ready wire.Answer

	cmd    *exec.Cmd
	stdin  *os.File
	stderr *tail
	exited chan struct{} // closed when the process has been waited for

	send sync.Mutex // held while a line is written

	mu      sync.Mutex
	nextID  int64
	pending map[int64]chan wire.Answer
	over    bool  // no answer will come any more
	failed  error // what was wrong with the output, if anything was
}

// Refused is the error of a request that the peer answered with a refusal.
type Refused struct{ wire.Answer }

func (r *Refused) Error() string {
	return fmt.Sprintf("refused as %s: %s: %s", r.Kind, r.Class, r.Message)
}

// Start starts a process and waits until it says that it is ready. It runs
// until it is killed: ctx bounds only the start.
func (p *Program) Start(ctx context.Context) (*Process, error) {
	stdin, input, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = stdin.Close() }() // the child has its own
	ps := &Process{
		cmd:     exec.Command(p.argv[0], p.argv[1:]...),
		stdin:   input,
		stderr:  &tail{limit: stderrTail},
		exited:  make(chan struct{}),
		pending: make(map[int64]chan wire.Answer),
	}
	ps.cmd.Stdin, ps.cmd.Stderr = stdin, ps.stderr
	ps.cmd.Env = append(os.Environ(), p.env...)
	output, err := ps.cmd.StdoutPipe()
	if err != nil {
		_ = input.Close()
		return nil, err
	}
	if err := ps.cmd.Start(); err != nil {
		_ = input.Close()
		return nil, err
	}
	ready := make(chan wire.Answer, 1)
	go ps.read(output, ready)
	select {
	case ps.Ready = <-ready:
		return ps, nil
	case <-ps.exited:
		err = ps.end()
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	ps.Kill()
	return nil, fmt.Errorf("start %s: %w\n%s", p.Kind, err, ps.stderr)
}

// read hands answers to the requests that wait for them, then waits for the
// process. It owns the process's end.
func (ps *Process) read(output io.Reader, ready chan<- wire.Answer) {
	defer close(ps.exited)
	lines := json.NewDecoder(output)
	for {
		var a wire.Answer
		err := lines.Decode(&a)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				// A line that is not ours, or the half of one that a killed
				// process left. Without an end to it nothing would be answered.
				ps.mu.Lock()
				ps.failed = fmt.Errorf("output: %w", err)
				ps.mu.Unlock()
				_ = ps.cmd.Process.Kill() // it may have ended
			}
			break
		}
		if a.Event != "" {
			if a.Event == wire.Ready {
				select {
				case ready <- a:
				default:
				}
			}
			continue
		}
		ps.mu.Lock()
		waiter := ps.pending[a.ID]
		delete(ps.pending, a.ID)
		ps.mu.Unlock()
		if waiter != nil {
			waiter <- a
		}
	}
	_ = ps.cmd.Wait() // the state is in ProcessState
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.over = true
	for id, waiter := range ps.pending {
		close(waiter)
		delete(ps.pending, id)
	}
	_ = ps.stdin.Close() // it may be closed already
}

// end is why there will be no answer.
func (ps *Process) end() error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.failed != nil {
		return fmt.Errorf("%w: %w", ErrExited, ps.failed)
	}
	return ErrExited
}

// Do sends a request and waits for its answer, which is the returned one even
// when the error is a [*Refused]. The request's id is overwritten. When ctx ends
// first the request may still be carried out: the peers cannot take one back.
func (ps *Process) Do(ctx context.Context, req wire.Request) (wire.Answer, error) {
	return ps.Begin(req).Wait(ctx)
}

// Begin sends a request and does not wait for its answer.
func (ps *Process) Begin(req wire.Request) *Call {
	c := &Call{process: ps, command: req.Command, answer: make(chan wire.Answer, 1)}
	ps.mu.Lock()
	ps.nextID++
	req.ID = ps.nextID
	c.id = req.ID
	if ps.over {
		close(c.answer)
		ps.mu.Unlock()
		return c
	}
	ps.pending[req.ID] = c.answer
	ps.mu.Unlock()
	line, err := json.Marshal(req)
	if err != nil {
		panic(err) //nolint:forbidigo // a programmer's error: a Request can be marshalled
	}
	ps.send.Lock()
	defer ps.send.Unlock()
	// A process that ends takes the answer's channel with it: no error here
	// needs to be told twice.
	_, _ = ps.stdin.Write(append(line, '\n'))
	return c
}

// Call is a request that was sent.
type Call struct {
	process *Process
	command string
	id      int64
	answer  chan wire.Answer
}

// Wait returns the answer, as [Process.Do] does. It may be called again when ctx
// had ended before the answer came, and not after it returned an answer.
func (c *Call) Wait(ctx context.Context) (wire.Answer, error) {
	select {
	case a, ok := <-c.answer:
		switch {
		case !ok:
			return wire.Answer{}, fmt.Errorf("%s: %w\n%s", c.command, c.process.end(), c.process.stderr)
		case !a.OK:
			return a, fmt.Errorf("%s: %w", c.command, &Refused{a})
		default:
			return a, nil
		}
	case <-ctx.Done():
		return wire.Answer{}, fmt.Errorf("%s: no answer yet: %w", c.command, context.Cause(ctx))
	}
}

// Kill ends the process with SIGKILL and returns after it has ended. It works on
// a process that is stopped, and does nothing to one that has ended.
func (ps *Process) Kill() {
	_ = ps.cmd.Process.Kill() // an error means that it has ended
	<-ps.exited
}

// Stop suspends the process with SIGSTOP: no thread of it runs until
// [Process.Continue]. It returns after the process has stopped.
func (ps *Process) Stop(ctx context.Context) error {
	if err := ps.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		stopped, err := ps.stopped()
		if stopped || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stop: %w", context.Cause(ctx))
		case <-time.After(time.Millisecond):
		}
	}
}

// Continue resumes the process with SIGCONT.
func (ps *Process) Continue() error {
	return ps.cmd.Process.Signal(syscall.SIGCONT)
}

// Finish ends the process's input, at which it exits and releases nothing, and
// waits for that. When ctx ends first it kills the process.
func (ps *Process) Finish(ctx context.Context) error {
	_ = ps.stdin.Close() // it may be closed already
	select {
	case <-ps.exited:
	case <-ctx.Done():
		ps.Kill()
		return fmt.Errorf("finish: %w", context.Cause(ctx))
	}
	if ps.cmd.ProcessState.Success() {
		return nil
	}
	return fmt.Errorf("finish: %s\n%s", ps.cmd.ProcessState, ps.stderr)
}

// Exited is closed when the process has ended.
func (ps *Process) Exited() <-chan struct{} { return ps.exited }

// Stderr is the end of what the process wrote to its standard error.
func (ps *Process) Stderr() string { return ps.stderr.String() }

// stopped reports whether every thread of the process is stopped: the kernel
// stops them one after the other.
func (ps *Process) stopped() (bool, error) {
	dir := fmt.Sprintf("/proc/%d/task", ps.cmd.Process.Pid)
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, task := range tasks {
		stat, err := os.ReadFile(dir + "/" + task.Name() + "/stat")
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			return false, err
		}
		if state(stat) != 'T' {
			return false, nil
		}
	}
	return true, nil
}
