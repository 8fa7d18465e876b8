// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package peers_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

const (
	endpointEnv = "TENURE_TEST_DYNOXIDE"

	lease     = 2 * time.Second
	heartbeat = 500 * time.Millisecond
	refresh   = 100 * time.Millisecond

	// waitBound bounds the wait for a lock: a lease, and a busy machine.
	waitBound = 20 * time.Second

	// partitionKey is the name of the partition key that both clients default to.
	partitionKey = "key"
)

// eachKind runs a test with each client.
func eachKind(t *testing.T, test func(*testing.T, *peers.Program, *table)) {
	t.Helper()
	for _, kind := range []peers.Kind{peers.Dynamolock, peers.Java} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			tb := newTable(t)
			test(t, peers.Need(t, kind), tb)
		})
	}
}

// table is a table of locks, deleted when the test ends.
type table struct {
	endpoint string
	*dynamo.Table
}

func newTable(t *testing.T) *table {
	t.Helper()
	endpoint := os.Getenv(endpointEnv)
	switch {
	case endpoint != "":
	case os.Getenv(peers.RequireEnv) != "":
		t.Fatalf("%s is not set", endpointEnv)
	default:
		t.Skipf("%s is not set", endpointEnv)
	}
	made, err := dynamo.NewTable(t.Context(), dynamo.ConnectIn("local", endpoint, nil), "peer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := made.Drop(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return &table{endpoint, made}
}

// row returns an item of the table, nil when there is none.
func (tb *table) row(t *testing.T, name string) map[string]types.AttributeValue {
	t.Helper()
	out, err := tb.DB.GetItem(t.Context(), &dynamodb.GetItemInput{
		TableName:      aws.String(tb.Name),
		Key:            map[string]types.AttributeValue{partitionKey: &types.AttributeValueMemberS{Value: name}},
		ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Item
}

// open starts a process and opens its client.
func (tb *table) open(t *testing.T, p *peers.Program, owner string) *peers.Process {
	t.Helper()
	ps := peers.Run(t, p)
	peers.Must(t, ps, wire.Request{
		Command: wire.Open, Endpoint: tb.endpoint, Region: "local", Table: tb.Name, Owner: owner,
		LeaseMs: peers.Milliseconds(lease), HeartbeatMs: peers.Milliseconds(heartbeat),
	})
	return ps
}

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
	eachKind(t, func(t *testing.T, p *peers.Program, _ *table) {
		ps := peers.Run(t, p)
		t.Logf("%s %s on %s", ps.Ready.Peer, ps.Ready.Version, ps.Ready.Runtime)
		if ps.Ready.Version == "" || ps.Ready.PID == 0 {
			t.Errorf("ready: %+v", ps.Ready)
		}
		before := proc.Monotonic()
		a := peers.Must(t, ps, wire.Request{Command: wire.Ping})
		after := proc.Monotonic()
		if a.SentNs < before || a.GotNs > after || a.GotNs < a.SentNs {
			t.Errorf("the peer's clock is another one: %d to %d within %d to %d", a.SentNs, a.GotNs, before, after)
		}
		peers.MustRefuse(t, ps, wire.Request{Command: "no such command"}, wire.Unsupported)
		peers.MustRefuse(t, ps, wire.Request{Command: wire.Acquire, Name: "x"}, wire.Other)
	})
}

func TestAcquireHeldRelease(t *testing.T) {
	eachKind(t, func(t *testing.T, p *peers.Program, tb *table) {
		first, second := tb.open(t, p, "first"), tb.open(t, p, "second")
		a := peers.Must(t, first, wire.Request{
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
		want := map[peers.Kind]string{peers.Dynamolock: "2s", peers.Java: "2000"}[p.Kind]
		if got := stringOf(t, row, "leaseDuration"); got != want {
			t.Errorf("leaseDuration %q, want %q", got, want)
		}

		if a := peers.Must(t, first, wire.Request{Command: wire.Holds, Name: "x"}); !*a.Holds {
			t.Error("the holder says that its handle has expired")
		}
		peers.MustRefuse(t, second, wire.Request{Command: wire.Acquire, Name: "x", TryOnly: true}, wire.Held)
		late := peers.MustRefuse(t, second, wire.Request{
			Command: wire.Acquire, Name: "x", WaitMs: aws.Int64(1), RefreshMs: peers.Milliseconds(refresh),
		}, wire.Timeout)
		// It waited out a lease of a holder that sent heartbeats.
		if late.ElapsedMs < float64(lease.Milliseconds()) {
			t.Errorf("timeout after %v ms, want %v at least", late.ElapsedMs, lease)
		}
		got := peers.Must(t, second, wire.Request{Command: wire.Get, Name: "x"})
		if !*got.Present || got.Owner != "first" || text(got.Data) != "d1" {
			t.Errorf("get by another: %+v", got)
		}
		peers.Must(t, first, wire.Request{Command: wire.Heartbeat, Name: "x"})

		peers.Must(t, first, wire.Request{Command: wire.Release, Name: "x", Data: bytes("d2")})
		if _, released := tb.row(t, "x")["isReleased"]; !released {
			t.Error("the row is not marked as released")
		}
		a = peers.Must(t, second, wire.Request{
			Command: wire.Acquire, Name: "x", ReplaceData: aws.Bool(false), DeleteOnRelease: aws.Bool(true),
		})
		if a.Owner != "second" || text(a.Data) != "d2" {
			t.Errorf("acquire after release: %+v", a)
		}
		peers.Must(t, second, wire.Request{Command: wire.Release, Name: "x"})
		if row := tb.row(t, "x"); row != nil {
			t.Errorf("after a release that deletes: %v", row)
		}
		if got := peers.Must(t, second, wire.Request{Command: wire.Get, Name: "x"}); *got.Present {
			t.Errorf("get of no row: %+v", got)
		}
	})
}

func TestRequestsOverlap(t *testing.T) {
	eachKind(t, func(t *testing.T, p *peers.Program, tb *table) {
		first, second := tb.open(t, p, "first"), tb.open(t, p, "second")
		peers.Must(t, first, wire.Request{Command: wire.Acquire, Name: "x"})
		waiting := second.Begin(wire.Request{
			Command: wire.Acquire, Name: "x", WaitMs: peers.Milliseconds(waitBound), RefreshMs: peers.Milliseconds(refresh),
		})
		peers.Must(t, second, wire.Request{Command: wire.Acquire, Name: "y"})
		peers.Must(t, second, wire.Request{Command: wire.Get, Name: "x"})
		peers.Must(t, second, wire.Request{Command: wire.Release, Name: "y"})
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if a, err := waiting.Wait(ended); !errors.Is(err, context.Canceled) {
			t.Fatalf("an acquire of a held lock: %+v, %v", a, err)
		}
		released := peers.Must(t, first, wire.Request{Command: wire.Release, Name: "x"})
		a, err := peers.Result(t, waiting)
		if err != nil {
			t.Fatal(err)
		}
		if a.Owner != "second" || a.GotNs < released.SentNs {
			t.Errorf("acquired at %d by %q, released from %d", a.GotNs, a.Owner, released.SentNs)
		}
	})
}

func TestTakeoverAfterKill(t *testing.T) {
	eachKind(t, func(t *testing.T, p *peers.Program, tb *table) {
		first, second := tb.open(t, p, "first"), tb.open(t, p, "second")
		peers.Must(t, first, wire.Request{Command: wire.Acquire, Name: "x", Data: bytes("kept")})
		first.Kill()
		if _, err := peers.Result(t, first.Begin(wire.Request{Command: wire.Ping})); !errors.Is(err, peers.ErrExited) {
			t.Errorf("a request to a dead process: %v", err)
		}
		a := peers.Must(t, second, wire.Request{
			Command: wire.Acquire, Name: "x", ReplaceData: aws.Bool(false),
			WaitMs: peers.Milliseconds(waitBound), RefreshMs: peers.Milliseconds(refresh),
		})
		t.Logf("taken over after %.0f ms", a.ElapsedMs)
		if a.Owner != "second" || text(a.Data) != "kept" {
			t.Errorf("taken over: %+v", a)
		}
		// No clock says when the holder died: it takes a lease of observing.
		if a.ElapsedMs < float64(lease.Milliseconds()) {
			t.Errorf("taken over after %v ms, before the lease of %v was over", a.ElapsedMs, lease)
		}
		if got := peers.Must(t, second, wire.Request{Command: wire.Holds, Name: "x"}); !*got.Holds {
			t.Error("the new holder says that its handle has expired")
		}
	})
}

func TestStopAndContinue(t *testing.T) {
	eachKind(t, func(t *testing.T, p *peers.Program, tb *table) {
		first, second := tb.open(t, p, "first"), tb.open(t, p, "second")
		peers.Must(t, first, wire.Request{Command: wire.Acquire, Name: "x"})
		if err := first.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		held := first.Begin(wire.Request{Command: wire.Holds, Name: "x"})
		// A stopped process sends no heartbeats, so the lock goes to another.
		taken := peers.Must(t, second, wire.Request{
			Command: wire.Acquire, Name: "x", WaitMs: peers.Milliseconds(waitBound), RefreshMs: peers.Milliseconds(refresh),
		})
		if err := first.Continue(); err != nil {
			t.Fatal(err)
		}
		a, err := peers.Result(t, held)
		if err != nil {
			t.Fatal(err)
		}
		if a.SentNs < taken.GotNs {
			t.Errorf("a stopped process answered at %d, before %d", a.SentNs, taken.GotNs)
		}
		if *a.Holds {
			t.Error("the holder that was stopped says that its handle has not expired")
		}
		peers.MustRefuse(t, first, wire.Request{Command: wire.Heartbeat, Name: "x"}, wire.Lost)
	})
}

func TestFinishReleasesNothing(t *testing.T) {
	eachKind(t, func(t *testing.T, p *peers.Program, tb *table) {
		ps := tb.open(t, p, "first")
		peers.Must(t, ps, wire.Request{Command: wire.Acquire, Name: "x"})
		if err := ps.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		if row := tb.row(t, "x"); row == nil || row["isReleased"] != nil {
			t.Errorf("the row after the end: %v", row)
		}
	})
}

func TestCloseReleases(t *testing.T) {
	eachKind(t, func(t *testing.T, p *peers.Program, tb *table) {
		ps := tb.open(t, p, "first")
		peers.Must(t, ps, wire.Request{Command: wire.Acquire, Name: "x", DeleteOnRelease: aws.Bool(true)})
		peers.Must(t, ps, wire.Request{Command: wire.Close})
		if row := tb.row(t, "x"); row != nil {
			t.Errorf("the row after close: %v", row)
		}
		peers.MustRefuse(t, ps, wire.Request{Command: wire.Get, Name: "x"}, wire.Other)
	})
}

func TestCreateTableAndSortKey(t *testing.T) {
	eachKind(t, func(t *testing.T, p *peers.Program, tb *table) {
		ps := peers.Run(t, p)
		name := tb.Name + "-own"
		peers.Must(t, ps, wire.Request{
			Command: wire.Open, Endpoint: tb.endpoint, Table: name, Owner: "first", CreateTable: true,
			PartitionKey: "pk", SortKey: "sk", SortValue: "s",
		})
		t.Cleanup(func() {
			in := &dynamodb.DeleteTableInput{TableName: aws.String(name)}
			if _, err := tb.DB.DeleteTable(context.WithoutCancel(t.Context()), in); err != nil {
				t.Error(err)
			}
		})
		peers.Must(t, ps, wire.Request{Command: wire.Acquire, Name: "x", Data: bytes("d")})
		if got := peers.Must(t, ps, wire.Request{Command: wire.Get, Name: "x"}); got.Owner != "first" {
			t.Errorf("get: %+v", got)
		}
		peers.Must(t, ps, wire.Request{Command: wire.Release, Name: "x"})
	})
}

// Neither client can read a row of the other: see which error shows that each
// program is the library that it claims to be.
func TestDialectsDoNotMix(t *testing.T) {
	tb := newTable(t)
	goPeer := tb.open(t, peers.Need(t, peers.Dynamolock), "go")
	javaPeer := tb.open(t, peers.Need(t, peers.Java), "java")
	peers.Must(t, goPeer, wire.Request{Command: wire.Acquire, Name: "of-go"})
	peers.Must(t, javaPeer, wire.Request{Command: wire.Acquire, Name: "of-java"})

	for _, command := range []string{wire.Acquire, wire.Get} {
		a := peers.MustRefuse(t, javaPeer, wire.Request{Command: command, Name: "of-go", TryOnly: true}, wire.Other)
		if a.Class != "java.lang.NumberFormatException" {
			t.Errorf("Java, %s of a row of dynamolock: %s: %s", command, a.Class, a.Message)
		}
		a = peers.MustRefuse(t, goPeer, wire.Request{Command: command, Name: "of-java", TryOnly: true}, wire.Other)
		if !strings.Contains(a.Message, "missing unit in duration") {
			t.Errorf("dynamolock, %s of a row of Java: %s: %s", command, a.Class, a.Message)
		}
	}
	peers.MustRefuse(t, javaPeer, wire.Request{Command: wire.List}, wire.Other)
	peers.Must(t, goPeer, wire.Request{Command: wire.Release, Name: "of-go", Delete: aws.Bool(true)})
	if a := peers.Must(t, javaPeer, wire.Request{Command: wire.List}); len(a.Locks) != 1 || a.Locks[0].Owner != "java" {
		t.Errorf("list: %+v", a.Locks)
	}
	peers.MustRefuse(t, goPeer, wire.Request{Command: wire.List}, wire.Unsupported)
}
