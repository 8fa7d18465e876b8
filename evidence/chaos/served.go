// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
)

// served is an engine that is a server, whose data outlive it. Each replica reaches
// it through a gate of its own.
type served struct {
	server
	port    int
	process *proc.Process
	gates   []*gate.TCP
}

// server is what differs from one engine to another.
type server struct {
	name string
	// program is the file that is run, or that what is run needs. It names its version by
	// versionFlag, unless version does.
	program, versionFlag, version string
	// command runs the server in the foreground, on a port of the loopback interface.
	command func(port int) []string
	// begin makes, on the first start, what the locks need. It may be nil.
	begin func(ctx context.Context, address string) error
	// ready says that the server answers: it may take connections long before.
	ready func(ctx context.Context, address string) error
	// url is the store's, as a replica opens it.
	url func(address string) string
	// remove removes the data, if they are elsewhere than in the round's folder. It
	// may be nil.
	remove func() error
}

// startPatience bounds the start of an engine, after which it must answer.
const startPatience = 30 * time.Second

func openServed(ctx context.Context, kind server, replicas int) (_ *served, err error) {
	s := &served{server: kind}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.port, err = freePort(); err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	if s.begin != nil {
		if err := s.begin(ctx, s.address()); err != nil {
			return nil, err
		}
	}
	for range replicas {
		p, err := gate.NewTCP(s.address())
		if err != nil {
			return nil, err
		}
		s.gates = append(s.gates, p)
	}
	return s, nil
}

// freePort returns a port that the kernel chose.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	addr, _ := listener.Addr().(*net.TCPAddr)
	return addr.Port, listener.Close()
}

func (s *served) address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// start starts the engine on its data, and waits until it answers. What is left of a
// killed one, such as its memory, may have it end at once: then it is started again.
func (s *served) start(ctx context.Context) error {
	var last error
	answers := wait.Within(ctx, startPatience, func() bool {
		if s.process == nil || !s.process.Alive() {
			if s.process, last = proc.Start(proc.Command{Args: s.command(s.port)}); last != nil {
				s.process = nil
				return false
			}
		}
		last = s.ready(ctx, s.address())
		return last == nil
	})
	if answers {
		return nil
	}
	said := ""
	if s.process != nil {
		s.process.Kill()
		said = s.process.Stderr()
	}
	return fmt.Errorf("%s does not answer: %w: %s", s.name, last, said)
}

// restart kills the engine, and starts it after down on the same data.
func (s *served) restart(ctx context.Context, down time.Duration) error {
	s.process.Kill()
	wait.Rest(ctx, down)
	return s.start(context.WithoutCancel(ctx))
}

// pause stops the engine for a while, with the processes that it has started; what
// comes meanwhile waits in its sockets, and is done late.
func (s *served) pause(ctx context.Context, length time.Duration) error {
	stopped, err := s.process.Family()
	if err != nil {
		return err
	}
	for _, pid := range stopped {
		_ = syscall.Kill(pid, syscall.SIGSTOP) // one may have ended
	}
	wait.Rest(ctx, length)
	for _, pid := range stopped {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	return nil
}

func (s *served) store(replica int) string {
	if replica < 0 {
		return s.url(s.address())
	}
	return s.url(s.gates[replica].Address())
}

func (s *served) faults() []fault {
	return []fault{
		{kind: blackHole, on: leader, least: 0.2, most: 0.7},
		{kind: blackHole, on: leader, least: 0.8, most: 2.5},
		{kind: blackHole, on: anyone, least: 0.5, most: 2},
		{kind: delay, on: leader, least: 0.5, most: 2},
		{kind: loseReplies, on: leader, least: 0.2, most: 1.2},
		{kind: loseReplies, on: everybody, least: 0.2, most: 0.8},
		{kind: stopEngine, on: nobody, least: 0.1, most: 1.2},
		{kind: restartEngine, on: nobody, least: 0.02, most: 0.5},
	}
}

func (s *served) strike(ctx context.Context, f fault, length time.Duration, replica int) error {
	switch f.kind {
	case stopEngine:
		return s.pause(ctx, length)
	case restartEngine:
		return s.restart(ctx, length)
	}
	struck := s.gates
	if replica >= 0 {
		struck = struck[replica : replica+1]
	}
	for _, p := range struck {
		switch f.kind {
		case blackHole:
			p.BlackHole()
		case delay:
			p.Slow(length / 5) // a tenth on each way
		case loseReplies:
			p.LoseReplies()
		}
	}
	wait.Rest(ctx, length)
	for _, p := range struck {
		p.Heal()
	}
	return nil
}

func (s *served) heal() error {
	for _, p := range s.gates {
		p.Heal()
	}
	return nil
}

func (s *served) lost() int {
	n := 0
	for _, p := range s.gates {
		n += p.Lost()
	}
	return n
}

func (s *served) close() error {
	for _, p := range s.gates {
		p.Close()
	}
	if s.process != nil {
		s.process.Kill()
	}
	if s.remove == nil {
		return nil
	}
	return s.remove()
}
