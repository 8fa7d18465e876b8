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

	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/peertest"
	"github.com/tenurelock/tenure/evidence/peers/serve"
	"github.com/tenurelock/tenure/evidence/peers/wire"
	"github.com/tenurelock/tenure/internal/enginetest"
)

const (
	lease     = 2 * time.Second
	heartbeat = 500 * time.Millisecond
	refresh   = 100 * time.Millisecond

	// waitBound bounds the wait for a lock: a lease, and a busy machine.
	waitBound = 20 * time.Second
)

func TestMain(m *testing.M) {
	proc.Play(serve.Roles)
	os.Exit(m.Run())
}

// eachKind runs a test with each client.
func eachKind(t *testing.T, test func(*testing.T, *peers.Program, *peertest.Table)) {
	t.Helper()
	for _, kind := range []peers.Kind{peers.Dynamolock, peers.Java} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			tb := newTable(t)
			test(t, peertest.Need(t, kind), tb)
		})
	}
}

func newTable(t *testing.T) *peertest.Table {
	t.Helper()
	return peertest.NewTable(t, enginetest.FullDynamoDB(t).URL)
}

func text(b *[]byte) string {
	if b == nil {
		return "<absent>"
	}
	return string(*b)
}

// stringOf is the text of a string attribute.
func stringOf(t *testing.T, row peertest.Row, name string) string {
	t.Helper()
	s, ok := row[name].(*types.AttributeValueMemberS)
	if !ok {
		t.Fatalf("attribute %s is %T, want a string", name, row[name])
	}
	return s.Value
}

func TestReady(t *testing.T) {
	eachKind(t, func(t *testing.T, p *peers.Program, _ *peertest.Table) {
		ps := peertest.Run(t, p)
		t.Logf("%s %s on %s", ps.Ready.Peer, ps.Ready.Version, ps.Ready.Runtime)
		if ps.Ready.Version == "" || ps.Ready.PID == 0 {
			t.Errorf("ready: %+v", ps.Ready)
		}
		before := proc.Monotonic()
		a := peertest.Must(t, ps, wire.Request{Command: wire.Ping})
		after := proc.Monotonic()
		if a.SentNs < before || a.GotNs > after || a.GotNs < a.SentNs {
			t.Errorf("the peer's clock is another one: %d to %d within %d to %d", a.SentNs, a.GotNs, before, after)
		}
		peertest.MustRefuse(t, ps, wire.Request{Command: "no such command"}, wire.Unsupported)
		peertest.MustRefuse(t, ps, wire.Request{Command: wire.Acquire, Name: "x"}, wire.Other)
	})
}

func TestAcquireHeldRelease(t *testing.T) {
	eachKind(t, func(t *testing.T, p *peers.Program, tb *peertest.Table) {
		first, second := tb.Start(t, p, "first", lease, heartbeat), tb.Start(t, p, "second", lease, heartbeat)
		a := peertest.Must(t, first, wire.Request{
			Command: wire.Acquire, Name: "x", Data: peertest.Binary("d1"), ReplaceData: aws.Bool(true),
			DeleteOnRelease: aws.Bool(false), Attributes: map[string]string{"colour": "blue"},
		})
		if a.Owner != "first" || text(a.Data) != "d1" || a.Attributes["colour"] != "blue" || a.ElapsedMs <= 0 {
			t.Errorf("acquire: %+v", a)
		}
		row := tb.Row(t, "x")
		if owner := stringOf(t, row, "ownerName"); owner != "first" {
			t.Errorf("ownerName %q", owner)
		}
		// The dialect is how one knows which client wrote the row.
		want := map[peers.Kind]string{peers.Dynamolock: "2s", peers.Java: "2000"}[p.Kind]
		if got := stringOf(t, row, "leaseDuration"); got != want {
			t.Errorf("leaseDuration %q, want %q", got, want)
		}

		if a := peertest.Must(t, first, wire.Request{Command: wire.Holds, Name: "x"}); !*a.Holds {
			t.Error("the holder says that its handle has expired")
		}
		peertest.MustRefuse(t, second, wire.Request{Command: wire.Acquire, Name: "x", TryOnly: true}, wire.Held)
		late := peertest.MustRefuse(t, second, wire.Request{
			Command: wire.Acquire, Name: "x", WaitMs: aws.Int64(1), RefreshMs: peers.Milliseconds(refresh),
		}, wire.Timeout)
		// It waited out a lease of a holder that sent heartbeats.
		if late.ElapsedMs < float64(lease.Milliseconds()) {
			t.Errorf("timeout after %v ms, want %v at least", late.ElapsedMs, lease)
		}
		got := peertest.Must(t, second, wire.Request{Command: wire.Get, Name: "x"})
		if !*got.Present || got.Owner != "first" || text(got.Data) != "d1" {
			t.Errorf("get by another: %+v", got)
		}
		peertest.Must(t, first, wire.Request{Command: wire.Heartbeat, Name: "x"})

		peertest.Must(t, first, wire.Request{Command: wire.Release, Name: "x", Data: peertest.Binary("d2")})
		if _, released := tb.Row(t, "x")["isReleased"]; !released {
			t.Error("the row is not marked as released")
		}
		a = peertest.Must(t, second, wire.Request{
			Command: wire.Acquire, Name: "x", ReplaceData: aws.Bool(false), DeleteOnRelease: aws.Bool(true),
		})
		if a.Owner != "second" || text(a.Data) != "d2" {
			t.Errorf("acquire after release: %+v", a)
		}
		peertest.Must(t, second, wire.Request{Command: wire.Release, Name: "x"})
		if row := tb.Row(t, "x"); row != nil {
			t.Errorf("after a release that deletes: %v", row)
		}
		if got := peertest.Must(t, second, wire.Request{Command: wire.Get, Name: "x"}); *got.Present {
			t.Errorf("get of no row: %+v", got)
		}
	})
}

