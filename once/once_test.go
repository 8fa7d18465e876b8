// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
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

// A slot runs once, no matter which host asks, and the next one runs; the outcome of each
// is reported.
func TestOnce(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
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
			if done := as[*once.DoneError](t, err); !reflect.DeepEqual(done.Run, r) || res.Run.Token != 0 || !errors.Is(err, once.ErrDone) {
				t.Errorf("%s: %+v, %v", h.Options().Owner, done.Run, err)
			}
		}
		if res, err := b.once(8, nil, func(context.Context, *once.Turn) error { return errWork }); !errors.Is(err, errWork) ||
			res.Run.State != once.StateFailed || res.Run.Error != errWork.Error() || !res.Recorded {
			t.Errorf("%+v, %v", res, err)
		}
		failed, err := a.History(t.Context(), once.LockName(name))
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
		if st.Last == nil || *st.Last != 8 || len(st.Runs) != 2 || st.Runs[0].Slot != 8 || !reflect.DeepEqual(st.Runs[1], r) || st.Held {
			t.Errorf("status %+v", st)
		}
		previous, err := a.History(t.Context(), once.LockName(name))
		if err != nil || !slices.ContainsFunc(previous, func(t tenure.Term) bool { return t.End == tenure.EndReleased }) {
			t.Errorf("history %+v, %v", previous, err)
		}
	})
}

// Three calls in all: the claim, the mark, and the release with the result.
func TestOnceCostsThreeRequests(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, h, _ *host) {
		for slot := range int64(3) {
			h.Faults().ResetLog()
			if _, err := h.once(slot, nil, nil); err != nil {
				t.Fatal(err)
			}
			if n := h.Faults().Count(); n != 3 {
				t.Errorf("slot %d cost %d requests: %v", slot, n, h.Faults().Log())
			}
		}
		for _, l := range h.Faults().Log() {
			if c := l.Call; c.Op == faultstore.OpClaim && c.Next.Data != nil {
				t.Errorf("a claim carries data: %v", l)
			}
		}
	})
}

