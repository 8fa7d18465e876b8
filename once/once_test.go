// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/once"
)

var errWork = errors.New("the disk is full")

// A slot is run once, whoever asks, and the next one is run; what became of each is
// told.
func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		res, err := a.once(7, nil, takes(2*time.Second))
		if err != nil || !res.Recorded {
			t.Fatalf("%+v, %v", res, err)
		}
		r := res.Run
		if r.Slot != 7 || r.State != once.StateDone || r.Owner != "a" || r.Token != 1 || r.Took != 2*time.Second || r.Attempts != 1 {
			t.Errorf("run %+v", r)
		}
		for _, h := range []*host{a, b} {
			res, err := h.once(7, nil, nil)
			if done := as[*once.DoneError](t, err); !sameRun(done.Run, r) || res.Run.Token != 0 || !errors.Is(err, once.ErrDone) {
				t.Errorf("%s: %+v, %v", h.owner, done.Run, err)
			}
		}
		if res, err := b.once(8, nil, func(context.Context, *once.Turn) error { return errWork }); !errors.Is(err, errWork) ||
			res.Run.State != once.StateFailed || res.Run.Error != errWork.Error() || !res.Recorded {
			t.Errorf("%+v, %v", res, err)
		}
		failed, err := a.client.History(t.Context(), once.LockName(name))
		if err != nil || len(failed) == 0 || failed[0].End != tenure.EndFailed {
			t.Errorf("the history of a failed run is %+v, %v", failed, err)
		}
		// A failed slot is begun, too.
		_, err = a.once(8, &once.Options{Redo: true}, nil)
		if done := as[*once.DoneError](t, err); done.Run.State != once.StateFailed || done.Run.Owner != "b" {
			t.Errorf("%+v", done.Run)
		}
		_, err = a.once(6, nil, nil)
		if passed := as[*once.PassedError](t, err); passed.Last != 8 || passed.Slot != 6 || errors.Is(err, once.ErrDone) {
			t.Errorf("%+v", passed)
		}
		st := b.show()
		if st.Last == nil || *st.Last != 8 || len(st.Runs) != 2 || st.Runs[0].Slot != 8 || !sameRun(st.Runs[1], r) || st.Held {
			t.Errorf("status %+v", st)
		}
		previous, err := a.client.History(t.Context(), once.LockName(name))
		if err != nil || !slices.ContainsFunc(previous, func(t tenure.Tenure) bool { return t.End == tenure.EndReleased }) {
			t.Errorf("history %+v, %v", previous, err)
		}
	})
}

func sameRun(a, b once.Run) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

// Three calls in all: the claim, the mark, and the release with the result.
func TestOnceCostsThreeRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		h := s.host("a", 1)
		for slot := range int64(3) {
			h.faults.ResetLog()
			if _, err := h.once(slot, nil, nil); err != nil {
				t.Fatal(err)
			}
			if n := h.faults.Count(); n != 3 {
				t.Errorf("slot %d cost %d requests: %v", slot, n, h.faults.Log())
			}
		}
		for _, l := range h.faults.Log() {
			if c := l.Call; c.Op == faultstore.OpClaim && c.Next.Data != nil {
				t.Errorf("a claim carries data: %v", l)
			}
		}
	})
}

// While one host is at work the others find it running, within about a heartbeat
// period; with Wait they wait for it, and find the slot done.
func TestOnceWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		if _, err := a.once(6, nil, nil); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() {
			_, err := a.once(7, nil, takes(time.Minute))
			ended <- err
		}()
		synctest.Wait()
		// What is known of other slots is told all the same.
		_, err := b.once(6, nil, nil)
		if done := as[*once.DoneError](t, err); done.Run.State != once.StateDone || done.Run.Slot != 6 {
			t.Errorf("%+v", done.Run)
		}
		_, err = b.once(5, nil, nil)
		if passed := as[*once.PassedError](t, err); passed.Last != 7 || passed.Run.State != once.StateRunning {
			t.Errorf("%+v", passed)
		}
		for _, slot := range []int64{7, 8} {
			begun := time.Now()
			_, err := b.once(slot, nil, nil)
			running := as[*once.RunningError](t, err)
			if !errors.Is(err, tenure.ErrHeld) || !errors.Is(err, once.ErrRunning) || running.Slot != slot ||
				running.Run.Slot != 7 || running.Run.State != once.StateRunning || running.Same() != (slot == 7) || running.Held.Owner != "a" {
				t.Errorf("%v", err)
			}
			if took := time.Since(begun); took > 2*beat {
				t.Errorf("it took %v to see that the holder is alive", took)
			}
		}
		if st := b.show(); !st.Held || st.Runs[0].State != once.StateRunning {
			t.Errorf("status %+v", st)
		}
		if _, err := a.once(7, nil, nil); !errors.Is(err, once.ErrRunning) {
			t.Errorf("from the same client: %v", err)
		}
		_, err = b.once(7, &once.Options{Wait: true}, nil)
		_ = as[*once.DoneError](t, err)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// The work ends while another host waits for a sign of life: that one is told of the
