// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package interop_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/test/bed/proc"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// TestPeer goes through the commands of a peer.
func TestPeer(t *testing.T) {
	for _, kind := range []peers.Kind{peers.Dynamolock, peers.Java} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			p, tb := need(t, kind), newTable(t, enginetest.FullDynamoDB(t).URL)
			first := start(t, p)
			before := proc.Monotonic()
			a := must(t, first, wire.Request{Command: wire.Ping})
			if after := proc.Monotonic(); a.SentNs < before || a.GotNs > after || a.GotNs < a.SentNs {
				t.Errorf("the peer's clock is another one: %d to %d within %d to %d", a.SentNs, a.GotNs, before, after)
			}
			mustRefuse(t, first, wire.Request{Command: "no such command"}, wire.Unsupported)
			mustRefuse(t, first, wire.Request{Command: wire.Acquire, Name: "x"}, wire.Other)
			must(t, first, tb.Open("first", lease, heartbeat))
			second := tb.Start(t, p, "second", lease, heartbeat)

			asking := wire.Request{Command: wire.Acquire, Name: "x", RefreshMs: aws.Int64(100), DeleteOnRelease: aws.Bool(true)}
			asking.Data = binary("d")
			a = must(t, first, asking)
			if a.Owner != "first" || string(*a.Data) != "d" {
				t.Errorf("acquire: %+v", a)
			}
			must(t, first, wire.Request{Command: wire.Heartbeat, Name: "x"})
			mustRefuse(t, second, wire.Request{Command: wire.Acquire, Name: "x", TryOnly: true}, wire.Held)
			asking.WaitMs = aws.Int64(1)
			late := mustRefuse(t, second, asking, wire.Timeout)
			// It waited out a lease of a holder that sent heartbeats.
			if late.ElapsedMs < float64(lease.Milliseconds()) {
				t.Errorf("timeout after %v ms, want %v at least", late.ElapsedMs, lease)
			}

			// A process that is killed answers nothing more, and releases nothing.
			asking.WaitMs = aws.Int64(20_000)
			granted := second.Begin(asking)
			got := must(t, second, wire.Request{Command: wire.Get, Name: "x"})
			if !*got.Present || got.Owner != "first" {
				t.Errorf("get beside an acquire that waits: %+v", got)
			}
			first.Kill()
			if _, err := result(t, first.Begin(wire.Request{Command: wire.Ping})); !errors.Is(err, peers.ErrExited) {
				t.Errorf("a request to a dead process: %v", err)
			}
			if a, err := result(t, granted); err != nil || a.Owner != "second" {
				t.Errorf("taken over: %+v, %v", a, err)
			}
			if got := must(t, second, wire.Request{Command: wire.Holds, Name: "x"}); !*got.Holds {
				t.Error("the new holder says that its handle has expired")
			}
			must(t, second, wire.Request{Command: wire.Close})
			if row := tb.Row(t, "x"); row != nil {
				t.Errorf("the row after close: %v", row)
			}
		})
	}
}

// TestDialectsDoNotMix: neither client can read a row of the other. The errors show that each
// program is the library that it claims to be.
func TestDialectsDoNotMix(t *testing.T) {
	tb := newTable(t, enginetest.FullDynamoDB(t).URL)
	goPeer := tb.Start(t, need(t, peers.Dynamolock), "go", lease, heartbeat)
	javaPeer := tb.Start(t, need(t, peers.Java), "java", lease, heartbeat)
	must(t, goPeer, wire.Request{Command: wire.Acquire, Name: "of-go"})
	must(t, javaPeer, wire.Request{Command: wire.Acquire, Name: "of-java"})
	a := mustRefuse(t, javaPeer, wire.Request{Command: wire.Get, Name: "of-go"}, wire.Other)
	if a.Class != "java.lang.NumberFormatException" {
		t.Errorf("Java, of a row of dynamolock: %s: %s", a.Class, a.Message)
	}
	a = mustRefuse(t, goPeer, wire.Request{Command: wire.Get, Name: "of-java"}, wire.Other)
	if !strings.Contains(a.Message, "missing unit in duration") {
		t.Errorf("dynamolock, of a row of Java: %s: %s", a.Class, a.Message)
	}
}
