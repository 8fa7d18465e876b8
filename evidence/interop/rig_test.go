// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package interop_test

import (
	"context"
	"crypto/rand"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/serve"
	"github.com/tenurelock/tenure/evidence/peers/wire"
	"github.com/tenurelock/tenure/internal/enginetest"
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
	kind    peers.Kind
	dialect dynamostore.Dialect
	program *peers.Program
	url     string
	table   string
	db      *dynamodb.Client
}

var dialects = map[peers.Kind]dynamostore.Dialect{
	peers.Java:       dynamostore.Java,
	peers.Dynamolock: dynamostore.Dynamolock,
}

// eachPeer runs a test with each client, on a table of its own.
func eachPeer(t *testing.T, test func(*testing.T, *scene)) {
	t.Helper()
	t.Parallel()
	for _, kind := range []peers.Kind{peers.Java, peers.Dynamolock} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			test(t, newScene(t, kind, dialects[kind]))
		})
	}
}

func newScene(t *testing.T, kind peers.Kind, dialect dynamostore.Dialect) *scene {
	t.Helper()
	engine := enginetest.FullDynamoDB(t)
	s := &scene{
		kind: kind, dialect: dialect, program: peers.Need(t, kind),
		url: engine.URL, table: "interop-" + rand.Text(), db: connect(t, engine.URL),
	}
	if err := dynamostore.CreateTable(t.Context(), s.db, s.table, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in := &dynamodb.DeleteTableInput{TableName: &s.table}
		if _, err := s.db.DeleteTable(context.WithoutCancel(t.Context()), in); err != nil {
			t.Error(err)
		}
	})
	return s
}

// connect returns a client with connections of its own.
func connect(t *testing.T, url string) *dynamodb.Client {
	t.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	return dynamo.ConnectIn("local", url, &http.Client{Transport: transport})
}

// shared are the options of a table that the other client writes too.
func (s *scene) shared() *dynamostore.Options {
	return &dynamostore.Options{SharedTable: true, Dialect: s.dialect}
}

func (s *scene) store(t *testing.T, options *dynamostore.Options) *dynamostore.Store {
	t.Helper()
	store, err := dynamostore.Open(t.Context(), s.db, s.table, options)
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

// Processes of Tenure, which can be killed, are this test binary, started again.
const tenureRole = "tenure"

func TestMain(m *testing.M) {
	proc.Play(map[string]proc.Role{tenureRole: serve.Tenure.Role})
	os.Exit(m.Run())
}

var ourProgram = peers.Of(tenureRole, proc.Command{Role: tenureRole})

// openOurs starts a process of Tenure.
func (s *scene) openOurs(t *testing.T, owner string, lease time.Duration) *peers.Process {
	t.Helper()
	ps := peers.Run(t, ourProgram)
	r := s.openRequest(owner, lease, lease/5)
	r.Shared, r.RefreshMs, r.CallTimeoutMs = string(s.kind), peers.Milliseconds(refresh), peers.Milliseconds(lease/5)
	peers.Must(t, ps, r)
	return ps
}

// openPeer starts a process of the other client.
func (s *scene) openPeer(t *testing.T, owner string, lease, heartbeat time.Duration) *peers.Process {
	t.Helper()
	ps := peers.Run(t, s.program)
	peers.Must(t, ps, s.openRequest(owner, lease, heartbeat))
	return ps
}

func (s *scene) openRequest(owner string, lease, heartbeat time.Duration) wire.Request {
	return wire.Request{
		Command: wire.Open, Endpoint: s.url, Region: "local", Table: s.table, Owner: owner,
		LeaseMs: peers.Milliseconds(lease), HeartbeatMs: peers.Milliseconds(heartbeat),
	}
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

func binary(s string) *[]byte {
	b := []byte(s)
	return &b
}

// row is an item of the table as it stands.
type row map[string]types.AttributeValue

// row returns an item, nil if there is none.
func (s *scene) row(t *testing.T, name string) row {
	t.Helper()
	out, err := s.db.GetItem(t.Context(), s.getItem(name))
	if err != nil {
		t.Fatal(err)
	}
	return out.Item
}

func (s *scene) getItem(name string) *dynamodb.GetItemInput {
	return &dynamodb.GetItemInput{
		TableName: &s.table, ConsistentRead: aws.Bool(true),
		Key: map[string]types.AttributeValue{dynamostore.DefaultPartitionKey: &types.AttributeValueMemberS{Value: name}},
	}
}

// text returns the string or number in an attribute, empty if there is none.
func (r row) text(attribute string) string {
	switch v := r[attribute].(type) {
	case *types.AttributeValueMemberS:
		return v.Value
	case *types.AttributeValueMemberN:
		return v.Value
	}
	return ""
}

func (r row) data() string {
	if v, ok := r["data"].(*types.AttributeValueMemberB); ok {
		return string(v.Value)
	}
	return ""
}

// rest waits for d, or until ctx ends.
func rest(ctx context.Context, d time.Duration) { _ = wait.For(ctx, d) } // ctx is asked elsewhere