// run, or runs the later slot itself.
func TestOnceWhenTheHolderReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		a, b, c := s.host("a", 1), s.host("b", 1), s.host("c", 1)
		go a.quietly(7, nil, takes(time.Second))
		synctest.Wait()
		type answer struct {
			res once.Result
			err error
		}
		same, later := make(chan answer), make(chan answer)
		go func() { res, err := b.once(7, nil, nil); same <- answer{res, err} }()
		go func() { res, err := c.once(8, nil, nil); later <- answer{res, err} }()
		if got := <-same; !errors.Is(got.err, once.ErrDone) {
			t.Errorf("%+v", got)
		}
		if got := <-later; got.err != nil || got.res.Run.State != once.StateDone {
			t.Errorf("%+v", got)
		}
	})
}

// A dead holder swallows its own slot, and no later one; with Redo not even that.
func TestOnceAfterACrash(t *testing.T) {
	for _, redo := range []bool{false, true} {
		t.Run(fmt.Sprintf("redo %v", redo), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				s.twice = redo
				a, b := s.host("a", 1), s.host("b", 1)
				go a.quietly(7, nil, func(ctx context.Context, _ *once.Turn) error {
					a.crash()
					<-ctx.Done()
					return ctx.Err()
				})
				synctest.Wait()
				begun := time.Now()
				res, err := b.once(7, &once.Options{Redo: redo}, nil)
				if took := time.Since(begun); took < lease || took > lease+2*beat {
					t.Errorf("the dead holder was waited for %v", took)
				}
				if redo {
					if err != nil || s.count(7) != 2 {
						t.Errorf("%+v, %v, begun %d times", res, err, s.count(7))
					}
				} else if done := as[*once.DoneError](t, err); done.Run.State != once.StateUnknown || done.Run.Owner != "a" {
					t.Errorf("%+v", done.Run)
				}
				res, err = b.once(8, nil, nil)
				if err != nil || (res.Unfinished == nil) != redo {
					t.Errorf("%+v, %v", res, err)
				}
				st := b.show()
				if lost := st.Runs[len(st.Runs)-1]; lost.State != once.StateUnknown || lost.Slot != 7 || lost.Owner != "a" {
					t.Errorf("%+v", st.Runs)
				}
			})
		})
	}
}

// Redo never runs a slot whose holder may be alive.
func TestRedoLeavesTheLiving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		go a.quietly(7, nil, takes(5*time.Minute))
		synctest.Wait()
		for range 20 {
			if _, err := b.once(7, &once.Options{Redo: true}, nil); !errors.Is(err, once.ErrRunning) {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// The mark is not confirmed, and the lease runs out: the work does not begin, which
// is told, and the slot stays as it was or counts as begun.
func TestOnceMarkUnconfirmed(t *testing.T) {
	for _, applied := range []bool{false, true} {
		t.Run(fmt.Sprintf("applied %v", applied), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				a, b := s.host("a", 1), s.host("b", 1)
				fault := faultstore.BlackHole()
				if applied {
					fault = faultstore.LoseReplyHang()
				}
				marked := false // the first write of it; nothing is answered from then on
				a.faults.Inject(faultstore.Rule{Decide: func(c faultstore.Call) faultstore.Fault {
					switch {
					case marked:
						return faultstore.BlackHole()
					case len(c.Next.Data) > 0:
						marked = true
						return fault
					}
					return faultstore.Fault{}
				}})
				res, err := a.once(7, nil, nil)
				_ = as[*once.NotRunError](t, err)
				if !errors.Is(err, tenure.ErrLost) || !errors.Is(err, once.ErrNotRun) || res.Run.Token != 0 || s.count(7) != 0 {
					t.Errorf("%+v, %v, begun %d times", res, err, s.count(7))
				}
				_, err = b.once(7, nil, nil)
				if applied {
					if done := as[*once.DoneError](t, err); done.Run.State != once.StateUnknown {
						t.Errorf("%+v", done.Run)
					}
					_, err = b.once(7, &once.Options{Redo: true}, nil)
				}
				if err != nil || s.count(7) != 1 {
					t.Errorf("%v, begun %d times", err, s.count(7))
				}
			})
		})
	}
}

