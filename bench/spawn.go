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
	"sync"

	"github.com/tenurelock/tenure/interop/peer"
	"github.com/tenurelock/tenure/interop/peer/wire"
)

// process is a running process of some client. [peer.Process] is one.
type process interface {
	Do(context.Context, wire.Request) (wire.Answer, error)
	Kill()
}

// spawned is a process of this program that serves Tenure.
type spawned struct {
	cmd   *exec.Cmd
	ready wire.Answer
	ended chan struct{} // closed when it has been waited for

	send  sync.Mutex // held while a line is written
	stdin io.WriteCloser

	mu      sync.Mutex
	last    int64
	pending map[int64]chan wire.Answer
}

func spawn(ctx context.Context) (*spawned, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &spawned{cmd: exec.Command(self), ended: make(chan struct{}), pending: map[int64]chan wire.Answer{}}
	p.cmd.Env = append(os.Environ(), serveEnv+"=1")
	p.cmd.Stderr = os.Stderr
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
		return nil, fmt.Errorf("%s: it has ended: %v", self, p.cmd.ProcessState)
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
		var a wire.Answer
		if json.Unmarshal(lines.Bytes(), &a) != nil {
			continue // the half of a line, of a process that was killed
		}
		if a.Event == wire.Ready {
			ready <- a
			continue
		}
		p.mu.Lock()
		waiter := p.pending[a.ID]
		delete(p.pending, a.ID)
		p.mu.Unlock()
		if waiter != nil {
			waiter <- a
		}
	}
	_ = p.cmd.Wait() // it is killed in the end
}

// Do sends a request and waits for its answer.
func (p *spawned) Do(ctx context.Context, r wire.Request) (wire.Answer, error) {
	answer := make(chan wire.Answer, 1)
	p.mu.Lock()
	p.last++
	r.ID = p.last
	p.pending[r.ID] = answer
	p.mu.Unlock()
	line, err := json.Marshal(r)
	if err != nil {
		return wire.Answer{}, err
	}
	p.send.Lock()
	_, err = p.stdin.Write(append(line, '\n'))
	p.send.Unlock()
	if err != nil {
		return wire.Answer{}, err
	}
	select {
	case a := <-answer:
		if !a.OK {
			return a, &peer.Refused{Answer: a}
		}
		return a, nil
	case <-p.ended:
		return wire.Answer{}, errors.New("the process has ended")
	case <-ctx.Done():
		return wire.Answer{}, context.Cause(ctx)
	}
}

// Kill ends the process with SIGKILL.
func (p *spawned) Kill() {
	_ = p.cmd.Process.Kill() // an error means that it has ended
	<-p.ended
}