func TestRequestsOverlap(t *testing.T) {
	eachKind(t, func(t *testing.T, p *peers.Program, tb *peertest.Table) {
		first, second := tb.Start(t, p, "first", lease, heartbeat), tb.Start(t, p, "second", lease, heartbeat)
		peertest.Must(t, first, wire.Request{Command: wire.Acquire, Name: "x"})
		waiting := second.Begin(wire.Request{
			Command: wire.Acquire, Name: "x", WaitMs: peers.Milliseconds(waitBound), RefreshMs: peers.Milliseconds(refresh),
		})
		peertest.Must(t, second, wire.Request{Command: wire.Acquire, Name: "y"})
		peertest.Must(t, second, wire.Request{Command: wire.Get, Name: "x"})
		peertest.Must(t, second, wire.Request{Command: wire.Release, Name: "y"})
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if a, err := waiting.Wait(ended); !errors.Is(err, context.Canceled) {
			t.Fatalf("an acquire of a held lock: %+v, %v", a, err)
		}
		released := peertest.Must(t, first, wire.Request{Command: wire.Release, Name: "x"})
		a, err := peertest.Result(t, waiting)
		if err != nil {
			t.Fatal(err)
		}
		if a.Owner != "second" || a.GotNs < released.SentNs {
			t.Errorf("acquired at %d by %q, released from %d", a.GotNs, a.Owner, released.SentNs)
		}
	})
}

