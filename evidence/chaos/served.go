// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/internal/enginetest/launcher"
)

// served is an engine that is a server, or several that act as one, whose data outlive
// them. Each replica reaches each server through a gate of its own.
type served struct {
	server
	members []*member
	// How many of these faults of the engine there were.
	pauses, restarts int
}

// member is one of the servers.
type member struct {
	port    int
	ready   func() error // says that it answers: it may take connections long before
	process *proc.Process
	gates   []*gate.TCP // of each replica
}

func (m *member) address() string { return fmt.Sprintf("127.0.0.1:%d", m.port) }

// server is what differs from one engine to another. Addresses are those of the members,
// in their order.
type server struct {
	name string
	// version is the engine's. If it is empty, program prints it.
	version, program string
	// members are how many servers there are; 0 means 1.
	members int
	// prepare makes, before its first start, what a member needs. It may be nil.
	prepare func(ctx context.Context, member int, ports []int) error
	// launch returns what starts a member in the foreground, on its port of the loopback
	// interface.
	launch func(member int, ports []int) (launcher.Server, error)
	// begin makes, after the first start of all, what the locks need. It may be nil.
	begin func(ctx context.Context, addresses []string) error
	// leads says that a member is the one that decides. One that is alone does.
	leads func(ctx context.Context, member int, address string) bool
	// strikes names the member that the nth fault of a kind is for, counted from 0, where the
	// members are not alike: nil if they are.
	strikes func(n int) int
	// replace has another member take the place of the one that leads, which was killed,
	// and makes that one a follower. If it is nil the members see to that themselves.
	replace func(ctx context.Context, s *served, killed int) error
	// url is the store's, as a replica opens it.
	url func(addresses []string) string
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
	for range max(1, kind.members) {
		m := &member{}
		if m.port, err = launcher.Port(); err != nil {
			return nil, err
		}
		s.members = append(s.members, m)
	}
	if s.prepare == nil {
		err = s.start(ctx, s.members...)
	}
	for i, m := range s.members {
		if err == nil && s.prepare != nil { // it may need those before
			if err = s.prepare(ctx, i, s.ports()); err == nil {
				err = s.start(ctx, m)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	if s.begin != nil {
		if err := s.begin(ctx, s.addresses()); err != nil {
			return nil, err
		}
	}
	for _, m := range s.members {
		for range replicas {
			p, err := gate.NewTCP(m.address())
			if err != nil {
				return nil, err
			}
			m.gates = append(m.gates, p)
		}
	}
	return s, nil
}

func (s *served) ports() []int {
	var all []int
	for _, m := range s.members {
		all = append(all, m.port)
	}
	return all
}

func (s *served) addresses() []string {
	var all []string
	for _, m := range s.members {
		all = append(all, m.address())
	}
	return all
}

// start starts members on their data, and waits until they answer. What is left of a
// killed one, such as its memory, may have it end at once: then it is started again.
func (s *served) start(ctx context.Context, members ...*member) error {
	var last error
	answers := wait.Within(ctx, startPatience, func() bool {
		for _, m := range members {
			if m.process == nil || !m.process.Alive() {
				if last = s.launchMember(m); last != nil {
					return false
				}
			}
		}
		for _, m := range members {
			if last = m.ready(); last != nil {
				return false
			}
		}
		return true
	})
	if answers {
		return nil
	}
	var said []string
	for _, m := range members {
		if m.process != nil {
			m.process.Kill()
			said = append(said, m.process.Stderr())
		}
	}
	return fmt.Errorf("%s does not answer: %w: %s", s.name, last, strings.Join(said, "\n"))
}

func (s *served) launchMember(m *member) error {
	m.process = nil
	of, err := s.launch(slices.Index(s.members, m), s.ports())
	if err != nil {
		return err
	}
	m.ready = of.Ready
	process, err := proc.Start(proc.Command{Args: of.Args})
	if err == nil {
		m.process = process
	}
	return err
}

// leader returns the member that decides: the first one if none says that it does.
func (s *served) leader(ctx context.Context) int {
	for i, m := range s.members {
		if len(s.members) > 1 && s.leads(ctx, i, m.address()) {
			return i
		}
	}
	return 0
}

// chosen returns the member that the nth fault of a kind is for.
func (s *served) chosen(ctx context.Context, n int) int {
	if s.strikes != nil {
		return s.strikes(n)
	}
	return s.leader(ctx)
}

// restart kills the member that leads, and starts it after down on the same data, unless
// another one takes its place.
func (s *served) restart(ctx context.Context, down time.Duration) error {
	ctx = context.WithoutCancel(ctx)
	killed := s.chosen(ctx, s.restarts)
	s.restarts++
	s.members[killed].process.Kill()
	wait.Rest(ctx, down)
	if s.replace != nil {
		return s.replace(ctx, s, killed)
	}
	return s.start(ctx, s.members[killed])
}

// pause stops a member for a while, with the processes that it has started; what
// comes meanwhile waits in its sockets, and is done late. Of three pauses two are of the
// one that leads.
func (s *served) pause(ctx context.Context, length time.Duration) error {
	paused := s.chosen(ctx, s.pauses)
	if s.pauses++; s.strikes == nil && s.pauses%3 == 0 {
		paused = (paused + 1) % len(s.members)
	}
	stopped, err := s.members[paused].process.Family()
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
		return s.url(s.addresses())
	}
	var gates []string
	for _, m := range s.members {
		gates = append(gates, m.gates[replica].Address())
	}
	return s.url(gates)
}

// gates are those of a replica, or of all if it is negative.
func (s *served) gates(replica int) []*gate.TCP {
	var all []*gate.TCP
	for _, m := range s.members {
		if replica >= 0 {
			all = append(all, m.gates[replica])
		} else {
			all = append(all, m.gates...)
		}
	}
	return all
}

func (s *served) faults() []fault {
	all := []fault{
		{kind: blackHole, on: leader, least: 0.2, most: 0.7},
		{kind: blackHole, on: leader, least: 0.8, most: 2.5},
		{kind: blackHole, on: anyone, least: 0.5, most: 2},
		{kind: delay, on: leader, least: 0.5, most: 2},
		{kind: loseReplies, on: leader, least: 0.2, most: 1.2},
		{kind: loseReplies, on: everybody, least: 0.2, most: 0.8},
		{kind: stopEngine, on: nobody, least: 0.1, most: 1.2},
		{kind: restartEngine, on: nobody, least: 0.02, most: 0.5},
	}
	if s.strikes == nil {
		return all
	}
	for range s.members[1:] { // as many for each of them
		all = append(all, all[len(all)-2:]...)
	}
	return all
}

func (s *served) strike(ctx context.Context, f fault, length time.Duration, replica int) error {
	switch f.kind {
	case stopEngine:
		return s.pause(ctx, length)
	case restartEngine:
		return s.restart(ctx, length)
	}
	struck := s.gates(replica)
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
	for _, p := range s.gates(-1) {
		p.Heal()
	}
	return nil
}

func (s *served) lost() int {
	n := 0
	for _, p := range s.gates(-1) {
		n += p.Lost()
	}
	return n
}

func (s *served) close() error {
	for _, m := range s.members {
		for _, p := range m.gates {
			p.Close()
		}
		if m.process != nil {
			m.process.Kill()
		}
	}
	if s.remove == nil {
		return nil
	}
	return s.remove()
}
