// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuretest_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/tenuretest"
)

// Test makes a bubble and a world whose clients have the options.
func TestTest(t *testing.T) {
	begun, ran := time.Now(), false
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		synctest.Wait() // which panics outside of a bubble
		ran = w.T() == t && w.Client("a").Options().Label == "v1"
		time.Sleep(time.Hour)
	}, func(o *tenure.Options) { o.Label = "v1" })
	if took := time.Since(begun); !ran || took >= time.Hour {
		t.Errorf("ran: %v, in %v", ran, took)
	}
}

// Calls tells of the calls on locks, of this client, while the function runs.
func TestCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *tenuretest.World, a, b *tenuretest.Client) {
		l := a.MustAcquire("x", &tenure.AcquireOptions{History: true})
		if got := a.Calls(func() {
			_, err := a.OpenSession(t.Context(), nil)
			testutil.Want(t, err, nil)
			_, err = b.TryAcquire(t.Context(), "y", nil)
			testutil.Want(t, err, nil)
			testutil.Want(t, l.Renew(t.Context()), nil)
			testutil.Want(t, l.Release(t.Context()), nil)
		}); got != "heartbeat release" {
			t.Errorf("calls of a: %q", got)
		}
		if got := b.Calls(func() {}); got != "" {
			t.Errorf("calls of nothing: %q", got)
		}
	})
}

// Events has what a client tells, also where the program listens.
func TestEvents(t *testing.T) {
	inBubble(t, func(t *testing.T, w *tenuretest.World, a, _ *tenuretest.Client) {
		var told []tenure.Event
		c := w.Client("c", func(o *tenure.Options) { o.OnEvent = func(e tenure.Event) { told = append(told, e) } })
		testutil.Want(t, c.MustAcquire("x", nil).Release(t.Context()), nil)
		var kinds []string
		for _, e := range c.Events() {
			kinds = append(kinds, string(e.Kind))
		}
		if got := strings.Join(kinds, " "); got != "acquired stopping released" || len(told) != len(kinds) {
			t.Errorf("events %s; told %v", got, told)
		}
		got := c.Events(tenure.EventReleased, tenure.EventLost)
		if len(got) != 1 || got[0].Kind != tenure.EventReleased || got[0].Lock != "x" {
			t.Errorf("released or lost: %v", got)
		}
		if got := a.Events(); len(got) != 0 {
			t.Errorf("events of another: %v", got)
		}
	})
}

// Record reads past all faults, and Records writes so.
func TestRecord(t *testing.T) {
	inBubble(t, func(t *testing.T, w *tenuretest.World, a, _ *tenuretest.Client) {
		if rec := w.Record("x"); rec.Key != "" {
			t.Errorf("before the first holder: %+v", rec)
		}
		a.MustAcquire("x", nil)
		w.Partition()
		rec := w.MustRecord("x")
		if rec.Key != "x" || rec.State != driver.Held || rec.Owner != "a" || rec.Token != 1 {
			t.Errorf("held: %+v", rec)
		}
		testutil.Want(t, w.Records().Delete(t.Context(), rec), nil)
		if rec := w.Record("x"); rec.Key != "" {
			t.Errorf("deleted: %+v", rec)
		}
	})
}

// Inject spares the calls before, those after, and those of other kinds.
func TestInject(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *tenuretest.World, a, _ *tenuretest.Client) {
		reads := func(wanted ...error) {
			t.Helper()
			for _, err := range wanted {
				_, got := a.Status(t.Context(), "x")
				testutil.Want(t, got, err)
			}
		}
		a.Inject(faultstore.OpGet, 1, 2, faultstore.LoseRequest())
		testutil.Want(t, a.MustAcquire("y", nil).Release(t.Context()), nil)
		reads(nil, faultstore.ErrInjected, faultstore.ErrInjected, nil)
		remove := a.Inject(faultstore.OpGet, 0, 0, faultstore.LoseRequest())
		reads(faultstore.ErrInjected, faultstore.ErrInjected)
		remove()
		reads(nil)
	})
}

// BoundReads fails a test in its end whose client reads too often, a killed one's as well.
func TestBoundReads(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(c *tenuretest.Client, read func(n int))
		want string
	}{
		"as often as allowed": {func(_ *tenuretest.Client, read func(int)) { read(3); time.Sleep(time.Second); read(3) }, ""},
		"too often": {
			func(_ *tenuretest.Client, read func(int)) { read(2); time.Sleep(time.Second - 1); read(2) },
			`tenuretest: "a" read "x" 4 times within 999.999999ms, from`,
		},
		"too often before its kill": {func(c *tenuretest.Client, read func(int)) { read(4); c.Kill() }, "at most 3 a second"},
		"another bound":             {func(c *tenuretest.Client, read func(int)) { read(4); c.BoundReads(4) }, ""},
		"no bound":                  {func(c *tenuretest.Client, read func(int)) { read(40); c.BoundReads(0) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb := &fakeTB{TB: t}
				t.Cleanup(func() { // after the world's
					if got := tb.text(); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
						t.Errorf("said %q, want %q", got, tt.want)
					}
				})
				w := tenuretest.New(tb)
				w.BoundReads(3)
				c := w.Client("a", func(o *tenure.Options) { o.Logger = silent })
				tt.do(c, func(n int) {
					for i := range n {
						_, err := c.Status(t.Context(), "x")
						testutil.Want(t, err, nil)
						_, err = c.Status(t.Context(), fmt.Sprint("other", i))
						testutil.Want(t, err, nil)
					}
				})
			})
		})
	}
}