// The lease ends between the mark, which is confirmed late, and the work.
func TestOnceMarkConfirmedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		a := s.host("a", 1)
		a.faults.Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return len(c.Next.Data) > 0 },
			Decide: func(faultstore.Call) faultstore.Fault {
				a.clock.step(lease) // a pause that shows in the wall clock alone
				return faultstore.Fault{}
			},
			Count: 1,
		})
		_, err := a.once(7, nil, nil)
		_ = as[*once.NotRunError](t, err)
		if s.count(7) != 0 {
			t.Error("the work was begun")
		}
	})
}

// The context ends while the mark is under way: the mark is taken back, and another
// host runs the slot.
func TestOnceGivenUpBeforeItBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		a.faults.Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return len(c.Next.Data) > 0 },
			Fault: faultstore.Slow(0, time.Second), Count: 1,
		})
		ctx, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer stop()
		_, err := a.onceIn(ctx, 7, nil, nil)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, once.ErrNotRun) || s.count(7) != 0 {
			t.Errorf("%v, begun %d times", err, s.count(7))
		}
		if _, err := b.once(7, nil, nil); err != nil {
			t.Error(err)
		}
	})
}

// The context ends while the mark is under way, and the store answers nothing from then on:
// whether the mark could be taken back is not known. The caller is told that the slot may
// count as begun, which it does if the mark was applied and the lock ran out.
func TestOnceMarkThatMayStand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		a.faults.Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return len(c.Next.Data) > 0 },
			Decide: func(faultstore.Call) faultstore.Fault {
				stop()
				a.crash() // from the next call on
				return faultstore.LoseReply()
			},
			Count: 1,
		})
		_, err := a.onceIn(ctx, 7, nil, nil)
		_ = as[*once.NotRunError](t, err)
		if !errors.Is(err, once.ErrNotRun) || s.count(7) != 0 {
			t.Errorf("%v, begun %d times", err, s.count(7))
		}
		_, err = b.once(7, nil, nil)
		if done := as[*once.DoneError](t, err); done.Run.State != once.StateUnknown {
			t.Errorf("%+v", done.Run)
		}
	})
}

// The end of the run is not confirmed: the caller is told that the work is done, and
// that others may not know.
func TestOnceEndUnconfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		res, err := a.once(7, nil, func(context.Context, *once.Turn) error {
			a.crash()
			return nil
		})
		if !errors.Is(err, tenure.ErrUncertain) || res.Run.State != once.StateDone || res.Recorded {
			t.Errorf("%+v, %v", res, err)
		}
		if r := b.show().Runs[0]; r.State == once.StateDone {
			t.Errorf("%+v", r)
		}
	})
}

// A lease that is lost in the middle of the work ends its context, and is told.
func TestOnceLosesItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		go func() {
			time.Sleep(time.Minute)
			a.crash()
		}()
		ended := make(chan time.Time, 1)
		_, err := a.once(7, nil, func(ctx context.Context, turn *once.Turn) error {
			<-ctx.Done()
			ended <- time.Now()
			return context.Cause(ctx)
		})
		if !errors.Is(err, tenure.ErrLost) {
			t.Error(err)
		}
		if took := (<-ended).Sub(s.born); took > time.Minute+lease {
			t.Errorf("the work ended after %v", took)
		}
		if _, err := b.once(8, nil, nil); err != nil {
			t.Error(err)
		}
	})
}

// A caller whose context ends before it is known whether the holder lives is not told that
// somebody is at work: it would take the slot for one that is being run.
func TestOnceEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		go a.quietly(7, nil, func(ctx context.Context, _ *once.Turn) error {
			a.crash()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.onceIn(ctx, 8, nil, nil); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, once.ErrRunning) {
			t.Errorf("once: %v", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := once.Reset(ctx, b.client, name, 1, "a test"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, once.ErrRunning) {
			t.Errorf("reset: %v", err)
		}
	})
}

