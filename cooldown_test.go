// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

const coolDown = 2 * time.Second // and 2 leases at most, by default

// labelled says which version of the software a machine runs.
func labelled(label string) func(*tenure.Options) {
	return func(o *tenure.Options) { o.Label = label }
}

// fails has the machine lead once, and its work fail; it returns how long that waited.
func (m *machine) fails(o *tenure.ElectionOptions) time.Duration {
	m.t.Helper()
	return m.leads(o, errWork)
}

// leads has the machine lead once, with that result.
func (m *machine) leads(o *tenure.ElectionOptions, result error) (waited time.Duration) {
	m.t.Helper()
	begun := time.Now()
	err := m.Election("x", o).Run(m.t.Context(), func(context.Context, *tenure.Lease) error {
		waited = time.Since(begun)
		time.Sleep(time.Second)
		return result
	})
	if err != result { //nolint:errorlint // what work returns, as it is
		m.t.Errorf("got %v, want %v", err, result)
	}
	return waited
}

// near fails the test unless a candidate waited for about that long: from it, and no
// longer than a poll beyond it.
func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if got < want || got > want+100*time.Millisecond {
		t.Errorf("%s waited for %v, want %v", what, got, want)
	}
}

func TestCoolDownDoublesUpToItsMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a", labelled("v2"))
		o := &tenure.ElectionOptions{CoolDown: coolDown}
		for i, want := range []time.Duration{0, 2, 4, 8, 16, 30, 30} {
			near(t, "tenure "+string(rune('1'+i)), m.fails(o), want*time.Second)
		}
		o.CoolDownMax = 3 * time.Second
		near(t, "one with a lower most", m.fails(o), 3*time.Second)
		near(t, "one without a cool-down", m.fails(nil), 0)
	})
}

// TestCoolDownIsForFailuresOfTheOwnLabel: and for nothing else.
func TestCoolDownIsForFailuresOfTheOwnLabel(t *testing.T) {
	o := &tenure.ElectionOptions{CoolDown: coolDown}
	for name, tt := range map[string]struct {
		before func(w *world, own, other *machine)
		want   time.Duration
	}{
		"nothing": {func(*world, *machine, *machine) {}, 0},
		"another label has failed": {func(_ *world, _, other *machine) {
			for range 5 {
				other.fails(nil)
			}
		}, 0},
		"it has failed before another one did": {func(_ *world, own, other *machine) {
			own.fails(nil)
			own.fails(nil)
			for range 5 {
				other.fails(nil)
			}
		}, 2 * coolDown},
		"another label has led well since": {func(_ *world, own, other *machine) {
			own.fails(nil)
			for range 4 {
				other.leads(nil, nil)
			}
		}, coolDown},
		"it has led well since": {func(_ *world, own, _ *machine) {
			for range 3 {
				own.fails(nil)
			}
			own.leads(nil, nil)
		}, 0},
		"it has failed once since it led well": {func(_ *world, own, _ *machine) {
			own.fails(nil)
			own.fails(nil)
			own.leads(nil, nil)
			own.fails(nil)
		}, coolDown},
		"it has failed longer ago than counts": {func(_ *world, own, other *machine) {
			own.fails(nil)
			for range 16 {
				other.leads(nil, nil)
			}
		}, 0},
		"its work has stalled": {func(_ *world, own, _ *machine) {
			slow := &tenure.AcquireOptions{History: true, Timing: tenure.Timing{ProgressTimeout: time.Second}}
			want(own.t, own.Run(own.t.Context(), "x", slow, func(ctx context.Context, _ *tenure.Lease) error {
				<-ctx.Done()
				return nil
			}), tenure.ErrStalled)
		}, coolDown},
		"it was asked to step down": {func(w *world, own, other *machine) {
			done := started(func() error {
				return own.Run(own.t.Context(), "x", &tenure.AcquireOptions{History: true}, func(ctx context.Context, _ *tenure.Lease) error {
					<-ctx.Done()
					return errWork
				})
			})
			time.Sleep(time.Second)
			want(w.t, other.StepDown(w.t.Context(), "x", "maintenance"), nil)
			want(w.t, <-done, errWork)
		}, 0},
		"its process has crashed": {func(w *world, own, _ *machine) {
			for _, name := range []string{"c1", "c2"} {
				dead := w.machine(name, labelled(own.Options().Label))
				dead.mustAcquire("x", &tenure.AcquireOptions{History: true})
				dead.crash()
			}
			time.Sleep(2 * lease)
		}, lease}, // which any contender waits for
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			own, other := w.machine("own", labelled("v2")), w.machine("other", labelled("v1"))
			tt.before(w, own, other)
			near(t, "it", own.fails(o), tt.want)
		})
	}
}