func TestTakeoverAfterKill(t *testing.T) {
	eachKind(t, func(t *testing.T, p *peers.Program, tb *peertest.Table) {
		first, second := tb.Start(t, p, "first", lease, heartbeat), tb.Start(t, p, "second", lease, heartbeat)
		peertest.Must(t, first, wire.Request{Command: wire.Acquire, Name: "x", Data: peertest.Binary("kept")})
		first.Kill()
		if _, err := peertest.Result(t, first.Begin(wire.Request{Command: wire.Ping})); !errors.Is(err, peers.ErrExited) {
			t.Errorf("a request to a dead process: %v", err)
		}
		a := peertest.Must(t, second, wire.Request{
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
		if got := peertest.Must(t, second, wire.Request{Command: wire.Holds, Name: "x"}); !*got.Holds {
			t.Error("the new holder says that its handle has expired")
		}
	})
}

func TestStopAndContinue(t *testing.T) {
	eachKind(t, func(t *testing.T, p *peers.Program, tb *peertest.Table) {
		first, second := tb.Start(t, p, "first", lease, heartbeat), tb.Start(t, p, "second", lease, heartbeat)
		peertest.Must(t, first, wire.Request{Command: wire.Acquire, Name: "x"})
		if err := first.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		held := first.Begin(wire.Request{Command: wire.Holds, Name: "x"})
		// A stopped process sends no heartbeats, so the lock goes to another.
		taken := peertest.Must(t, second, wire.Request{
			Command: wire.Acquire, Name: "x", WaitMs: peers.Milliseconds(waitBound), RefreshMs: peers.Milliseconds(refresh),
		})
		if err := first.Continue(); err != nil {
			t.Fatal(err)
		}
		a, err := peertest.Result(t, held)
		if err != nil {
			t.Fatal(err)
		}
		if a.SentNs < taken.GotNs {
			t.Errorf("a stopped process answered at %d, before %d", a.SentNs, taken.GotNs)
		}
		if *a.Holds {
			t.Error("the holder that was stopped says that its handle has not expired")
		}
		peertest.MustRefuse(t, first, wire.Request{Command: wire.Heartbeat, Name: "x"}, wire.Lost)
	})
}

func TestFinishReleasesNothing(t *testing.T) {
	eachKind(t, func(t *testing.T, p *peers.Program, tb *peertest.Table) {
		ps := tb.Start(t, p, "first", lease, heartbeat)
		peertest.Must(t, ps, wire.Request{Command: wire.Acquire, Name: "x"})
		if err := ps.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		if row := tb.Row(t, "x"); row == nil || row["isReleased"] != nil {
			t.Errorf("the row after the end: %v", row)
		}
	})
}

func TestCloseReleases(t *testing.T) {
	eachKind(t, func(t *testing.T, p *peers.Program, tb *peertest.Table) {
		ps := tb.Start(t, p, "first", lease, heartbeat)
		peertest.Must(t, ps, wire.Request{Command: wire.Acquire, Name: "x", DeleteOnRelease: aws.Bool(true)})
		peertest.Must(t, ps, wire.Request{Command: wire.Close})
		if row := tb.Row(t, "x"); row != nil {
			t.Errorf("the row after close: %v", row)
		}
		peertest.MustRefuse(t, ps, wire.Request{Command: wire.Get, Name: "x"}, wire.Other)
	})
}

func TestCreateTableAndSortKey(t *testing.T) {
	eachKind(t, func(t *testing.T, p *peers.Program, tb *peertest.Table) {
		ps := peertest.Run(t, p)
		name := tb.Name + "-own"
		peertest.Must(t, ps, wire.Request{
			Command: wire.Open, Endpoint: tb.URL, Table: name, Owner: "first", CreateTable: true,
			PartitionKey: "pk", SortKey: "sk", SortValue: "s",
		})
		t.Cleanup(func() {
			in := &dynamodb.DeleteTableInput{TableName: aws.String(name)}
			if _, err := tb.DB.DeleteTable(context.WithoutCancel(t.Context()), in); err != nil {
				t.Error(err)
			}
		})
		peertest.Must(t, ps, wire.Request{Command: wire.Acquire, Name: "x", Data: peertest.Binary("d")})
		if got := peertest.Must(t, ps, wire.Request{Command: wire.Get, Name: "x"}); got.Owner != "first" {
			t.Errorf("get: %+v", got)
		}
		peertest.Must(t, ps, wire.Request{Command: wire.Release, Name: "x"})
	})
}

// Neither client can read a row of the other: see which error shows that each
// program is the library that it claims to be.
func TestDialectsDoNotMix(t *testing.T) {
	tb := newTable(t)
	goPeer := tb.Start(t, peertest.Need(t, peers.Dynamolock), "go", lease, heartbeat)
	javaPeer := tb.Start(t, peertest.Need(t, peers.Java), "java", lease, heartbeat)
	peertest.Must(t, goPeer, wire.Request{Command: wire.Acquire, Name: "of-go"})
	peertest.Must(t, javaPeer, wire.Request{Command: wire.Acquire, Name: "of-java"})

	for _, command := range []string{wire.Acquire, wire.Get} {
		a := peertest.MustRefuse(t, javaPeer, wire.Request{Command: command, Name: "of-go", TryOnly: true}, wire.Other)
		if a.Class != "java.lang.NumberFormatException" {
			t.Errorf("Java, %s of a row of dynamolock: %s: %s", command, a.Class, a.Message)
		}
		a = peertest.MustRefuse(t, goPeer, wire.Request{Command: command, Name: "of-java", TryOnly: true}, wire.Other)
		if !strings.Contains(a.Message, "missing unit in duration") {
			t.Errorf("dynamolock, %s of a row of Java: %s: %s", command, a.Class, a.Message)
		}
	}
	peertest.MustRefuse(t, javaPeer, wire.Request{Command: wire.List}, wire.Other)
	peertest.Must(t, goPeer, wire.Request{Command: wire.Release, Name: "of-go", Delete: aws.Bool(true)})
	if a := peertest.Must(t, javaPeer, wire.Request{Command: wire.List}); len(a.Locks) != 1 || a.Locks[0].Owner != "java" {
		t.Errorf("list: %+v", a.Locks)
	}
	peertest.MustRefuse(t, goPeer, wire.Request{Command: wire.List}, wire.Unsupported)
}