// While one host is at work the others find it running, within about a heartbeat
// period; with Wait they wait for it, and find the slot done.
func TestOnceWhileItRuns(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
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

// The work ends while another host waits for a sign of life: that host gets the run's
// outcome, or runs the later slot itself.
func TestOnceWhenTheHolderReleases(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		c := s.host("c")
		a.begins(7, nil, takes(time.Second))
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
			onHosts(t, func(t *testing.T, s *world, a, b *host) {
				s.twice = redo
				a.dies(7)
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
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		a.begins(7, nil, takes(5*time.Minute))
		for range 20 {
			if _, err := b.once(7, &once.Options{Redo: true}, nil); !errors.Is(err, once.ErrRunning) {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// The work does not begin unless the mark of its slot is confirmed under a good lease. The
// error says whether the slot may count as begun.
func TestMarkThatIsNotConfirmed(t *testing.T) {
	for _, c := range []struct {
		name   string
		fault  func(a *host, stop func()) faultstore.Fault // of the mark
		is     error
		notRun bool // told that it may count as begun
		begun  bool // it does
	}{
		{"lost", func(a *host, _ func()) faultstore.Fault {
			a.Partition() // from the next call on
			return faultstore.BlackHole()
		}, tenure.ErrLost, true, false},
		{"applied, without an answer", func(a *host, _ func()) faultstore.Fault {
			a.Partition()
			return faultstore.LoseReplyHang()
		}, tenure.ErrLost, true, true},
		{"confirmed too late", func(a *host, _ func()) faultstore.Fault {
			a.Step(lease) // a pause that shows in the wall clock alone
			return faultstore.Fault{}
		}, tenure.ErrLost, true, true},
		{"taken back when the context ends", func(_ *host, stop func()) faultstore.Fault {
			time.AfterFunc(time.Second, stop)
			return faultstore.Slow(0, 2*time.Second)
		}, context.Canceled, false, false},
		{"not taken back when the context ends", func(a *host, stop func()) faultstore.Fault {
			stop()
			a.Partition()
			return faultstore.LoseReply()
		}, once.ErrNotRun, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			onHosts(t, func(t *testing.T, s *world, a, b *host) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				a.Faults().Inject(faultstore.Rule{
					Match:  func(c faultstore.Call) bool { return len(c.Next.Data) > 0 },
					Decide: func(faultstore.Call) faultstore.Fault { return c.fault(a, stop) },
					Count:  1,
				})
				res, err := once.Once(ctx, a.Client.Client, name, 7, nil, s.work(nil))
				if !errors.Is(err, c.is) || errors.Is(err, once.ErrNotRun) != c.notRun || res.Run.Token != 0 || s.count(7) != 0 {
					t.Errorf("%+v, %v, begun %d times", res, err, s.count(7))
				}
				_, err = b.once(7, nil, nil)
				if c.begun {
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

// The end of the run is not confirmed: the caller learns that the work is done, and that
// others may not know.
func TestOnceEndUnconfirmed(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		res, err := a.once(7, nil, func(context.Context, *once.Turn) error {
			a.Partition()
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

// A caller whose context ends before it is known whether the holder lives does not get a
// RunningError: it would believe that the slot is running.
func TestOnceEndsWithItsContext(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		a.dies(7)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := once.Once(ctx, b.Client.Client, name, 8, nil, s.work(nil))
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, once.ErrRunning) {
			t.Errorf("once: %v", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := once.Reset(ctx, b.Client.Client, name, 1, "a test"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, once.ErrRunning) {
			t.Errorf("reset: %v", err)
		}
	})
}

type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }
func (e exit) ExitCode() int { return int(e) }

// Work that fails is run again by the same term, with pauses that double.
func TestOnceRetries(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, h, _ *host) {
		var at []time.Duration
		var tokens []uint64
		work := func(_ context.Context, turn *once.Turn) error {
			at, tokens = append(at, time.Since(s.born)), append(tokens, turn.Token())
			return fmt.Errorf("attempt %d: %w", turn.Attempt(), exit(turn.Attempt()))
		}
		h.Faults().ResetLog()
		res, err := h.once(7, &once.Options{Retries: 3, RetryDelay: 100 * time.Millisecond}, work)
		if !errors.Is(err, exit(4)) || res.Run.Attempts != 4 || res.Run.Exit != 4 || !slices.Equal(tokens, []uint64{1, 1, 1, 1}) {
			t.Errorf("%+v, %v, tokens %v", res.Run, err, tokens)
		}
		if n := h.Faults().Count(); n != 3 {
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
		o := &once.Options{Retries: 9, RetryDelay: time.Hour}
		fails := s.work(func(context.Context, *once.Turn) error { return errWork })
		res, err = once.Once(ctx, h.Client.Client, name, 10, o, fails)
		if res.Run.Attempts != 1 || !errors.Is(err, errWork) || time.Since(s.born) > time.Minute {
			t.Errorf("%+v, %v", res.Run, err)
		}
	})
}

// The time of the work bounds all its attempts; work that does not return loses the
// lease after the stop timeout.
func TestOnceTimeout(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
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
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
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

// Data that are not a ledger are an error, never an empty ledger. FuzzLedger has
// examples.
func TestUnreadableLedger(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, h, _ *host) {
		const data = `{"ledger":"every/1"}`
		put := func(_ context.Context, l *tenure.Lease) error { return l.SetData(t.Context(), []byte(data)) }
		if err := h.Run(t.Context(), once.LockName(name), nil, put); err != nil {
			t.Fatal(err)
		}
		if _, err := h.once(7, nil, nil); !errors.Is(err, tenure.ErrUnreadable) || s.count(7) != 0 {
			t.Error(err)
		}
		if _, err := once.Show(t.Context(), h.Client.Client, name); !errors.Is(err, tenure.ErrUnreadable) {
			t.Error(err)
		}
		if st, err := h.Status(t.Context(), once.LockName(name)); err != nil || string(st.Data) != data {
			t.Errorf("it was written over: %s, %v", st.Data, err)
		}
		if err := once.Reset(t.Context(), h.Client.Client, name, 6, "somebody wrote into it"); err != nil {
			t.Error(err)
		}
		if _, err := h.once(7, nil, nil); err != nil {
			t.Error(err)
		}
	})
}

// The ledger keeps 20 runs.
func TestLedgerKeepsTwentyRuns(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, h, _ *host) {
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
		data, err := h.Status(t.Context(), once.LockName(name))
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

// Invalid arguments are reported before any request.
func TestOnceRefuses(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, h, _ *host) {
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
			_, err := once.Once(t.Context(), h.Client.Client, c.name, 1, c.options, c.work)
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%.20q: %v, want %q", c.name, err, c.says)
			}
		}
		if _, err := once.Once(t.Context(), nil, "x", 1, nil, work); err == nil || !strings.Contains(err.Error(), "client is nil") {
			t.Error(err)
		}
		if n := h.Faults().Count(); n != 0 {
			t.Errorf("%d requests", n)
		}
		if _, err := once.Once(t.Context(), h.Client.Client, long, 1, nil, work); err != nil {
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

// Only a run whose slot is a minute near its begin stands for a time.
func TestScheduled(t *testing.T) {
	now := time.Date(2026, 11, 23, 3, 0, 30, 0, time.UTC)
	for _, c := range []struct {
		run  once.Run
		want bool
	}{
		{once.Run{Slot: once.Minute(now), Begun: now.Add(time.Hour)}, true},
		{once.Run{Slot: once.Minute(now), Begun: now.AddDate(-2, 0, 0)}, false},
		{once.Run{Slot: 7, Begun: now}, false},
		{once.Run{Slot: 1 << 50, Begun: now}, false},
		{once.Run{Slot: once.Minute(time.Time{})}, false}, // it was never begun
	} {
		if at, is := c.run.Scheduled(); is != c.want || is && !at.Equal(now.Truncate(time.Minute)) {
			t.Errorf("slot %d, begun %v: %v, %v", c.run.Slot, c.run.Begun, at, is)
		}
	}
}

// loseClaims loses the replies to the next claim, which is applied.
func (h *host) loseClaims() {
	h.Faults().Inject(faultstore.Rule{
		Match: func(c faultstore.Call) bool { return c.Op == faultstore.OpClaim },
		Fault: faultstore.LoseReply(), Count: 1,
	})
}

// A host whose claim was applied and not answered does not know what was there before,
// and reads it: that is no empty ledger.
func TestLedgerBehindALostReply(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		if _, err := a.once(7, nil, nil); err != nil {
			t.Fatal(err)
		}
		for _, slot := range []int64{7, 6} {
			b.loseClaims()
			if _, err := b.once(slot, nil, nil); !errors.Is(err, once.ErrDone) && !errors.Is(err, once.ErrPassed) {
				t.Errorf("slot %d: %v", slot, err)
			}
		}
		b.loseClaims()
		if res, err := b.once(8, nil, nil); err != nil || res.Run.Slot != 8 {
			t.Errorf("%+v, %v", res, err)
		}
		if st := a.show(); len(st.Runs) != 2 || st.Runs[1].Slot != 7 {
			t.Errorf("%+v", st.Runs)
		}
	})
}

// Data that are not a ledger are reported beside a holder, too.
func TestUnreadableBesideAHolder(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		go func() {
			_ = a.Run(t.Context(), once.LockName(name), &tenure.AcquireOptions{Data: []byte("x")}, func(ctx context.Context, _ *tenure.Lease) error {
				return takes(time.Minute)(ctx, nil)
			})
		}()
		synctest.Wait()
		if _, err := b.once(7, nil, nil); !errors.Is(err, tenure.ErrUnreadable) {
			t.Error(err)
		}
		time.Sleep(2 * time.Minute)
	})
}

// A holder that has begun nothing yet is not said to run what the one before it has left.
func TestHolderOfAnOpenLedger(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		c := s.host("c")
		a.dies(7)
		go func() {
			_ = c.Run(t.Context(), once.LockName(name), nil, func(ctx context.Context, _ *tenure.Lease) error {
				return takes(time.Minute)(ctx, nil)
			})
		}()
		time.Sleep(2 * lease)
		_, err := b.once(8, nil, nil)
		if running := as[*once.RunningError](t, err); running.Run.Token != 0 || running.Held.Owner != "c" {
			t.Errorf("%+v", running)
		}
		time.Sleep(time.Minute)
		// The lost run was not missed: it was begun.
		res, err := b.once(9, &once.Options{Redo: true, Between: func(int64, int64) ([]int64, int) { return []int64{8}, 0 }}, nil)
		if err != nil || res.Unfinished == nil || !slices.Equal(res.Missed, []int64{8}) {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// A run from before a reset is not reported for a slot that was opened again.
func TestPassedAfterAReset(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, _ *host) {
		s.twice = true
		for _, slot := range []int64{5, 6} {
			if _, err := a.once(slot, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := once.Reset(t.Context(), a.Client.Client, name, 6, "a test"); err != nil {
			t.Fatal(err)
		}
		if _, err := a.once(5, nil, nil); !errors.Is(err, once.ErrDone) {
			t.Error(err)
		}
		if _, err := a.once(8, nil, nil); err != nil { // it closes what is below it
			t.Fatal(err)
		}
		if _, err := a.once(6, nil, nil); !errors.Is(err, once.ErrPassed) {
			t.Error(err)
		}
	})
}

// The pauses between attempts double up to five minutes. Each shows progress, and none is
// followed by an attempt when the lease has ended.
func TestRetryPauses(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, _, _ *host) {
		a := s.host("watched", func(o *tenure.Options) { o.ProgressTimeout = 11 * time.Minute })
		var at []time.Duration
		res, err := a.once(7, &once.Options{Retries: 4, RetryDelay: 2 * time.Minute}, func(ctx context.Context, _ *once.Turn) error {
			at = append(at, time.Since(s.born))
			_ = takes(5*time.Minute+30*time.Second)(ctx, nil)
			return errWork
		})
		if !errors.Is(err, errWork) || res.Run.Attempts != 5 {
			t.Fatalf("%+v, %v", res, err)
		}
		for i, most := range []time.Duration{2, 4, 5, 5} {
			most *= time.Minute
			if d := at[i+1] - at[i] - 5*time.Minute - 30*time.Second; d > most || d < most*3/4 {
				t.Errorf("pause %d took %v", i, d)
			}
		}
		res, err = a.once(8, &once.Options{Retries: 4, RetryDelay: time.Millisecond}, func(context.Context, *once.Turn) error {
			a.Step(lease) // a pause that shows in the wall clock alone
			return errWork
		})
		if !errors.Is(err, tenure.ErrLost) || res.Run.Attempts != 1 {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// Work that has ended, and waits for what it has left behind, is not said to run; the slot
// is done, and the next call learns what is waited for.
func TestEndedBeforeItReturns(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		var kept *once.Turn
		a.begins(7, nil, func(ctx context.Context, turn *once.Turn) error {
			kept = turn
			_ = takes(10*time.Second)(ctx, turn)
			if err := turn.Ended(ctx, exit(3), "13112 (sleep)"); err != nil {
				t.Error(err)
			}
			return takes(time.Hour)(ctx, turn)
		})
		time.Sleep(time.Minute)
		if r := b.show().Runs[0]; r.State != once.StateFailed || r.Exit != 3 || r.Took != 10*time.Second || r.Left != "13112 (sleep)" || r.Attempts != 1 {
			t.Errorf("%+v", r)
		}
		if _, err := b.once(7, &once.Options{Redo: true}, nil); !errors.Is(err, once.ErrDone) {
			t.Error(err)
		}
		_, err := b.once(8, nil, nil)
		if running := as[*once.RunningError](t, err); running.Run.Slot != 7 || running.Run.Left != "13112 (sleep)" {
			t.Errorf("%+v", running)
		}
		time.Sleep(time.Hour)
		if r := b.show().Runs[0]; r.State != once.StateDone || r.Left != "" || r.Took != time.Hour+10*time.Second {
			t.Errorf("%+v", r)
		}
		if err := kept.Ended(t.Context(), nil, "nothing"); err != nil || b.show().Runs[0].Left != "" {
			t.Errorf("after the end: %v", err)
		}
		if _, err := b.once(8, nil, nil); err != nil {
			t.Error(err)
		}
	})
}

// The options of the acquire reach it.
func TestOnceOptionsOfTheAcquire(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, _ *host) {
		for slot := range int64(4) {
			if _, err := a.once(slot, &once.Options{History: true}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if history, err := a.History(t.Context(), once.LockName(name)); err != nil || len(history) != 4 {
			t.Errorf("%+v, %v", history, err)
		}
		a.Faults().Inject(faultstore.Rule{Fault: faultstore.LoseRequest()})
		begun := time.Now()
		if _, err := a.once(9, &once.Options{StoreTimeout: 5 * lease}, nil); !errors.Is(err, faultstore.ErrInjected) {
			t.Error(err)
		}
		if took := time.Since(begun); took < 4*lease {
			t.Errorf("it gave up after %v", took)
		}
	})
}
