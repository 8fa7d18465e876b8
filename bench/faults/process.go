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
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/interop/peer"
	"github.com/tenurelock/tenure/interop/peer/wire"
)

// order is what a process is asked to do: a request of the interop rig, so that
// its Java client understands it, and what only the processes of this program do.
type order struct {
	wire.Request
	Library string `json:"library,omitempty"` // of open
	// RequestTimeout asks client-go for the time-out of NewFromKubeconfig. Of open.
	RequestTimeout bool `json:"requestTimeout,omitempty"`
	// ReleaseOnCancel is client-go's option. Of open.
	ReleaseOnCancel bool  `json:"releaseOnCancel,omitempty"`
	DrainMs         int64 `json:"drainMs,omitempty"` // of end
}

// end is the command to close the client while its work needs DrainMs more.
const end = "end"

// reply is what came of an order.
type reply struct {
	wire.Answer
	Token *uint64 `json:"token,omitempty"`
}

// process is a running client.
type process interface {
	begin(order) <-chan answered
	// Stop and Continue are SIGSTOP and SIGCONT. Stop returns when no thread
	// runs any more.
	Stop(context.Context) error
	Continue() error
	Kill()
	about() wire.Answer
}

type answered struct {
	reply
	err error
}

// do sends an order, and waits.
func do(ctx context.Context, p process, o order) (reply, error) {
	return got(ctx, p.begin(o))
}

func got(ctx context.Context, answer <-chan answered) (reply, error) {
	select {
	case a := <-answer:
		return a.reply, a.err
	case <-ctx.Done():
		return reply{}, context.Cause(ctx)
	}
}

// foreign is a process of the interop rig.
type foreign struct{ *peer.Process }

func (f foreign) about() wire.Answer { return f.Ready }

func (f foreign) begin(o order) <-chan answered {
	call := f.Begin(o.Request)
	answer := make(chan answered, 1)
	go func() {
		a, err := call.Wait(context.Background()) // ends with the process
		answer <- answered{reply{Answer: a}, err}
	}()
	return answer
}

// spawned is a process of this program that serves a client.
type spawned struct {
	cmd   *exec.Cmd
	ready wire.Answer
	ended chan struct{} // closed when it has been waited for

	send  sync.Mutex // held while a line is written
	stdin io.WriteCloser

	mu      sync.Mutex
	last    int64
	over    bool
	pending map[int64]chan answered
}

var errEnded = errors.New("the process has ended")

// spawn starts a program that speaks the language of package wire: this one, one
// built of it, or the interop rig's in Java.
func spawn(ctx context.Context, command []string, env ...string) (*spawned, error) {
	p := &spawned{cmd: exec.Command(command[0], command[1:]...), ended: make(chan struct{}), pending: map[int64]chan answered{}}
	p.cmd.Env = append(append(os.Environ(), serveEnv+"=1"), env...)
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan wire.Answer, 1)
	go p.read(out, ready)
	select {
	case p.ready = <-ready:
		return p, nil
	case <-p.ended:
		return nil, fmt.Errorf("%s: %w: %v", command[0], errEnded, p.cmd.ProcessState)
	case <-ctx.Done():
		p.Kill()
		return nil, context.Cause(ctx)
	}
}

// read hands answers to those who wait for them, and waits for the process.
func (p *spawned) read(out io.Reader, ready chan<- wire.Answer) {
	defer close(p.ended)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var a reply
		if json.Unmarshal(lines.Bytes(), &a) != nil {
			continue // the half of a line, of a process that was killed
		}
		if a.Event == wire.Ready {
			ready <- a.Answer
			continue
		}
		p.mu.Lock()
		waiter := p.pending[a.ID]
		delete(p.pending, a.ID)
		p.mu.Unlock()
		if waiter == nil {
			continue
		}
		var err error
		if !a.OK {
			err = &peer.Refused{Answer: a.Answer}
		}
		waiter <- answered{a, err}
	}
	_ = p.cmd.Wait() // it is killed in the end
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	for _, waiter := range p.pending {
		waiter <- answered{err: errEnded}
	}
}

func (p *spawned) begin(o order) <-chan answered {
	answer := make(chan answered, 1)
	p.mu.Lock()
	p.last++
	o.ID = p.last
	over := p.over
	if !over {
		p.pending[o.ID] = answer
	}
	p.mu.Unlock()
	if over {
		answer <- answered{err: errEnded}
		return answer
	}
	line, err := json.Marshal(o)
	if err != nil {
		answer <- answered{err: err}
		return answer
	}
	p.send.Lock()
	defer p.send.Unlock()
	_, _ = p.stdin.Write(append(line, '\n')) // an end is told by read
	return answer
}

func (p *spawned) about() wire.Answer { return p.ready }

// Kill ends the process with SIGKILL.
func (p *spawned) Kill() {
	_ = p.cmd.Process.Kill() // an error means that it has ended
	<-p.ended
}

// Stop suspends the process, and returns when none of its threads runs.
func (p *spawned) Stop(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return until(ctx, "the process stops", func() bool { return stopped(p.cmd.Process.Pid) })
}

// Continue resumes it.
func (p *spawned) Continue() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

func stopped(pid int) bool {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	threads, err := os.ReadDir(dir)
	if err != nil {
		return true // it has ended
	}
	for _, t := range threads {
		stat, err := os.ReadFile(dir + "/" + t.Name() + "/stat")
		if err != nil {
			continue // that thread has ended
		}
		// The name, in brackets, may have brackets in it.
		_, after, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
		if !strings.HasPrefix(after, "T") {
			return false
		}
	}
	return true
}

// pause waits for a time that belongs to a measurement.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// startBound bounds what takes no time but on a busy machine.
const startBound = time.Minute

// until waits for a condition.
func until(ctx context.Context, what string, holds func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startBound, errors.New("not so within a minute: "+what))
	defer cancel()
	for !holds() {
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
