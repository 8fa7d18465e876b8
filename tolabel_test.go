// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
)

// reservation is for how long a lock is kept for whom it was handed over to.
const reservation = 2 * (refresh + requestTimeout)

// obeys takes the lock, and releases it when it is asked to make way.
func (m *machine) obeys(name string) *tenure.Lease {
	m.t.Helper()
	l := m.mustAcquire(name, &tenure.AcquireOptions{History: true})
	go func() {
		<-l.Context().Done()
		_ = l.Release(m.t.Context())
	}()
	return l
}

// waits has the machine wait for the lock; the channel has when it got it.
func (m *machine) waits(name string) <-chan time.Time {
	got := make(chan time.Time, 1)
	go func() {
		l, err := m.Acquire(m.t.Context(), name, nil)
		switch {
		case m.t.Context().Err() != nil:
			return
		case err != nil:
			m.t.Errorf("%s: %v", m.Options().Owner, err)
			return
		}
		got <- time.Now()
		<-l.Context().Done()
		_ = l.Release(m.t.Context())
	}()
	return got
}

// soon returns what comes, and fails the test if nothing does.
func soon(t *testing.T, got <-chan time.Time) time.Time {
	t.Helper()
	select {
	case at := <-got:
		return at
	case <-time.After(10 * lease):
		t.Fatal("it does not get the lock")
		return time.Time{}
	}
}

// TestTransferToLabel: the first of that label takes the lock at once, and nobody else,
// though others have waited for longer.
func TestTransferToLabel(t *testing.T) {
	for _, under := range []string{"its own lease", "a session"} {
		inWorldRun(t, "under "+under, func(t *testing.T, w *world) {
			a := w.machine("a", labelled("v1"))
			if under == "a session" {
				l := a.mustTake(a.mustOpen(nil), "x")
				go func() {
					<-l.Context().Done()
					_ = l.Release(t.Context())
				}()
			} else {
				a.obeys("x")
			}
			others := map[string]<-chan time.Time{}
			for name, label := range map[string]string{"b": "v1", "c": "", "d": "v3"} {
				others[name] = w.machine(name, labelled(label)).waits("x")
			}
			time.Sleep(lease)
			e := w.machine("e", labelled("v2"))
			heir := e.waits("x")
			time.Sleep(lease)
			begun := time.Now()
			want(t, a.TransferToLabel(t.Context(), "x", "v2", "deploy"), nil)
			if took := soon(t, heir).Sub(begun); took > heartbeat+2*refresh {
				t.Errorf("it took %v", took)
			}
			for name, got := range others {
				select {
				case <-got:
					t.Errorf("%s has the lock", name)
				default:
				}
			}
			st, err := e.Status(t.Context(), "x")
			if p := st.Previous; err != nil || st.Owner != "e" || st.Token != 2 || st.Label != "v2" || st.ReservedForLabel != "" ||
				p.End != tenure.EndHandedOver || p.Request.ToLabel != "v2" || p.Request.To != "" {
				t.Errorf("status %+v, %v", st, err)
			}
		})
	}
}

// TestTransferToLabelThatNobodyHas: the lock is kept for its time, says so, and is free
// for others then.
func TestTransferToLabelThatNobodyHas(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a", labelled("v1")), w.machine("b", labelled("v1"))
		l := a.obeys("x")
		want(t, b.TransferToLabel(t.Context(), "x", "v2", "deploy"), nil)
		begun := time.Now()
		var asked *tenure.StepDownError
		if err := context.Cause(l.Context()); !errors.As(err, &asked) || asked.ToLabel != "v2" || asked.To != "" ||
			err.Error() != `asked by "b" to hand over to label "v2": deploy` {
			t.Errorf("told %v", err)
		}
		s, err := b.Status(t.Context(), "x")
		if err != nil || s.Held || s.State != tenure.StateReserved || s.ReservedFor != "" || s.ReservedForLabel != "v2" ||
			s.Owner != "a" || s.Label != "v1" || s.End != tenure.EndHandedOver || s.EndedBy.ToLabel != "v2" || s.FreeIn <= 0 {
			t.Errorf("status %+v, %v", s, err)
		}
		var held *tenure.HeldError
		if _, err = b.TryAcquire(t.Context(), "x", nil); !errors.As(err, &held) || !held.Reserved || held.Owner != "" || held.Label != "v2" ||
			!strings.Contains(err.Error(), `reserved for label "v2" after token 1; free in `) {
			t.Errorf("try: %v", err)
		}
		want(t, b.StepDown(t.Context(), "x", "why"), tenure.ErrNotHeld)
		others := b.waits("x")
		if waited := soon(t, others).Sub(begun); waited < reservation || waited > reservation+refresh {
			t.Errorf("another label waited for %v, want %v", waited, reservation)
		}
	})
}

