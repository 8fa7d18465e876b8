// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package interop_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/test/bed/proc"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/serve"
	"github.com/tenurelock/tenure/test/peers/wire"
)

const (
	// lease is that of both sides. Java's must be a second at least: shorter
	// ones could be the seconds of another client, and are refused.
	lease     = 2 * time.Second
	heartbeat = 400 * time.Millisecond
	refresh   = 100 * time.Millisecond

	// longLease is that of a holder whose release is to be seen: whoever gets
	// the lock within a part of it has not waited for it to run out.
	longLease = 20 * time.Second

	// patience bounds the wait for what must come, on a busy machine.
	patience = 30 * time.Second

	lockName  = "x"
	peerOwner = "their-owner"
	ourOwner  = "our-owner"
)

// scene is one table, shared by Tenure and one other client.
type scene struct {
	*table
	kind    peers.Kind
	dialect dynamostore.Dialect
	program *peers.Program
}

var dialects = map[peers.Kind]dynamostore.Dialect{
	peers.Java:       dynamostore.Java,
	peers.Dynamolock: dynamostore.Dynamolock,
}

// eachPeer runs a test with each client, on a table of its own.
func eachPeer(t *testing.T, test func(*testing.T, *scene)) {
	t.Helper()
	eachInDialect(t, dialects, test)
}

func eachInDialect(t *testing.T, dialects map[peers.Kind]dynamostore.Dialect, test func(*testing.T, *scene)) {
	t.Helper()
	t.Parallel()
	for kind, dialect := range dialects {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			test(t, newScene(t, kind, dialect))
		})
	}
}

func newScene(t *testing.T, kind peers.Kind, dialect dynamostore.Dialect) *scene {
	t.Helper()
	return &scene{newTable(t, enginetest.FullDynamoDB(t).URL), kind, dialect, need(t, kind)}
}

// shared are the options of a table that the other client writes too.
func (s *scene) shared() *dynamostore.Options {
	return &dynamostore.Options{SharedTable: true, Dialect: s.dialect}
}

func (s *scene) store(t *testing.T, options *dynamostore.Options) *dynamostore.Store {
	t.Helper()
	store, err := dynamostore.Open(t.Context(), s.DB, s.Name, options)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// timing are options of a lease that keep the parts of it that requests take
// long enough for a busy machine.
func timing(owner string, lease time.Duration) *tenure.Options {
	return &tenure.Options{
		Owner: owner, LeaseDuration: lease, HeartbeatPeriod: lease / 5,
		RequestTimeout: lease / 5, RefreshPeriod: refresh,
	}
}

// open returns a client of Tenure on the table.
func (s *scene) open(t *testing.T, options *tenure.Options) *tenure.Client {
	t.Helper()
	return newClient(t, s.store(t, s.shared()), options)
}

func newClient(t *testing.T, store *dynamostore.Store, options *tenure.Options) *tenure.Client {
	t.Helper()
	c, err := tenure.New(store, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		_ = c.Close(ctx) // tells of leases that a test left behind on purpose
	})
	return c
}

// acquire takes a lock that is free, or becomes free in time.
func acquire(t *testing.T, c *tenure.Client, name string, options *tenure.AcquireOptions) *tenure.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l, err := c.Acquire(ctx, name, options)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func release(t *testing.T, l *tenure.Lease) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := l.Release(ctx); err != nil {
		t.Fatal(err)
	}
}

func status(t *testing.T, c *tenure.Client, name string) tenure.Status {
	t.Helper()
	st, err := c.Status(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// The processes of clients in Go are this test binary, started again.
func TestMain(m *testing.M) {
	proc.Play(serve.Roles)
	os.Exit(m.Run())
}

// openOurs starts a process of Tenure.
func (s *scene) openOurs(t *testing.T, owner string, lease time.Duration) *peers.Process {
	t.Helper()
	ps := start(t, peers.Own(peers.Tenure))
	r := s.table.Open(owner, lease, lease/5)
	r.Shared, r.RefreshMs, r.CallTimeoutMs = string(s.kind), peers.Milliseconds(refresh), peers.Milliseconds(lease/5)
	must(t, ps, r)
	return ps
}

// openPeer starts a process of the other client.
func (s *scene) openPeer(t *testing.T, owner string, lease, heartbeat time.Duration) *peers.Process {
	t.Helper()
	return s.Start(t, s.program, owner, lease, heartbeat)
}

// waiting is an acquire of the other client that waits for as long as it takes.
func waiting(name string) wire.Request {
	return wire.Request{
		Command: wire.Acquire, Name: name, ReplaceData: aws.Bool(false), DeleteOnRelease: aws.Bool(false),
		WaitMs: peers.Milliseconds(patience), RefreshMs: peers.Milliseconds(refresh),
	}
}

// trying is one that does not wait.
func trying(name string) wire.Request {
	req := waiting(name)
	req.WaitMs, req.TryOnly = nil, true
	return req
}

func (s *scene) releasing(name string, remove bool) wire.Request {
	return wire.Request{Command: wire.Release, Name: name, Delete: aws.Bool(remove)}
}
