// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver of the nemesis

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/internal/enginetest/relay"
	"github.com/tenurelock/tenure/sqlitestore"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers"
)

// engine stores the locks of a round.
type engine interface {
	// store returns the URL of the store for a seat, through its gate if there
	// are gates; past all gates if the seat is negative.
	store(seat int) string
	// faults are the faults of this engine, each with its cause.
	faults() []fault
	// heal ends all faults of the engine.
	heal()
	// lost is how many pieces of bytes the gates have dropped.
	lost() int
}

// fileEngine is the name of the engine that is a file.
const fileEngine = "sqlite"

// engineNames are all that -engines takes.
func engineNames() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(servers)), maps.Keys(redisSetups))
	return append([]string{fileEngine}, slices.Sorted(slices.Values(names))...)
}

// checkEngine returns an error if the engine or its program is missing.
func checkEngine(name string) (err error) {
	kind, _, _ := strings.Cut(name, "-")
	switch {
	case name == fileEngine:
	case isRedis(name):
		_, err = launcher.SystemProgram("redis-server")
	case servers[name] == nil:
		err = fmt.Errorf("engine %q is not known: there are %s", name, strings.Join(engineNames(), ", "))
	case kind == "postgres":
		_, err = launcher.PostgresProgram(kind)
	default:
		_, err = launcher.Program(kind, "")
	}
	return err
}

// isRedis reports whether an engine is a Redis.
func isRedis(name string) bool {
	_, is := redisSetups[name]
	return is
}

// open makes a fresh engine, with its data below dir, which ends with the scope. It is for [must.Try].
func (p plan) open(ctx context.Context, dir string, scope *peers.Scope) engine {
	must.Do(checkEngine(p.Engine))
	if p.Engine == fileEngine {
		return openSQLite(dir, scope)
	}
	if isRedis(p.Engine) {
		return openRedis(ctx, p, dir, scope)
	}
	return openServed(ctx, servers[p.Engine](dir), dir, p.Seats, scope)
}

// sqlite is a file that all replicas open. It has no process and no socket.
type sqlite struct {
	file string
	db   *sql.DB    // of the nemesis
	busy sync.Mutex // held while it has the file locked
}

func openSQLite(dir string, scope *peers.Scope) *sqlite {
	s := &sqlite{file: filepath.Join(dir, "locks.db")}
	store := must.Have(sqlitestore.Open(s.file, nil)) // makes the file
	must.Do(store.Close())
	s.db = must.Have(sql.Open("sqlite", "file:"+s.file+"?_pragma=busy_timeout(2000)"))
	scope.After(func() { _ = s.db.Close() }) // the file goes with its folder
	return s
}

func (s *sqlite) store(int) string { return "sqlite:" + s.file }
func (s *sqlite) heal()            {}
func (s *sqlite) lost() int        { return 0 }

func (s *sqlite) faults() []fault {
	return []fault{
		{lockFile, nobody, 0.2, 0.7, exclusive(&s.busy, s.lock)},
		{lockFile, nobody, 0.8, 1.8, exclusive(&s.busy, s.lock)},
	}
}

// exclusive makes a fault that strikes one at a time.
func exclusive(busy *sync.Mutex, f strike) strike {
	return func(ctx context.Context, length time.Duration, seat int) {
		if !busy.TryLock() {
			must.Do(errBusy)
		}
		defer busy.Unlock()
		f(ctx, length, seat)
	}
}

// lock prevents all other writes to the file for d.
func (s *sqlite) lock(ctx context.Context, d time.Duration, _ int) {
	conn := must.Have(s.db.Conn(ctx))
	defer conn.Close() //nolint:errcheck // given back
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		must.Do(errors.Join(errBusy, err)) // others write all the time
	}
	wait.Rest(ctx, d)
	must.Have(conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK"))
}

// served is an engine of one server, or of several that act as one, whose data outlive
// them. Each replica reaches each server through its own gate.
type served struct {
	server
	members []*member
	busy    sync.Mutex // held while all of it is under a fault
	// How many of these faults of the engine there were.
	pauses, restarts int
}

// member is one of the servers.
type member struct {
	address string
	process *launcher.Process
	gates   []*relay.Relay // of each replica
}

// server is the part that differs between engines. Its steps are for [must.Try].
type server struct {
	name string
	// servers start the members, and addresses are theirs, in their order: ports of the loopback
	// interface.
	servers   []launcher.Server
	addresses []string
	// prepare makes, before its first start and after that of those before, what a member needs. It
	// may be nil: then all start at once.
	prepare func(member int)
	// begin makes, after the first start of all, what the locks need. It may be nil.
	begin func(ctx context.Context)
	// leads reports whether a member leads. A single member does. It is nil if the members
	// are not alike: then faults of a kind are for each in turn.
	leads func(ctx context.Context, member int) bool
	// replace makes another member the leader in place of the one killed, which becomes a
	// follower. If it is nil, the members do that themselves.
	replace func(ctx context.Context, s *served, killed int)
	// url is the store's, as a replica opens it at the addresses of gates.
	url func(addresses []string) string
}

