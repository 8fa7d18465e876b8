// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

// With any program alive nothing is raised.
func TestRaiseIsRefusedWhileAProgramLives(t *testing.T) {
	for name, tc := range map[string]struct {
		live func(t *testing.T, w *world, m *machine) // does something in the time of the wait
		in   string
	}{
		"a holder":                 {func(_ *testing.T, _ *world, m *machine) { m.mustAcquire("x", nil) }, `lock "x", of "alive"`},
		"a holder of another lock": {func(_ *testing.T, _ *world, m *machine) { m.mustAcquire("y", nil) }, `lock "y", of "alive"`},
		"a session without a lock": {func(_ *testing.T, _ *world, m *machine) { m.mustOpen(nil) }, `, of "alive"`},
		"one that comes": {func(_ *testing.T, _ *world, m *machine) {
			go func() {
				time.Sleep(mid)
				m.mustRelease(m.mustAcquire("free", nil))
			}()
		}, `lock "free", of "alive"`},
		"one that makes a lock": {func(_ *testing.T, _ *world, m *machine) {
			go func() {
				time.Sleep(mid)
				m.mustRelease(m.mustAcquire("new", nil))
			}()
		}, `lock "new", of "alive"`},
		"a contender that takes over from the dead": {func(_ *testing.T, _ *world, m *machine) {
			go func() { m.mustAcquire("dead", nil) }()
			time.Sleep(mid) // it takes it before the end of the wait
		}, `lock "dead", of "`},
		"one that asks the dead": {func(t *testing.T, _ *world, m *machine) {
			t.Helper()
			go func() {
				time.Sleep(mid)
				_ = m.StepDown(t.Context(), "dead", because("hurry")) // nobody answers
			}()
		}, `lock "dead", of "dead"`},
		"one that deletes": {func(t *testing.T, w *world, _ *machine) {
			t.Helper()
			go func() {
				time.Sleep(mid)
				want(t, w.records.Delete(t.Context(), w.record("free")), nil)
			}()
		}, `lock "free"`},
	} {
		inRaisableRun(t, name, func(t *testing.T, w *world) {
			dead := w.machine("dead")
			dead.mustAcquire("dead", nil)
			dead.mustRelease(dead.mustAcquire("free", nil))
			dead.mustOpen(nil)
			dead.crash()
			m := w.machine("alive")
			tc.live(t, w, m)
			ops := w.machine("ops")
			n, err := admin.RaiseTokens(t.Context(), ops.Client, "", 1000, nil)
			want(t, err, tenure.ErrAlive)
			contains(t, err, tc.in)
			contains(t, err, "stop all programs that use the store first")
			if n != (admin.RaisedTokens{}) || ops.faults.Count(faultstore.OpRaise, faultstore.OpClose) != 0 {
				t.Errorf("%+v was done, by %d writes", n, ops.faults.Count(faultstore.OpRaise, faultstore.OpClose))
			}
			m.Close(t.Context())
		})
	}
}

// The last heartbeat of a program may still be on its way when all have stood still.
func TestRaiseIsRefusedByALateHeartbeat(t *testing.T) {
	for _, session := range []bool{false, true} {
		inRaisable(t, func(t *testing.T, w *world) {
			a := w.machine("a")
			op := faultstore.OpRaise
			if session {
				op = faultstore.OpClose
				a.mustOpen(nil)
			} else {
				a.mustAcquire("x", nil)
			}
			a.crash()
			ops := w.machine("ops")
			// The moment in which the write is sent is the one in which it comes.
			ops.faults.Inject(faultstore.Rule{Ops: []faultstore.Op{op}, Count: 1, Decide: func(c faultstore.Call) faultstore.Fault {
				next := c.Prev.Clone()
				next.Version, next.Beat = "late", "late"
				if _, err := w.records.Swap(t.Context(), c.Prev, next); err != nil {
					t.Error(err)
				}
				return faultstore.Fault{}
			}})
			n, err := admin.RaiseTokens(t.Context(), ops.Client, "", 1000, nil)
			want(t, err, tenure.ErrAlive)
			if n != (admin.RaisedTokens{}) {
				t.Errorf("%+v was done", n)
			}
		})
	}
}

// So may one that comes after the last look, and before the write.
func TestRaiseIsRefusedByAHeartbeatAfterTheLastLook(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, w *world){
		"written": func(t *testing.T, w *world) {
			t.Helper()
			rec := w.record("x")
			next := rec.Clone()
			next.Version, next.Beat = "late", "late"
			if _, err := w.records.Swap(t.Context(), rec, next); err != nil {
				t.Error(err)
			}
		},
		"deleted": func(t *testing.T, w *world) {
			t.Helper()
			want(t, w.records.Delete(t.Context(), w.record("x")), nil)
		},
	} {
		inRaisableRun(t, name, func(t *testing.T, w *world) {
			a := w.machine("a")
			a.mustAcquire("x", nil)
			a.mustOpen(nil)
			a.crash()
			ops := w.machine("ops")
			ops.faults.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpClose}, Count: 1, Decide: func(faultstore.Call) faultstore.Fault {
				change(t, w)
				return faultstore.Fault{}
			}})
			n, err := admin.RaiseTokens(t.Context(), ops.Client, "", 1000, nil)
			want(t, err, tenure.ErrAlive)
			contains(t, err, `lock "x"`)
			if n != (admin.RaisedTokens{Sessions: 1}) {
				t.Errorf("%+v was done", n)
			}
		})
	}
}

// When the program has stopped its session is closed: its last heartbeat, which may
// be on its way for long, does not bring it back, whatever the prefix.
func TestRaiseClosesSessions(t *testing.T) {
	for _, prefix := range []string{"", "x", "another"} {
		inRaisable(t, func(t *testing.T, w *world) {
			a, b := w.machine("a"), w.machine("b")
			b.mustRelease(b.mustAcquire("x", nil))
			s := a.mustOpen(nil)
			first := a.mustTake(s, "x")
			// The heartbeat that comes next is on its way for far longer than anything
			// should be, and the program hangs.
			a.fault(faultstore.OpHeartbeat, 0, 1, faultstore.LateAfterError(3*lease))
			time.Sleep(heartbeat)
			a.crash()
			n, err := admin.RaiseTokens(t.Context(), w.machine("ops").Client, prefix, 1000, nil)
			if err != nil || n.Sessions != 1 {
				t.Fatalf("%+v, %v", n, err)
			}
			want(t, first.Check(), tenure.ErrLost)
			second := b.mustAcquire("x", nil)
			time.Sleep(2 * lease)
			if rec := w.record(driver.SessionKey(s.ID())); rec.State != driver.Closed {
				t.Errorf("the session is %q after the late heartbeat", rec.State)
			}
			want(t, first.Check(), tenure.ErrLost)
			want(t, second.Check(), nil)
			b.mustRelease(second)
		})
	}
}
