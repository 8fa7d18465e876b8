// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuretest_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/tenuretest"
)

const lease = 15 * time.Second // the default

// inBubble runs the test in a bubble, with two clients of a world.
func inBubble(t *testing.T, test func(t *testing.T, w *tenuretest.World, a, b *tenuretest.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a, b := tenuretest.Two(t)
		test(t, a.World(), a, b)
	})
}

// candidate is a client that campaigns for "x", with work that waits for its end.
type candidate struct {
	*tenuretest.Client
	ended chan error // what Run returned

	mu    sync.Mutex
	lease *tenure.Lease // of the latest term
	cause error         // of its end
}

func campaign(t *testing.T, c *tenuretest.Client) *candidate {
	t.Helper()
	k := &candidate{Client: c, ended: make(chan error, 1)}
	go func() {
		k.ended <- c.Election("x", nil).Run(t.Context(), func(ctx context.Context, l *tenure.Lease) error {
			k.set(l, nil)
			<-ctx.Done()
			k.set(l, context.Cause(ctx))
			return nil
		})
	}()
	return k
}

func (k *candidate) set(l *tenure.Lease, cause error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lease, k.cause = l, cause
}

func (k *candidate) latest() (l *tenure.Lease, cause error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lease, k.cause
}

// expect fails the test unless the leader is that client, under that token.
func expect(t *testing.T, got tenuretest.Leader, c *tenuretest.Client, token uint64) {
	t.Helper()
	if got.Client != c || got.Token != token || got.Lock != "x" {
		t.Fatalf("leader of %q is %q under token %d, want %q under %d",
			got.Lock, got.Options().Owner, got.Token, c.Options().Owner, token)
	}
}

// took fails the test unless it is from least to most since begun.
func took(t *testing.T, begun time.Time, least, most time.Duration) {
	t.Helper()
	if d := time.Since(begun); d < least || d > most {
		t.Errorf("took %v, want %v to %v", d, least, most)
	}
}

// Leader waits for the first leader, LeaderAfter for the next one; and when they return
// its work has begun.
func TestLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, w *tenuretest.World, a, b *tenuretest.Client) {
		if w.Held("x") {
			t.Error("held before it was ever taken")
		}
		first := campaign(t, a)
		led := w.Leader("x")
		expect(t, led, a, 1)
		if l, _ := first.latest(); l == nil || !w.Held("x") {
			t.Error("the work has not begun")
		}
		second := campaign(t, b)
		expect(t, w.Leader("x"), a, 1)
		testutil.Want(t, a.Election("x", nil).StepDown(t.Context(), &tenure.StepDownOptions{Reason: "a test"}), nil)
		expect(t, w.LeaderAfter(led), b, 2)
		if l, _ := second.latest(); l == nil {
			t.Error("the second one's work has not begun")
		}
	})
}

// A lock under a session is held as long as the session is.
func TestLeaderUnderSession(t *testing.T) {
	inBubble(t, func(t *testing.T, w *tenuretest.World, a, _ *tenuretest.Client) {
		s, err := a.OpenSession(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		l, err := s.Acquire(t.Context(), "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		context.AfterFunc(l.Context(), func() { _ = l.Release(t.Context()) })
		expect(t, w.Leader("x"), a, 1)
		testutil.Want(t, s.Close(t.Context()), nil)
		if w.Held("x") {
			t.Error("held under a session that is closed")
		}
	})
}

// A holder that the world has not made has no Client.
func TestLeaderFromElsewhere(t *testing.T) {
	inBubble(t, func(t *testing.T, w *tenuretest.World, _, _ *tenuretest.Client) {
		foreign, err := tenure.New(w.Store().Open(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer foreign.Close(t.Context())
		l, err := foreign.Acquire(t.Context(), "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.Leader("x"); got.Client != nil || got.Token != 1 {
			t.Errorf("%+v", got)
		}
		testutil.Want(t, l.Release(t.Context()), nil)
	})
}

// Edits reach the clients, those of the world first; what they leave alone is set.
func TestOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := tenuretest.New(t, func(o *tenure.Options) { o.LeaseDuration, o.Label = time.Second, "v1" })
		a := w.Client("a")
		b := w.Client("b", func(o *tenure.Options) { o.Label, o.Owner = "v2", "web-7" })
		for _, tt := range []struct {
			c                  *tenuretest.Client
			owner, host, label string
		}{{a, "a", "a", "v1"}, {b, "web-7", "b", "v2"}} {
			if o := tt.c.Options(); o.Owner != tt.owner || o.Host != tt.host || o.Label != tt.label || o.LeaseDuration != time.Second {
				t.Errorf("%+v", o)
			}
		}
		l := b.MustAcquire("x", nil)
		expect(t, w.Leader("x"), b, 1)
		testutil.Want(t, l.Release(t.Context()), nil)
	})
}

// Until asks when all is at rest, and returns as soon as the condition holds.
func TestUntil(t *testing.T) {
	inBubble(t, func(t *testing.T, w *tenuretest.World, _, _ *tenuretest.Client) {
		begun, done := time.Now(), make(chan struct{})
		time.AfterFunc(time.Second, func() { close(done) })
		w.Until("a second has passed", func() bool {
			select {
			case <-done:
				return true
			default:
				return false
			}
		})
		took(t, begun, time.Second, time.Second)
	})
}

// The world works outside of a bubble too.
func TestRealTime(t *testing.T) {
	a, b := tenuretest.Two(t, func(o *tenure.Options) { o.LeaseDuration = time.Second })
	w := a.World()
	first := campaign(t, a)
	led := w.Leader("x")
	second := campaign(t, b)
	a.Pause()
	next := w.LeaderAfter(led)
	expect(t, next, b, 2)
	l, cause := first.latest()
	if cause != nil || l.Check() != nil {
		t.Errorf("the paused leader knows that it has lost: %v, %v", cause, l.Check())
	}
	a.Resume()
	testutil.Want(t, l.Check(), tenure.ErrLost)
	b.Kill()
	if err := <-second.ended; err != nil { // it had lost its lease, and campaigned again, before its client was closed
		testutil.Want(t, err, tenure.ErrClosed)
	}
	expect(t, w.LeaderAfter(next), a, 3)
	w.Partition()
	l, _ = first.latest()
	<-l.Context().Done()
	testutil.Want(t, l.Check(), tenure.ErrLost)
	w.Heal()
}

// What the clients tell of their locks is in the output of the test.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := &fakeTB{TB: t}
		w := tenuretest.New(tb)
		a := w.Client("a")
		time.Sleep(1500 * time.Millisecond)
		l := a.MustAcquire("x", nil)
		testutil.Want(t, l.Release(t.Context()), nil)
		synctest.Wait()
		for _, part := range []string{"at=1.5s level=INFO msg=\"tenure: acquired\" client=a lock=x", "released"} {
			if !strings.Contains(tb.text(), part) {
				t.Errorf("no %q in the output:\n%s", part, tb.text())
			}
		}
	})
}
