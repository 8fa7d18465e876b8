// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuretest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/tenuretest"
)

// fakeTB is a test that may fail without harm. What it says is kept.
type fakeTB struct {
	testing.TB

	mu   sync.Mutex
	said strings.Builder
}

func (f *fakeTB) Errorf(format string, a ...any) { fmt.Fprintf(f, format+"\n", a...) }
func (f *fakeTB) Fatalf(format string, a ...any) { f.Errorf(format, a...); runtime.Goexit() }
func (f *fakeTB) Output() io.Writer              { return f }

func (f *fakeTB) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.said.Write(p)
}

func (f *fakeTB) text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.said.String()
}

// What cannot be done fails the test, and says what to do.
func TestMisuse(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(t *testing.T, w *tenuretest.World, a *tenuretest.Client)
		want string
	}{
		"options that are refused": {
			func(_ *testing.T, w *tenuretest.World, _ *tenuretest.Client) {
				w.Client("b", func(o *tenure.Options) { o.MaxInFlight = -1 })
			},
			`tenuretest: client "b": tenure: max in flight -1 must be positive`,
		},
		"a name that is taken": {
			func(_ *testing.T, w *tenuretest.World, _ *tenuretest.Client) { w.Client("a") },
			`tenuretest: there is a client "a": give this one another name, or kill that one first`,
		},
		"a dead one is healed": {
			func(_ *testing.T, _ *tenuretest.World, a *tenuretest.Client) { a.Kill(); a.Heal() },
			`tenuretest: Heal of "a", which was killed: start it again with World.Client("a")`,
		},
		"a dead one is stopped": {
			func(_ *testing.T, _ *tenuretest.World, a *tenuretest.Client) { a.Kill(); a.Pause() },
			`tenuretest: Pause of "a", which was killed`,
		},
		"a dead one runs on": {
			func(_ *testing.T, _ *tenuretest.World, a *tenuretest.Client) { a.Kill(); a.Go(nil); a.Stop() },
			"tenuretest: Go of \"a\", which was killed: start it again with World.Client(\"a\")\ntenuretest: Stop of \"a\", which was killed",
		},
		"a program that fails": {
			func(_ *testing.T, w *tenuretest.World, a *tenuretest.Client) {
				a.Go(func(context.Context) error { return errors.New("no paper") })
				w.Stop()
			},
			`tenuretest: the program of "a": no paper`,
		},
		"a program that fails when it is dead": {
			func(_ *testing.T, w *tenuretest.World, a *tenuretest.Client) {
				a.Go(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
				a.Kill()
				w.Stop()
			},
			"",
		},
		"killed twice": {
			func(_ *testing.T, _ *tenuretest.World, a *tenuretest.Client) { a.Kill(); a.Kill() },
			`tenuretest: Kill of "a", which was killed`,
		},
		"the dead do not hinder the others": {
			func(_ *testing.T, w *tenuretest.World, a *tenuretest.Client) { a.Kill(); w.Partition(); w.Heal() },
			"",
		},
		"slowness": {
			func(_ *testing.T, _ *tenuretest.World, a *tenuretest.Client) { a.Slow(-1) },
			`tenuretest: Slow(-1ns) of "a": the delay must not be negative; 0 ends it`,
		},
		"no reply": {
			func(_ *testing.T, _ *tenuretest.World, a *tenuretest.Client) { a.LoseReplies(0) },
			`tenuretest: LoseReplies(0) of "a": the number must be at least 1`,
		},
		"two at work": {
			func(_ *testing.T, w *tenuretest.World, a *tenuretest.Client) { a.Work("x"); w.Client("b").Work("x") },
			`tenuretest: "b" begins its work under "x" beside "a"`,
		},
		"the same one at work again": {
			func(_ *testing.T, _ *tenuretest.World, a *tenuretest.Client) { a.Work("x"); a.Work("x") },
			`tenuretest: "a" begins its work under "x" beside "a"`,
		},
		"at work one after the other, or beside a paused or killed client": {
			func(t *testing.T, w *tenuretest.World, a *tenuretest.Client) {
				a.Work("x")()
				a.Work("x")()
				b, c := w.Client("b"), w.Client("c")
				b.Work("x")
				b.Work("y")
				b.Pause()
				c.Work("x")
				c.Kill()
				a.Work("x")
				if at := w.Working("x"); len(at) != 3 || at[2] != a {
					t.Errorf("at work: %v", at)
				}
			},
			"",
		},
		"no worker": {
			func(_ *testing.T, w *tenuretest.World, a *tenuretest.Client) { a.Work("y"); w.Worker("x") },
			`tenuretest: waited for 5m0s until one client is at work under "x"; "a" is healthy`,
		},
		"a clock that goes back": {
			func(_ *testing.T, _ *tenuretest.World, a *tenuretest.Client) { a.SetRate(-1); a.Step(-1) },
			"SetRate(-1) of \"a\": the rate must not be negative; 1 is the right rate\ntenuretest: Step(-1ns) of \"a\": the step must not be negative",
		},
		"a lock that cannot be had": {
			func(_ *testing.T, _ *tenuretest.World, a *tenuretest.Client) { a.Kill(); a.MustAcquire("x", nil) },
			`tenuretest: "a" acquires "x": `,
		},
		"no record": {
			func(_ *testing.T, w *tenuretest.World, _ *tenuretest.Client) { w.MustRecord("x") },
			`tenuretest: there is no record of "x"`,
		},
		"no leader": {
			func(_ *testing.T, w *tenuretest.World, a *tenuretest.Client) {
				a.Partition()
				w.Client("b").Pause()
				w.Client("c").Slow(time.Second)
				w.Client("d").LoseReplies(2)
				w.Client("e").Kill()
				w.Client("f")
				w.Leader("x")
			},
			`tenuretest: waited for 5m0s until there is a holder of "x": it was never held; "a" is partitioned, "b" is paused, ` +
				`"c" is slow by 1s, "d" is to lose 2 replies, "e" is killed, "f" is healthy`,
		},
		"no successor": {
			func(t *testing.T, w *tenuretest.World, a *tenuretest.Client) {
				if l, err := a.TryAcquire(t.Context(), "x", nil); err == nil {
					defer func() { _ = l.Release(t.Context()) }()
				}
				w.LeaderAfter(w.Leader("x"))
			},
			`tenuretest: waited for 5m0s until token 1 has a successor on "x": it is held, token 1, of "a"`,
		},
		"no condition": {
			func(_ *testing.T, w *tenuretest.World, _ *tenuretest.Client) {
				w.Until("pigs fly", func() bool { return false })
			},
			`tenuretest: waited for 5m0s until pigs fly; "a" is healthy`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb := &fakeTB{TB: t}
				w := tenuretest.New(tb)
				a := w.Client("a", func(o *tenure.Options) { o.Logger = silent })
				var done sync.WaitGroup
				done.Go(func() { tt.do(t, w, a) }) // which Fatalf ends
				done.Wait()
				if got := tb.text(); tt.want == "" && strings.Contains(got, "tenuretest:") || !strings.Contains(got, tt.want) {
					t.Errorf("said %q, want %q", got, tt.want)
				}
			})
		})
	}
}

// A world without clients says so.
func TestNoClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := &fakeTB{TB: t}
		w := tenuretest.New(tb)
		var done sync.WaitGroup
		done.Go(func() { w.Leader("x") })
		done.Wait()
		if !strings.Contains(tb.text(), "the world has no clients: make them with World.Client") {
			t.Error(tb.text())
		}
	})
}

var silent = slog.New(slog.DiscardHandler)
