// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package peer_test

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/interop/peer"
	"github.com/tenurelock/tenure/interop/peer/wire"
)

const (
	endpointEnv = "TENURE_TEST_DYNOXIDE"

	lease     = 2 * time.Second
	heartbeat = 500 * time.Millisecond
	refresh   = 100 * time.Millisecond

	// answerBound bounds the wait for any answer: a lease, the client's own
	// additional wait, and a busy machine.
	answerBound = 20 * time.Second

	// partitionKey is the name of the partition key that both clients default to.
	partitionKey = "key"
)

// eachKind runs a test with each client.
func eachKind(t *testing.T, test func(*testing.T, *peer.Program, *table)) {
	t.Helper()
	for _, kind := range []peer.Kind{peer.Dynamolock, peer.Java} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			tb := newTable(t)
			test(t, peer.Need(t, kind), tb)
		})
	}
}

// table is a table of locks, deleted when the test ends.
type table struct {
	endpoint, name string
	db             *dynamodb.Client
}

func newTable(t *testing.T) *table {
	t.Helper()
	endpoint := os.Getenv(endpointEnv)
	switch {
	case endpoint != "":
	case os.Getenv(peer.RequireEnv) != "":
		t.Fatalf("%s is not set", endpointEnv)
	default:
		t.Skipf("%s is not set", endpointEnv)
	}
	tb := &table{
		endpoint: endpoint,
		name:     "peer-" + rand.Text(),
		db: dynamodb.New(dynamodb.Options{
			Region:       "local",
			BaseEndpoint: aws.String(endpoint),
			Credentials:  credentials.NewStaticCredentialsProvider("local", "local", ""),
		}),
	}
	_, err := tb.db.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName:   aws.String(tb.name),
		BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String(partitionKey), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{{AttributeName: aws.String(partitionKey), KeyType: types.KeyTypeHash}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in := &dynamodb.DeleteTableInput{TableName: aws.String(tb.name)}
		if _, err := tb.db.DeleteTable(context.WithoutCancel(t.Context()), in); err != nil {
			t.Error(err)
		}
	})
	return tb
}

