// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuretest_test

import (
	"context"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/tenuretest"
)

// serve is a program that takes a second to end in good order.
func serve(c *tenuretest.Client) func(context.Context) error {
	return func(ctx context.Context) error {
		return c.Election("x", nil).Run(ctx, func(ctx context.Context, _ *tenure.Lease) error {
			defer c.Work("x")()
			<-ctx.Done()
			<-time.After(time.Second)
			return nil
		})
	}
}

// A process that is asked to stop hands over in good order; with the world's Stop all of
// them have done so.
func TestStop(t *testing.T) {
	inBubble(t, func(t *testing.T, w *tenuretest.World, a, b *tenuretest.Client) {
		a.Go(serve(a))
		first := w.Worker("x")
		if first != a {
			t.Errorf("%q works", first.Options().Owner)
		}
		b.Go(serve(b))
		begun := time.Now()
		a.Stop()
		if w.Worker("x") != a {
			t.Error("the work of a has ended at once")
		}
		w.LeaderAfter(tenuretest.Leader{Lock: "x", Token: 1})
		took(t, begun, time.Second, 4*time.Second)
		if w.Worker("x") != b {
			t.Error("the process that was stopped is at work")
		}
		w.Stop()
		if w.Held("x") || len(w.Working("x")) > 0 {
			t.Error("the lock is held after Stop")
		}
	})
}

// A program ends with its process that is killed, and with the test, which waits for it.
func TestProgramEnds(t *testing.T) {
	killed, tested := make(chan bool, 1), make(chan bool, 1)
	t.Run("real time", func(t *testing.T) {
		a, b := tenuretest.Two(t)
		run := func(c *tenuretest.Client, ended chan bool) {
			c.Go(func(ctx context.Context) error {
				<-ctx.Done()
				<-time.After(50 * time.Millisecond)
				ended <- true
				return ctx.Err()
			})
		}
		run(a, killed)
		run(b, tested)
		a.Kill()
		<-killed
		if len(tested) > 0 {
			t.Error("the program of another client has ended")
		}
	})
	if len(tested) == 0 {
		t.Error("the test has ended before a program")
	}
}