type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }
func (e exit) ExitCode() int { return int(e) }

// Work that fails is run again by the same tenure, with pauses that double.
func TestOnceRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		h := s.host("a", 1)
		var at []time.Duration
		var tokens []uint64
		work := func(_ context.Context, turn *once.Turn) error {
			at, tokens = append(at, time.Since(s.born)), append(tokens, turn.Token())
			return fmt.Errorf("attempt %d: %w", turn.Attempt(), exit(turn.Attempt()))
		}
		h.faults.ResetLog()
		res, err := h.once(7, &once.Options{Retries: 3, RetryDelay: 100 * time.Millisecond}, work)
		if !errors.Is(err, exit(4)) || res.Run.Attempts != 4 || res.Run.Exit != 4 || !slices.Equal(tokens, []uint64{1, 1, 1, 1}) {
			t.Errorf("%+v, %v, tokens %v", res.Run, err, tokens)
		}
		if n := h.faults.Count(); n != 3 {
			t.Errorf("%d requests", n)
		}
		for i, want := range []time.Duration{100, 200, 400} {
			want *= time.Millisecond
			if d := at[i+1] - at[i]; d > want || d < want*3/4 {
				t.Errorf("pause %d took %v", i, d)
			}
		}
		// The second attempt does it.
		res, err = h.once(8, &once.Options{Retries: 3}, func(_ context.Context, turn *once.Turn) error {
			if turn.Attempt() < 2 {
				return errWork
			}
			return nil
		})
		if err != nil || res.Run.State != once.StateDone || res.Run.Attempts != 2 {
			t.Errorf("%+v, %v", res.Run, err)
		}
		// Off by default; and none after the context has ended.
		res, _ = h.once(9, nil, func(context.Context, *once.Turn) error { return errWork })
		if res.Run.Attempts != 1 {
			t.Errorf("%+v", res.Run)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		res, err = h.onceIn(ctx, 10, &once.Options{Retries: 9, RetryDelay: time.Hour}, func(context.Context, *once.Turn) error { return errWork })
		if res.Run.Attempts != 1 || !errors.Is(err, errWork) || time.Since(s.born) > time.Minute {
			t.Errorf("%+v, %v", res.Run, err)
		}
	})
}

// The time of the work bounds all its attempts; work that does not return loses the
// lease after the stop timeout.
func TestOnceTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		var cause error
		res, err := a.once(7, &once.Options{Timeout: time.Minute}, func(ctx context.Context, turn *once.Turn) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			time.Sleep(lease / 2) // to put things away
			return errors.Join(ctx.Err(), turn.Check())
		})
		if !errors.Is(err, once.ErrTimeout) || !errors.Is(cause, once.ErrTimeout) || errors.Is(err, tenure.ErrStopTimeout) ||
			res.Run.State != once.StateFailed || !res.Recorded || res.Run.Took != time.Minute+lease/2 {
			t.Errorf("%+v, %v, cause %v", res.Run, err, cause)
		}
		if res, err := a.once(8, &once.Options{Timeout: time.Minute, Retries: 99}, func(context.Context, *once.Turn) error { return errWork }); !errors.Is(err, once.ErrTimeout) || !errors.Is(err, errWork) || res.Run.Attempts > 8 {
			t.Errorf("%+v, %v", res.Run, err)
		}
		// Work that is done after all is done.
		res, err = a.once(9, &once.Options{Timeout: time.Minute}, func(ctx context.Context, _ *once.Turn) error {
			<-ctx.Done()
			return nil
		})
		if err != nil || res.Run.State != once.StateDone {
			t.Errorf("%+v, %v", res.Run, err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := a.once(10, &once.Options{Timeout: time.Minute}, func(context.Context, *once.Turn) error {
				time.Sleep(10 * time.Minute)
				return nil
			})
			ended <- err
		}()
		time.Sleep(time.Minute + lease/2)
		if _, err := b.once(11, nil, nil); !errors.Is(err, once.ErrRunning) {
			t.Errorf("beside work that may yet stop: %v", err)
		}
		time.Sleep(lease)
		if _, err := b.once(11, nil, nil); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, tenure.ErrStopTimeout) {
			t.Error(err)
		}
	})
}

