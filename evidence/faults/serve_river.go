// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers/serve"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// riverLibrary is the election among River's clients.
var riverLibrary = serve.Library{Name: "river", Module: "github.com/riverqueue/river", Open: openRiver}

const (
	// riverConns is how many connections to the database a process may have: each
	// client keeps one to listen on.
	riverConns = 40
	// riverEager is how many clients bid for an eager member: each does so every 5 to
	// 6 s, beginning at a random instant, and that cannot be set.
	riverEager = 8
)

// riverProcess has clients of River for each lock.
type riverProcess struct {
	pool    *pgxpool.Pool
	bidders int
	closed  chan struct{}

	mu    sync.Mutex
	locks []*riverLeader
}

func openRiver(r *wire.Request) (serve.Client, error) {
	config, err := pgxpool.ParseConfig(r.Endpoint)
	if err != nil {
		return nil, err
	}
	config.MaxConns = riverConns
	// So that each request has the text of its statement, by which the gate knows it.
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	p := &riverProcess{bidders: 1, closed: make(chan struct{})}
	if serve.Milliseconds(r.RefreshMs) == eagerRefresh {
		p.bidders = riverEager
	}
	p.pool, err = pgxpool.NewWithConfig(context.Background(), config)
	return p, err
}

// riverIdler works on jobs that nobody inserts: a client that works on none does not take part in
// the election.
type riverIdler struct {
	river.WorkerDefaults[riverIdle]
}

type riverIdle struct{}

func (riverIdle) Kind() string { return "idle" }

func (riverIdler) Work(context.Context, *river.Job[riverIdle]) error { return nil }

// Acquire has clients bid, and returns when one of them leads.
func (p *riverProcess) Acquire(ctx context.Context, r *wire.Request) (serve.Lock, error) {
	if r.TryOnly {
		return nil, serve.Refuse(wire.Unsupported, errNoTry)
	}
	l := &riverLeader{process: p, schema: riverSchema(r.Name), leads: make(chan struct{}), over: make(chan struct{})}
	p.mu.Lock()
	p.locks = append(p.locks, l)
	p.mu.Unlock()
	for range p.bidders {
		if err := l.bid(); err != nil {
			return nil, errors.Join(err, l.Release(nil))
		}
	}
	select {
	case <-l.leads:
		return l, nil
	case <-p.closed:
		return nil, context.Canceled
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close stops all clients, as a program does that ends.
func (p *riverProcess) Close() (err error) {
	close(p.closed)
	p.mu.Lock()
	locks := p.locks
	p.mu.Unlock()
	for _, l := range locks {
		err = errors.Join(err, l.Release(nil))
	}
	p.pool.Close()
	return err
}

// riverLeader is the leadership in a schema. River tells nobody by a call of its API that
// a client leads. What it does do: it logs that it has gained leadership; and about a
// second later it calls a hook, in the context of the service that enqueues periodic
// jobs, which is a leader's work, and ends when that is to stop.
type riverLeader struct {
	process *riverProcess
	schema  string
	leads   chan struct{} // closed when a client leads
	over    chan struct{} // closed when that client is to stop what a leader does

	mu      sync.Mutex
	clients []*river.Client[pgx.Tx]
	leader  string // the client's id
}

// bid starts a client.
func (l *riverLeader) bid() error {
	id := strings.ToLower(rand.Text())
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverIdler{})
	over := func(ctx context.Context, _ *rivertype.HookPeriodicJobsStartParams) error {
		context.AfterFunc(ctx, func() { l.pass(id, "nobody", l.over) })
		return nil
	}
	client, err := river.NewClient(riverpgxv5.New(l.process.pool), &river.Config{
		ID: id, Schema: l.schema, Workers: workers,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}},
		Logger: slog.New(slog.NewTextHandler(riverLog(func() { l.pass("", id, l.leads) }),
			&slog.HandlerOptions{Level: slog.LevelDebug})),
		Hooks: []rivertype.Hook{river.HookPeriodicJobsStartFunc(over)},
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.clients = append(l.clients, client)
	l.mu.Unlock()
	return client.Start(context.Background())
}

// pass passes the leadership on, if it is as one client knows it.
func (l *riverLeader) pass(from, to string, told chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leader == from {
		l.leader = to
		close(told)
	}
}

// riverLog looks for a message in a client's log.
type riverLog func()

func (gained riverLog) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("Gained leadership")) {
		gained()
	}
	return len(line), nil
}

func (l *riverLeader) Check() bool             { return !closed(l.over) }
func (l *riverLeader) Notice() <-chan struct{} { return l.over }

// Token is the instant of the election in the record, in microseconds: by it a client
// renews no other's leadership.
func (l *riverLeader) Token() (uint64, bool) {
	var elected int64
	err := l.process.pool.QueryRow(context.Background(),
		"SELECT (extract(epoch FROM elected_at) * 1000000)::bigint FROM "+l.schema+".river_leader").Scan(&elected)
	return uint64(elected), err == nil
}

// Release stops the clients, by which the leader resigns. There is a call that asks the
// leader to, whoever that is, but this client would bid again.
func (l *riverLeader) Release(*wire.Request) error {
	l.mu.Lock()
	clients := l.clients
	l.mu.Unlock()
	return wait.AtOnce(context.Background(), len(clients), len(clients), func(ctx context.Context, i int) error {
		return clients[i].Stop(context.WithoutCancel(ctx))
	})
}
