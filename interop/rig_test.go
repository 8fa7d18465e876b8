// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package interop_test

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/interop/peer"
	"github.com/tenurelock/tenure/interop/peer/wire"
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
	kind    peer.Kind
	dialect dynamostore.Dialect
	program *peer.Program
	url     string
	table   string
	db      *dynamodb.Client
}

var dialects = map[peer.Kind]dynamostore.Dialect{
	peer.Java:       dynamostore.Java,
	peer.Dynamolock: dynamostore.Dynamolock,
}

// eachPeer runs a test with each client, on a table of its own.
func eachPeer(t *testing.T, test func(*testing.T, *scene)) {
	t.Helper()
	t.Parallel()
	for _, kind := range []peer.Kind{peer.Java, peer.Dynamolock} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			test(t, newScene(t, kind, dialects[kind]))
		})
	}
}

func newScene(t *testing.T, kind peer.Kind, dialect dynamostore.Dialect) *scene {
	t.Helper()
	engine := enginetest.FullDynamoDB(t)
	s := &scene{
		kind: kind, dialect: dialect, program: peer.Need(t, kind),
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
	return newDB(url, transport)
}

func newDB(url string, transport http.RoundTripper) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: &url, Region: "local",
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
		HTTPClient:  &http.Client{Transport: transport},
	})
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

// openPeer starts a process of the other client.
func (s *scene) openPeer(t *testing.T, owner string, lease, heartbeat time.Duration) *peer.Process {
	t.Helper()
	ps := peer.Run(t, s.program)
	must(t, ps, s.openRequest(owner, lease, heartbeat))
	return ps
}

func (s *scene) openRequest(owner string, lease, heartbeat time.Duration) wire.Request {
	return wire.Request{
		Command: wire.Open, Endpoint: s.url, Region: "local", Table: s.table, Owner: owner,
		LeaseMs: milliseconds(lease), HeartbeatMs: milliseconds(heartbeat),
	}
}

// waiting is an acquire of the other client that waits for as long as it takes.
func waiting(name string) wire.Request {
	return wire.Request{
		Command: wire.Acquire, Name: name, ReplaceData: aws.Bool(false), DeleteOnRelease: aws.Bool(false),
		WaitMs: milliseconds(patience), RefreshMs: milliseconds(refresh),
	}
}

// trying is one that does not wait.
func trying(name string) wire.Request {
	req := waiting(name)
	req.WaitMs, req.TryOnly = nil, true
	return req
}

func wait(t *testing.T, call *peer.Call) (wire.Answer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	return call.Wait(ctx)
}

func must(t *testing.T, ps *peer.Process, req wire.Request) wire.Answer {
	t.Helper()
	a, err := wait(t, ps.Begin(req))
	if err != nil {
		t.Fatalf("peer %d: %v", ps.Ready.PID, err)
	}
	return a
}

// mustRefuse expects one of the kinds of refusal.
func mustRefuse(t *testing.T, ps *peer.Process, req wire.Request, kinds ...string) wire.Answer {
	t.Helper()
	a, err := wait(t, ps.Begin(req))
	var refused *peer.Refused
	if !errors.As(err, &refused) || !slices.Contains(kinds, a.Kind) {
		t.Fatalf("%s by the peer: %+v, %v; want a refusal as %s", req.Command, a, err, strings.Join(kinds, " or "))
	}
	return a
}

func (s *scene) releasing(name string, remove bool) wire.Request {
	return wire.Request{Command: wire.Release, Name: name, Delete: aws.Bool(remove)}
}

func milliseconds(d time.Duration) *int64 { return aws.Int64(d.Milliseconds()) }

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