// A panic of the work is written down, and the lock is free.
func TestOncePanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		func() {
			defer func() {
				if r := recover(); r != "ouch" {
					t.Errorf("recovered %v", r)
				}
			}()
			_, _ = a.once(7, nil, func(context.Context, *once.Turn) error { panic("ouch") })
		}()
		if r := b.show().Runs[0]; r.State != once.StateFailed || !strings.Contains(r.Error, "panic") {
			t.Errorf("%+v", r)
		}
		begun := time.Now()
		if _, err := b.once(8, nil, nil); err != nil || time.Since(begun) > time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

// Data that are no ledger are an error, and never an empty ledger.
func TestUnreadableLedger(t *testing.T) {
	for _, data := range []string{
		"x", "{}", "[]", "null", `{"ledger":"every/1"}`, `{"ledger":"once/3"}`, `{"ledger":"once/2","floor":3}`, `{"ledger":"once/1","last":3}`,
		`{"ledger":"once/2","floor":3,"runs":[{"slot":4,"token":1}]}`, `{"ledger":"once/2","floor":4,"runs":[{"slot":4,"token":99}]}`,
		`{"ledger":"once/2","floor":4,"runs":[{"slot":4}]}`, `{"ledger":"once/2","floor":4,"runs":[{"slot":4,"token":1,"state":"odd"}]}`,
		`{"ledger":"once/2","floor":4,"runs":[{"slot":4,"token":1}]} {}`, `{"ledger":"once/2","floor":1e30}`, `{"ledger":"once/2","floor":"9"}`,
		`{"ledger":"once/2","begun":[[3,2]],"runs":[{"slot":2,"token":1}]}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t)
			h := s.host("a", 1)
			err := h.client.Run(t.Context(), once.LockName(name), &tenure.AcquireOptions{Data: []byte(data)}, func(context.Context, *tenure.Lease) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			if _, err := h.once(7, nil, nil); !errors.Is(err, tenure.ErrUnreadable) || s.count(7) != 0 {
				t.Errorf("%s: %v", data, err)
			}
			if _, err := once.Show(t.Context(), h.client, name); !errors.Is(err, tenure.ErrUnreadable) {
				t.Errorf("%s: %v", data, err)
			}
			if st, err := h.client.Status(t.Context(), once.LockName(name)); err != nil || string(st.Data) != data {
				t.Errorf("%s was written over: %s, %v", data, st.Data, err)
			}
			if err := once.Reset(t.Context(), h.client, name, 6, "somebody wrote into it"); err != nil {
				t.Errorf("%s: %v", data, err)
			}
			if _, err := h.once(7, nil, nil); err != nil {
				t.Errorf("%s: %v", data, err)
			}
		})
	}
}

// The ledger keeps 20 runs.
func TestLedgerKeepsTwentyRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		h := s.host("a", 1)
		long := errors.New(strings.Repeat("long\n\x1b ", 100))
		for slot := range int64(50) {
			_, _ = h.once(slot, nil, func(context.Context, *once.Turn) error { return long })
		}
		st := h.show()
		if len(st.Runs) != 20 || st.Runs[0].Slot != 49 || st.Runs[19].Slot != 30 {
			t.Errorf("%d runs, from slot %d to %d", len(st.Runs), st.Runs[0].Slot, st.Runs[len(st.Runs)-1].Slot)
		}
		if e := st.Runs[0].Error; len(e) > 200 || strings.ContainsAny(e, "\n\x1b") || !strings.HasSuffix(e, "...") {
			t.Errorf("text %q", e)
		}
		if _, err := h.once(29, nil, nil); !errors.Is(err, once.ErrPassed) {
			t.Error(err)
		}
		if _, err := h.once(30, nil, nil); !errors.Is(err, once.ErrDone) {
			t.Error(err)
		}
		data, err := h.client.Status(t.Context(), once.LockName(name))
		if err != nil || len(data.Data) > 20*(200+150) {
			t.Errorf("the ledger has %d bytes, %v", len(data.Data), err)
		}
		// Numbers, not text: "100" is after "99".
		if _, err := h.once(100, nil, nil); err != nil {
			t.Error(err)
		}
		if _, err := h.once(99, nil, nil); !errors.Is(err, once.ErrPassed) {
			t.Error(err)
		}
	})
}

// A late duplicate of a write brings no slot back.
func TestOnceLateDuplicates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		for _, h := range []*host{a, b} {
			h.faults.Inject(faultstore.Rule{
				Match: func(c faultstore.Call) bool { return c.Op.IsWrite() },
				Fault: faultstore.Fault{Again: []time.Duration{time.Second, time.Minute, time.Hour}},
			})
		}
		for slot := range int64(60) {
			for _, h := range []*host{a, b} {
				// A duplicate of a claim opens a tenure that nobody believes in, and
				// that others wait for.
				_, err := h.once(slot, &once.Options{Wait: true}, takes(time.Second))
				if err != nil && !errors.Is(err, once.ErrDone) {
					t.Errorf("slot %d on %s: %v", slot, h.owner, err)
				}
			}
			if s.count(slot) != 1 {
				t.Errorf("slot %d was begun %d times", slot, s.count(slot))
			}
		}
	})
}

// What is wrong is named before anything is sent.
func TestOnceRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		h := s.host("a", 1)
		work := func(context.Context, *once.Turn) error { return nil }
		long := strings.Repeat("x", once.MaxNameLen)
		for _, c := range []struct {
			name    string
			options *once.Options
			work    once.Work
			says    string
		}{
			{"", nil, work, "name is empty"},
			{long + "x", nil, work, "at most 1018"},
			{"tenure/x", nil, work, "Tenure itself"},
			{"x\n", nil, work, "U+000A"},
			{"\xff", nil, work, "UTF-8"},
			{"x", nil, nil, "work is nil"},
			{"x", &once.Options{Timeout: -1}, work, "timeout"},
			{"x", &once.Options{Retries: -1}, work, "retries"},
			{"x", &once.Options{RetryDelay: -1}, work, "retry delay"},
			{"x", &once.Options{CatchUp: -1, Between: lattice}, work, "catch up -1"},
			{"x", &once.Options{CatchUp: 1}, work, "Between"},
			{"x", &once.Options{WaitAhead: -1}, work, "wait ahead"},
		} {
			_, err := once.Once(t.Context(), h.client, c.name, 1, c.options, c.work)
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%.20q: %v, want %q", c.name, err, c.says)
			}
		}
		if _, err := once.Once(t.Context(), nil, "x", 1, nil, work); err == nil || !strings.Contains(err.Error(), "client is nil") {
			t.Error(err)
		}
		if n := h.faults.Count(); n != 0 {
			t.Errorf("%d requests", n)
		}
		if _, err := once.Once(t.Context(), h.client, long, 1, nil, work); err != nil {
			t.Error(err)
		}
		if n := len(once.EveryLockName(long)); n != driver.MaxNameLen {
			t.Errorf("a lock name of %d bytes", n)
		}
	})
}

// The forms for people and programs.
func TestRunJSON(t *testing.T) {
	at := time.Date(2026, 11, 23, 3, 0, 0, 0, time.FixedZone("", 3600))
	for _, c := range []struct {
		run  once.Run
		want string
	}{
		{
			once.Run{Slot: 1, State: once.StateDone, Token: 2, Owner: "a", Begun: at, Ended: at.Add(time.Minute), Took: time.Minute, Attempts: 1},
			`{"slot":1,"state":"done","token":2,"owner":"a","begun":"2026-11-23T02:00:00Z","ended":"2026-11-23T02:01:00Z","took_seconds":60,"attempts":1,"exit_status":0}`,
		},
		{
			once.Run{Slot: 1, State: once.StateFailed, Took: time.Millisecond, Exit: 3, Error: "x"},
			`{"slot":1,"state":"failed","took_seconds":0.001,"exit_status":3,"error":"x"}`,
		},
		{once.Run{Slot: -5, State: once.StateUnknown, Missed: 4}, `{"slot":-5,"state":"unknown","missed":4}`},
	} {
		got, err := json.Marshal(c.run)
		if err != nil || string(got) != c.want {
			t.Errorf("%s, %v\nwant %s", got, err, c.want)
		}
	}
}

func TestMinute(t *testing.T) {
	for at, want := range map[time.Time]int64{
		time.Unix(0, 0): 0, time.Unix(59, 999): 0, time.Unix(60, 0): 1, time.Unix(-1, 0): -1, time.Unix(-60, 0): -1, time.Unix(-61, 0): -2,
		time.Date(2026, 11, 23, 3, 0, 30, 0, time.UTC): 29923380,
	} {
		if got := once.Minute(at); got != want || !once.MinuteTime(got).Add(time.Minute).After(at) || once.MinuteTime(got).After(at) {
			t.Errorf("minute of %v: %d, want %d", at, got, want)
		}
	}
}