// TestCoolDownWithoutAHistory: what cannot be read puts nothing off for longer than
// what could be read there.
func TestCoolDownWithoutAHistory(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.machine("a", labelled("v2"))
		for range 4 {
			m.fails(nil)
		}
		remove := m.faults.Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool {
				return c.Op == faultstore.OpGet && strings.HasPrefix(c.Key, driver.OwnPrefix)
			},
			Fault: faultstore.Refuse(),
		})
		waited := m.fails(&tenure.ElectionOptions{CoolDown: coolDown})
		if remove(); waited < 2*lease || waited > 2*lease+3*time.Second {
			t.Errorf("it waited for %v, want two leases", waited)
		}
	})
}

// TestCoolDownCosts: one read before the claim, and the history only where the record
// does not settle the count.
func TestCoolDownCosts(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.machine("a", labelled("v2"))
		o := &tenure.ElectionOptions{CoolDown: coolDown}
		past := func() (n int) {
			for _, c := range m.faults.Log() {
				if c.Op == faultstore.OpGet && strings.HasPrefix(c.Key, driver.OwnPrefix) {
					n++
				}
			}
			return n
		}
		n := m.faults.Count(faultstore.OpGet)
		m.leads(o, nil)
		if more := m.faults.Count(faultstore.OpGet) - n; more != 1 {
			t.Errorf("%d reads before the first tenure, want 1", more)
		}
		for range 3 {
			m.leads(o, nil)
		}
		if n := past(); n != 0 {
			t.Errorf("%d reads of the history, and the record settles the count", n)
		}
	})
}

// TestCoolDownAsksNobodyToMakeWay: a version that has failed does not ask the one
// that leads now to hand over, however preferred it is. A hand-over to it is its own
// at once.
func TestCoolDownAsksNobodyToMakeWay(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	inWorld(t, func(t *testing.T, w *world) {
		o := &tenure.ElectionOptions{CoolDown: coolDown, Priority: 2}
		bad, good := w.machine("new", labelled("v2")), w.machine("old", labelled("v1"))
		bad.fails(o)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		leads := make(chan string, 8)
		campaign := func(m *machine, priority int) <-chan error {
			o := *o
			o.Priority = priority
			return started(func() error {
				return m.Election("x", &o).Run(ctx, func(ctx context.Context, l *tenure.Lease) error {
					leads <- m.Options().Label
					<-ctx.Done()
					return nil
				})
			})
		}
		goods := campaign(good, 1)
		if label := <-leads; label != "v1" {
			t.Fatalf("%s leads", label)
		}
		bads := campaign(bad, 2)
		time.Sleep(time.Hour)
		select {
		case label := <-leads:
			t.Fatalf("%s has asked for the lead", label)
		default:
		}
		begun := time.Now()
		want(t, good.Transfer(t.Context(), "x", "new", "try it again"), nil)
		if label := <-leads; label != "v2" || time.Since(begun) > heartbeat+refresh {
			t.Errorf("%s leads %v after a hand-over to v2", label, time.Since(begun))
		}
		stop()
		want(t, <-goods, nil)
		want(t, <-bads, nil)
	})
}

func TestCoolDownIsChecked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, tt := range []struct {
			label string
			o     tenure.ElectionOptions
			want  string
		}{
			{"", tenure.ElectionOptions{CoolDown: coolDown}, "cool-down 2s without a label: name the version of the software in Options.Label"},
			{"v", tenure.ElectionOptions{CoolDown: -1}, "cool-down -1ns, at most 30s: both must be from 0 to"},
			{"v", tenure.ElectionOptions{CoolDown: time.Minute}, "cool-down 1m0s exceeds its most, 30s: lower the one, or raise the other"},
			{"v", tenure.ElectionOptions{CoolDownMax: time.Minute}, "the most of a cool-down is 1m0s, and there is no cool-down: set both, or none"},
		} {
			err := w.machine("a", labelled(tt.label)).Election("x", &tt.o).Run(t.Context(), noWork)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		}
	})
}