// row returns an item of the table, nil when there is none.
func (tb *table) row(t *testing.T, name string) map[string]types.AttributeValue {
	t.Helper()
	out, err := tb.db.GetItem(t.Context(), &dynamodb.GetItemInput{
		TableName:      aws.String(tb.name),
		Key:            map[string]types.AttributeValue{partitionKey: &types.AttributeValueMemberS{Value: name}},
		ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Item
}

// open starts a process and opens its client.
func (tb *table) open(t *testing.T, p *peer.Program, owner string) *peer.Process {
	t.Helper()
	ps := peer.Run(t, p)
	must(t, ps, wire.Request{
		Command: wire.Open, Endpoint: tb.endpoint, Region: "local", Table: tb.name, Owner: owner,
		LeaseMs: milliseconds(lease), HeartbeatMs: milliseconds(heartbeat),
	})
	return ps
}

func do(t *testing.T, ps *peer.Process, req wire.Request) (wire.Answer, error) {
	t.Helper()
	return wait(t, ps.Begin(req))
}

func wait(t *testing.T, c *peer.Call) (wire.Answer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerBound)
	defer cancel()
	return c.Wait(ctx)
}

func must(t *testing.T, ps *peer.Process, req wire.Request) wire.Answer {
	t.Helper()
	a, err := do(t, ps, req)
	if err != nil {
		t.Fatalf("peer %d: %v", ps.Ready.PID, err)
	}
	return a
}

// mustRefuse expects a refusal of a kind.
func mustRefuse(t *testing.T, ps *peer.Process, req wire.Request, kind string) wire.Answer {
	t.Helper()
	a, err := do(t, ps, req)
	var refused *peer.Refused
	if !errors.As(err, &refused) || a.Kind != kind {
		t.Fatalf("%s: %+v, %v; want a refusal as %s", req.Command, a, err, kind)
	}
	return a
}

func milliseconds(d time.Duration) *int64 { return aws.Int64(d.Milliseconds()) }

func bytes(s string) *[]byte {
	b := []byte(s)
	return &b
}

func text(b *[]byte) string {
	if b == nil {
		return "<absent>"
	}
	return string(*b)
}

// stringOf is the text of a string attribute.
func stringOf(t *testing.T, row map[string]types.AttributeValue, name string) string {
	t.Helper()
	s, ok := row[name].(*types.AttributeValueMemberS)
	if !ok {
		t.Fatalf("attribute %s is %T, want a string", name, row[name])
	}
	return s.Value
}

func TestReady(t *testing.T) {
	eachKind(t, func(t *testing.T, p *peer.Program, _ *table) {
		ps := peer.Run(t, p)
		t.Logf("%s %s on %s", ps.Ready.Peer, ps.Ready.Version, ps.Ready.Runtime)
		if ps.Ready.Version == "" || ps.Ready.PID == 0 {
			t.Errorf("ready: %+v", ps.Ready)
		}
		before := wire.Monotonic()
		a := must(t, ps, wire.Request{Command: wire.Ping})
		after := wire.Monotonic()
		if a.SentNs < before || a.GotNs > after || a.GotNs < a.SentNs {
			t.Errorf("the peer's clock is another one: %d to %d within %d to %d", a.SentNs, a.GotNs, before, after)
		}
		mustRefuse(t, ps, wire.Request{Command: "no such command"}, wire.Unsupported)
		mustRefuse(t, ps, wire.Request{Command: wire.Acquire, Name: "x"}, wire.Other)
	})
}

func TestAcquireHeldRelease(t *testing.T) {
	eachKind(t, func(t *testing.T, p *peer.Program, tb *table) {
		first, second := tb.open(t, p, "first"), tb.open(t, p, "second")
		a := must(t, first, wire.Request{
			Command: wire.Acquire, Name: "x", Data: bytes("d1"), ReplaceData: aws.Bool(true),
			DeleteOnRelease: aws.Bool(false), Attributes: map[string]string{"colour": "blue"},
		})
		if a.Owner != "first" || text(a.Data) != "d1" || a.Attributes["colour"] != "blue" || a.ElapsedMs <= 0 {
			t.Errorf("acquire: %+v", a)
		}
		row := tb.row(t, "x")
		if owner := stringOf(t, row, "ownerName"); owner != "first" {
			t.Errorf("ownerName %q", owner)
		}
		// The dialect is how one knows which client wrote the row.
		want := map[peer.Kind]string{peer.Dynamolock: "2s", peer.Java: "2000"}[p.Kind]
		if got := stringOf(t, row, "leaseDuration"); got != want {
			t.Errorf("leaseDuration %q, want %q", got, want)
		}

		if a := must(t, first, wire.Request{Command: wire.Holds, Name: "x"}); !*a.Holds {
			t.Error("the holder says that its handle has expired")
		}
		mustRefuse(t, second, wire.Request{Command: wire.Acquire, Name: "x", TryOnly: true}, wire.Held)
		late := mustRefuse(t, second, wire.Request{
			Command: wire.Acquire, Name: "x", WaitMs: aws.Int64(1), RefreshMs: milliseconds(refresh),
		}, wire.Timeout)
		// It waited out a lease of a holder that sent heartbeats.
		if late.ElapsedMs < float64(lease.Milliseconds()) {
			t.Errorf("timeout after %v ms, want %v at least", late.ElapsedMs, lease)
		}
		got := must(t, second, wire.Request{Command: wire.Get, Name: "x"})
		if !*got.Present || got.Owner != "first" || text(got.Data) != "d1" {
			t.Errorf("get by another: %+v", got)
		}
		must(t, first, wire.Request{Command: wire.Heartbeat, Name: "x"})

		must(t, first, wire.Request{Command: wire.Release, Name: "x", Data: bytes("d2")})
		if _, released := tb.row(t, "x")["isReleased"]; !released {
			t.Error("the row is not marked as released")
		}
		a = must(t, second, wire.Request{
			Command: wire.Acquire, Name: "x", ReplaceData: aws.Bool(false), DeleteOnRelease: aws.Bool(true),
		})
		if a.Owner != "second" || text(a.Data) != "d2" {
			t.Errorf("acquire after release: %+v", a)
		}
		must(t, second, wire.Request{Command: wire.Release, Name: "x"})
		if row := tb.row(t, "x"); row != nil {
			t.Errorf("after a release that deletes: %v", row)
		}
		if got := must(t, second, wire.Request{Command: wire.Get, Name: "x"}); *got.Present {
			t.Errorf("get of no row: %+v", got)
		}
	})
}

func TestRequestsOverlap(t *testing.T) {
	eachKind(t, func(t *testing.T, p *peer.Program, tb *table) {
		first, second := tb.open(t, p, "first"), tb.open(t, p, "second")
		must(t, first, wire.Request{Command: wire.Acquire, Name: "x"})
		waiting := second.Begin(wire.Request{
			Command: wire.Acquire, Name: "x", WaitMs: milliseconds(answerBound), RefreshMs: milliseconds(refresh),
		})
		must(t, second, wire.Request{Command: wire.Acquire, Name: "y"})
		must(t, second, wire.Request{Command: wire.Get, Name: "x"})
		must(t, second, wire.Request{Command: wire.Release, Name: "y"})
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if a, err := waiting.Wait(ended); !errors.Is(err, context.Canceled) {
			t.Fatalf("an acquire of a held lock: %+v, %v", a, err)
		}
		released := must(t, first, wire.Request{Command: wire.Release, Name: "x"})
		a, err := wait(t, waiting)
		if err != nil {
			t.Fatal(err)
		}
		if a.Owner != "second" || a.GotNs < released.SentNs {
			t.Errorf("acquired at %d by %q, released from %d", a.GotNs, a.Owner, released.SentNs)
		}
	})
}

func TestTakeoverAfterKill(t *testing.T) {
	eachKind(t, func(t *testing.T, p *peer.Program, tb *table) {
		first, second := tb.open(t, p, "first"), tb.open(t, p, "second")
		must(t, first, wire.Request{Command: wire.Acquire, Name: "x", Data: bytes("kept")})
		first.Kill()
		if _, err := do(t, first, wire.Request{Command: wire.Ping}); !errors.Is(err, peer.ErrExited) {
			t.Errorf("a request to a dead process: %v", err)
		}
		a := must(t, second, wire.Request{
			Command: wire.Acquire, Name: "x", ReplaceData: aws.Bool(false),
			WaitMs: milliseconds(answerBound), RefreshMs: milliseconds(refresh),
		})
		t.Logf("taken over after %.0f ms", a.ElapsedMs)
		if a.Owner != "second" || text(a.Data) != "kept" {
			t.Errorf("taken over: %+v", a)
		}
		// No clock says when the holder died: it takes a lease of observing.
		if a.ElapsedMs < float64(lease.Milliseconds()) {
			t.Errorf("taken over after %v ms, before the lease of %v was over", a.ElapsedMs, lease)
		}
		if got := must(t, second, wire.Request{Command: wire.Holds, Name: "x"}); !*got.Holds {
			t.Error("the new holder says that its handle has expired")
		}
	})
}

func TestStopAndContinue(t *testing.T) {
	eachKind(t, func(t *testing.T, p *peer.Program, tb *table) {
		first, second := tb.open(t, p, "first"), tb.open(t, p, "second")
		must(t, first, wire.Request{Command: wire.Acquire, Name: "x"})
		if err := first.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		held := first.Begin(wire.Request{Command: wire.Holds, Name: "x"})
		// A stopped process sends no heartbeats, so the lock goes to another.
		taken := must(t, second, wire.Request{
			Command: wire.Acquire, Name: "x", WaitMs: milliseconds(answerBound), RefreshMs: milliseconds(refresh),
		})
		if err := first.Continue(); err != nil {
			t.Fatal(err)
		}
		a, err := wait(t, held)
		if err != nil {
			t.Fatal(err)
		}
		if a.SentNs < taken.GotNs {
			t.Errorf("a stopped process answered at %d, before %d", a.SentNs, taken.GotNs)
		}
		if *a.Holds {
			t.Error("the holder that was stopped says that its handle has not expired")
		}
		mustRefuse(t, first, wire.Request{Command: wire.Heartbeat, Name: "x"}, wire.Lost)
	})
}

func TestFinishReleasesNothing(t *testing.T) {
	eachKind(t, func(t *testing.T, p *peer.Program, tb *table) {
		ps := tb.open(t, p, "first")
		must(t, ps, wire.Request{Command: wire.Acquire, Name: "x"})
		if err := ps.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		if row := tb.row(t, "x"); row == nil || row["isReleased"] != nil {
			t.Errorf("the row after the end: %v", row)
		}
	})
}

func TestCloseReleases(t *testing.T) {
	eachKind(t, func(t *testing.T, p *peer.Program, tb *table) {
		ps := tb.open(t, p, "first")
		must(t, ps, wire.Request{Command: wire.Acquire, Name: "x", DeleteOnRelease: aws.Bool(true)})
		must(t, ps, wire.Request{Command: wire.Close})
		if row := tb.row(t, "x"); row != nil {
			t.Errorf("the row after close: %v", row)
		}
		mustRefuse(t, ps, wire.Request{Command: wire.Get, Name: "x"}, wire.Other)
	})
}

func TestCreateTableAndSortKey(t *testing.T) {
	eachKind(t, func(t *testing.T, p *peer.Program, tb *table) {
		ps := peer.Run(t, p)
		name := tb.name + "-own"
		must(t, ps, wire.Request{
			Command: wire.Open, Endpoint: tb.endpoint, Table: name, Owner: "first", CreateTable: true,
			PartitionKey: "pk", SortKey: "sk", SortValue: "s",
		})
		t.Cleanup(func() {
			in := &dynamodb.DeleteTableInput{TableName: aws.String(name)}
			if _, err := tb.db.DeleteTable(context.WithoutCancel(t.Context()), in); err != nil {
				t.Error(err)
			}
		})
		must(t, ps, wire.Request{Command: wire.Acquire, Name: "x", Data: bytes("d")})
		if got := must(t, ps, wire.Request{Command: wire.Get, Name: "x"}); got.Owner != "first" {
			t.Errorf("get: %+v", got)
		}
		must(t, ps, wire.Request{Command: wire.Release, Name: "x"})
	})
}

// Neither client can read a row of the other: see which error shows that each
// program is the library that it claims to be.
func TestDialectsDoNotMix(t *testing.T) {
	tb := newTable(t)
	goPeer := tb.open(t, peer.Need(t, peer.Dynamolock), "go")
	javaPeer := tb.open(t, peer.Need(t, peer.Java), "java")
	must(t, goPeer, wire.Request{Command: wire.Acquire, Name: "of-go"})
	must(t, javaPeer, wire.Request{Command: wire.Acquire, Name: "of-java"})

	for _, command := range []string{wire.Acquire, wire.Get} {
		a := mustRefuse(t, javaPeer, wire.Request{Command: command, Name: "of-go", TryOnly: true}, wire.Other)
		if a.Class != "java.lang.NumberFormatException" {
			t.Errorf("Java, %s of a row of dynamolock: %s: %s", command, a.Class, a.Message)
		}
		a = mustRefuse(t, goPeer, wire.Request{Command: command, Name: "of-java", TryOnly: true}, wire.Other)
		if !strings.Contains(a.Message, "missing unit in duration") {
			t.Errorf("dynamolock, %s of a row of Java: %s: %s", command, a.Class, a.Message)
		}
	}
	mustRefuse(t, javaPeer, wire.Request{Command: wire.List}, wire.Other)
	must(t, goPeer, wire.Request{Command: wire.Release, Name: "of-go", Delete: aws.Bool(true)})
	if a := must(t, javaPeer, wire.Request{Command: wire.List}); len(a.Locks) != 1 || a.Locks[0].Owner != "java" {
		t.Errorf("list: %+v", a.Locks)
	}
	mustRefuse(t, goPeer, wire.Request{Command: wire.List}, wire.Unsupported)
}