// TestTransferToLabelIsForOneOfIt: several have the label, one of them gets the lock, and
// one who only tries does as well as one who waits.
func TestTransferToLabelIsForOneOfIt(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.machine("a", labelled("v1"))
		a.obeys("x")
		want(t, a.TransferToLabel(t.Context(), "x", "v2", "deploy"), nil)
		var got []*tenure.Lease
		for i := range 5 {
			l, err := w.machine(fmt.Sprint("m", i), labelled("v2")).TryAcquire(t.Context(), "x", nil)
			if err == nil {
				got = append(got, l)
			} else {
				want(t, err, tenure.ErrHeld)
			}
		}
		if len(got) != 1 || got[0].Token() != 2 {
			t.Errorf("%d of them have the lock", len(got))
		}
	})
}

// TestTransferToLabelIsChecked: nothing is asked of a holder with that label, and
// nothing that names none.
func TestTransferToLabelIsChecked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a", labelled("v2")), w.machine("b", labelled("v1"))
		l := a.obeys("x")
		for label, text := range map[string]string{
			"v2":                      `"a" holds it already, under token 1, and has label "v2"`,
			"":                        "label to hand over to is empty",
			"a\nb":                    "label to hand over to",
			strings.Repeat("v", 2000): "label to hand over to",
		} {
			err := b.Election("x", nil).TransferToLabel(t.Context(), label, "deploy")
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("to label %.20q: %v", label, err)
			}
		}
		if err := b.TransferToLabel(t.Context(), "x", "v3", ""); err == nil || !strings.Contains(err.Error(), "the reason is empty") {
			t.Errorf("without a reason: %v", err)
		}
		want(t, l.Check(), nil)
		if rec := w.record("x"); len(rec.Requests) > 0 || l.Context().Err() != nil {
			t.Errorf("the holder was asked %+v", rec.Requests)
		}
	})
}

// TestHandOverToALabelIsNotPutOff: a version that has failed takes at once what was
// handed over to it on purpose.
func TestHandOverToALabelIsNotPutOff(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		bad, good := w.machine("new", labelled("v2")), w.machine("old", labelled("v1"))
		o := &tenure.ElectionOptions{CoolDown: coolDown}
		for range 4 {
			bad.fails(o)
		}
		good.obeys("x")
		ctx, stop := context.WithCancel(t.Context())
		led := make(chan time.Time, 1)
		done := started(func() error {
			return bad.Election("x", o).Run(ctx, func(ctx context.Context, _ *tenure.Lease) error {
				led <- time.Now()
				<-ctx.Done()
				return nil
			})
		})
		time.Sleep(lease)
		begun := time.Now()
		want(t, good.Election("x", nil).TransferToLabel(t.Context(), "v2", "once more"), nil)
		if took := soon(t, led).Sub(begun); took > heartbeat+2*refresh {
			t.Errorf("it was put off for %v", took)
		}
		stop()
		want(t, <-done, nil)
	})
}

// TestStandBackFromALabel: who stands back waits no longer when the lock is kept for its
// own label, and does when it is kept for another one.
func TestStandBackFromALabel(t *testing.T) {
	for label, waits := range map[string]bool{"v2": false, "v1": true, "": true} {
		inWorld(t, func(t *testing.T, w *world) {
			a, b := w.machine("a", labelled("v3")), w.machine("b", labelled(label))
			a.obeys("x")
			want(t, a.TransferToLabel(t.Context(), "x", "v2", "deploy"), nil)
			begun := time.Now()
			want(t, b.StandBack(t.Context(), "x"), nil)
			if took := time.Since(begun); (took >= reservation) != waits || took > reservation {
				t.Errorf("label %q stands back for %v", label, took)
			}
		})
	}
}