func openServed(ctx context.Context, kind server, dir string, replicas int, scope *peers.Scope) *served {
	s := &served{server: kind}
	for i, of := range kind.servers {
		folder := filepath.Join(dir, fmt.Sprint("member-", i))
		must.Do(os.Mkdir(folder, 0o700))
		s.servers[i].Dir = cmp.Or(of.Dir, folder)
		m := &member{address: kind.addresses[i]}
		s.members = append(s.members, m)
		scope.After(func() {
			if m.process != nil {
				m.process.Kill()
			}
		})
	}
	if s.prepare == nil {
		s.start(ctx, s.members...)
	} else {
		for i, m := range s.members {
			s.prepare(i)
			s.start(ctx, m)
		}
	}
	if s.begin != nil {
		s.begin(ctx)
	}
	for _, m := range s.members {
		for range replicas {
			p := must.Have(relay.New(m.address))
			scope.After(p.Close)
			m.gates = append(m.gates, p)
		}
	}
	return s
}

// start starts members on their data, and waits until they answer.
func (s *served) start(ctx context.Context, members ...*member) {
	must.AtOnce(ctx, len(members), len(members), func(ctx context.Context, i int) {
		of := s.servers[slices.Index(s.members, members[i])]
		members[i].process = must.Have(of.Up(ctx, of.Dir+".log"))
	})
}

// chosen returns the member that the nth fault of a kind is for, counted from 0: the leader,
// or the first member if no member says that it leads.
func (s *served) chosen(ctx context.Context, n int) int {
	if s.leads == nil {
		return n % len(s.members)
	}
	return max(0, slices.IndexFunc(s.members, func(m *member) bool {
		return s.leads(ctx, slices.Index(s.members, m))
	}))
}

// restart kills the member that leads, and starts it after down on the same data, unless
// another one takes its place.
func (s *served) restart(ctx context.Context, down time.Duration, _ int) {
	ctx = context.WithoutCancel(ctx)
	killed := s.chosen(ctx, s.restarts)
	s.restarts++
	s.members[killed].process.Kill()
	wait.Rest(ctx, down)
	if s.replace != nil {
		s.replace(ctx, s, killed)
	} else {
		s.start(ctx, s.members[killed])
	}
}

// pause stops a member for a while, with the processes that it has started; what
// comes meanwhile waits in its sockets, and is done late. Two of three pauses strike the
// leader.
func (s *served) pause(ctx context.Context, length time.Duration, _ int) {
	paused := s.chosen(ctx, s.pauses)
	if s.pauses++; s.leads != nil && s.pauses%3 == 0 {
		paused = (paused + 1) % len(s.members)
	}
	p := s.members[paused].process
	defer p.Continue()
	must.Do(p.Hang())
	wait.Rest(ctx, length)
}

func (s *served) store(replica int) string {
	if replica < 0 {
		return s.url(s.addresses)
	}
	var gates []string
	for _, m := range s.members {
		gates = append(gates, m.gates[replica].Address())
	}
	return s.url(gates)
}

// gates returns the gates of a replica, or of all if it is negative.
func (s *served) gates(replica int) []*relay.Relay {
	var all []*relay.Relay
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
	hole, lose := s.cut((*relay.Relay).BlackHole), s.cut((*relay.Relay).LoseReplies)
	all := []fault{
		{blackHole, leader, 0.2, 0.7, hole},
		{blackHole, leader, 0.8, 2.5, hole},
		{blackHole, anyone, 0.5, 2, hole},
		{delay, leader, 0.5, 2, s.delay},
		{loseReplies, leader, 0.2, 1.2, lose},
		{loseReplies, everybody, 0.2, 0.8, exclusive(&s.busy, lose)},
	}
	n := 1
	if s.leads == nil { // as many for each of them
		n = len(s.members)
	}
	return append(all, slices.Repeat([]fault{
		{stopEngine, nobody, 0.1, 1.2, exclusive(&s.busy, s.pause)},
		{restartEngine, nobody, 0.02, 0.5, exclusive(&s.busy, s.restart)},
	}, n)...)
}

// cut causes a fault of the network between the engine and one replica, or all.
func (s *served) cut(fault func(*relay.Relay)) strike {
	return func(ctx context.Context, length time.Duration, replica int) {
		for _, p := range s.gates(replica) {
			fault(p)
		}
		wait.Rest(ctx, length)
		for _, p := range s.gates(replica) {
			p.Heal()
		}
	}
}

// delay delays each piece of bytes by a tenth of the fault in each direction.
func (s *served) delay(ctx context.Context, length time.Duration, replica int) {
	s.cut(func(p *relay.Relay) { p.Slow(length / 5) })(ctx, length, replica)
}

func (s *served) heal() {
	for _, p := range s.gates(-1) {
		p.Heal()
	}
}

func (s *served) lost() int {
	n := 0
	for _, p := range s.gates(-1) {
		n += p.Lost()
	}
	return n
}
