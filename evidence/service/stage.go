// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/holds"
	"github.com/tenurelock/tenure/evidence/peers/service"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// lockName is the lock that all contend for.
const lockName = "jobs/nightly"

// setting is what a stage is made of.
type setting struct {
	// Program is tenured, or this program, which Role makes a replica then.
	Program, Role string
	Env           []string // of the replicas
	Replicas      int
	Lease         time.Duration
}

// stage is a lock service on a fresh file, a resource, and the clients that are there.
type stage struct {
	setting
	*service.Replicas
	resource *resource
	dir      string
	file     string // of the store
	log      string // what the clients' work writes

	mu      sync.Mutex
	clients []*client
	deaths  map[string]holds.Death
}

// client is a process that holds locks by the service, behind a front of its own.
type client struct {
	*peers.Member
	front *gate.HTTP
	owner string
}

func (s setting) open(ctx context.Context) (_ *stage, err error) {
	x := &stage{setting: s, deaths: map[string]holds.Death{}}
	if x.dir, err = os.MkdirTemp("", "tenure-service-"); err != nil {
		return nil, err
	}
	x.file, x.log = filepath.Join(x.dir, "locks.db"), filepath.Join(x.dir, "holds.log")
	if err = os.WriteFile(x.log, nil, 0o600); err == nil {
		x.resource, err = openResource()
	}
	if err == nil {
		stores := make([]string, s.Replicas)
		for i := range stores {
			stores[i] = "sqlite:" + x.file
		}
		x.Replicas, err = service.Start(ctx, service.Config{
			Program: s.Program, Role: s.Role, Env: s.Env, Dir: x.dir, Stores: stores, Lease: s.Lease, Drain: s.Lease / 4,
		})
	}
	if err != nil {
		return nil, errors.Join(err, x.close())
	}
	return x, nil
}

func (x *stage) close() (err error) {
	x.mu.Lock()
	clients := x.clients
	x.mu.Unlock()
	for _, c := range clients {
		c.Kill()
		c.front.Close()
	}
	if x.Replicas != nil {
		x.Replicas.Close()
	}
	if x.resource != nil {
		err = x.resource.close()
	}
	return errors.Join(err, os.RemoveAll(x.dir))
}

// client starts a client in weather.
func (x *stage) client(ctx context.Context, program *peers.Program, owner string, w gate.Weather, seed uint64) (*client, error) {
	front, err := service.NewFront(x.URLs(), w, seed)
	if err != nil {
		return nil, err
	}
	return x.clientAt(ctx, program, owner, front)
}

// clientAt starts a client at a front.
func (x *stage) clientAt(ctx context.Context, program *peers.Program, owner string, front *gate.HTTP) (*client, error) {
	m, err := program.Open(ctx, wire.Request{
		Command: wire.Open, Endpoint: front.Address(), Owner: owner, Secret: x.Worker,
	})
	if err != nil {
		front.Close()
		return nil, err
	}
	c := &client{m, front, owner}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.clients = append(x.clients, c)
	return c, nil
}

// work is a request to take the lock and hold it for a while, over and over for a long
// time. Half of that is between a check and the effect that it allows: a process that is
// stopped there is late, as nothing but a fence can tell.
func (x *stage) work(hold, pause time.Duration) wire.Request {
	return wire.Request{
		Command: wire.Work, Name: lockName, Log: x.log, Resource: x.resource.url, EffectMs: 10, HesitateMs: 10,
		HoldMs: hold.Milliseconds(), PauseMs: pause.Milliseconds(), DurationMs: long.Milliseconds(),
		WaitMs: peers.Milliseconds(waitAtMost),
	}
}

// waitAtMost is for how long work waits for the lock before it asks again.
const waitAtMost = 2 * time.Second

// kindOf is the kind of client that an owner is: its name begins with that.
func kindOf(owner string) string {
	kind, _, _ := strings.Cut(owner, "-")
	return kind
}

// past returns what is known of what has happened, of all clients: none of them works any
// more.
func (x *stage) past(ctx context.Context) (*past, []string, error) {
	file, err := os.Open(x.log)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	x.mu.Lock()
	all, err := holds.Read(file, x.deaths)
	x.mu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	p := &past{Holds: all}
	var bad []string
	p.Effects, bad = x.resource.seen()
	p.endKilled()
	p.Tenures, err = x.History(ctx, 0, lockName)
	return p, bad, err
}

// died notes that a process is not there any more.
func (x *stage) died(owner string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.deaths[owner] = holds.Death{At: proc.Monotonic(), Holds: long}
}

// newOwner is a name that nobody has had.
func newOwner(kind peers.Kind) string {
	return fmt.Sprintf("%s-%s", kind, strings.ToLower(rand.Text()[:8]))
}
