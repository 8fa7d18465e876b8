// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/tasks"
)

// What the journal says of tasks that are stopped in order: a minus for being
// told, a full stop for having returned.
const (
	leadingStops   = "-l2, l2., -l1, l1., release"
	followingStops = "-f2, f2., -f1, f1."
	alwaysStop     = "-a2, a2., -a1, a1."
)

// A task that ends the group, in each way and of each kind, while the replica
// leads and while it follows: the others are stopped in order, and the lock is
// released between the last leading task and the first that always runs.
func TestTaskStopsTheGroupInOrder(t *testing.T) {
	for how, end := range map[string]func() error{
		"error":  func() error { return errTask },
		"stop":   func() error { return fmt.Errorf("done: %w", tasks.ErrStop) },
		"panic":  func() error { panic(errTask) },
		"goexit": func() error { runtime.Goexit(); return nil },
	} {
		for _, name := range []string{"a1", "l1", "l2", "f1", "f2", "following a2"} {
			t.Run(how+" of "+name, func(t *testing.T) {
				onWorld(t, func(t *testing.T, s *world) {
					name, alone := strings.CutPrefix(name, "following ")
					phase, starts := leadingStops, "a1, a2, l1, l2"
					if alone || name[0] == 'f' {
						phase, starts = followingStops, "a1, a2, f1, f2"
						s.rival()
					}
					r := s.replica("a").cast(map[string]act{name: {after: lease, how: end}})
					ended := r.run(t.Context())
					time.Sleep(lease / 2)
					s.expect(starts)
					err := <-ended
					stops := strings.Join([]string{name + "!", phase, alwaysStop}, ", ")
					s.expect(strings.Replace(stops, fmt.Sprintf(", -%s, %s.", name, name), "", 1))
					checkEnd(t, how, name, err)
					if phase == leadingStops {
						s.checkTenure(how)
					}
				})
			})
		}
	}
}

// checkTenure checks how the term of a leader ended that a task has stopped.
func (s *world) checkTenure(how string) {
	s.t.Helper()
	rec := s.Record(election)
	if want := driver.EndReason(tenure.EndFailed); how == "stop" && rec.End != driver.EndReleased || how != "stop" && rec.End != want {
		s.t.Errorf("after %q of a task the term ended as %q", how, rec.End)
	}
	if how == "panic" && (rec.Asked == nil || strings.Contains(rec.Asked.Reason, "tasks_test")) {
		s.t.Errorf("the reason has the stack in it: %+v", rec.Asked)
	}
}

func checkEnd(t *testing.T, how, name string, err error) {
	t.Helper()
	var e *tasks.Error
	switch how {
	case "error":
		testutil.Want(t, err, errTask)
		if !errors.As(err, &e) || e.Task != name || e.Error() != fmt.Sprintf("task %q: task failed", name) {
			t.Errorf("error %v", err)
		}
	case "stop":
		testutil.Want(t, err, nil)
	case "goexit":
		testutil.Want(t, err, tasks.ErrGoexit)
	case "panic":
		var p panicked
		if !errors.As(err, &p) || p.Task != name || p.Value != any(errTask) || !errors.Is(p.PanicError, errTask) ||
			!strings.Contains(p.Error(), "tasks_test.TestTaskStops") {
			t.Errorf("ended with %v", err)
		}
	}
}

// A stop that is asked for, in each phase: it is no error, and the tasks learn
// why.
func TestStopInEachPhase(t *testing.T) {
	reason := errors.New("enough")
	for how, stop := range map[string]func(*replica, context.CancelCauseFunc){
		"signal":  func(r *replica, _ context.CancelCauseFunc) { r.signals <- syscall.SIGTERM },
		"context": func(_ *replica, cancel context.CancelCauseFunc) { cancel(reason) },
	} {
		for phase, want := range map[string]struct {
			at    string // the start or the end after which it comes
			story string
		}{
			"starting always":    {"a1", "a1, -a1, a1."},
			"starting all":       {"a2", "a1, a2, " + alwaysStop},
			"settling":           {"a2", "a1, a2, " + alwaysStop},
			"following begins":   {"f1", "a1, a2, f1, -f1, f1., " + alwaysStop},
			"following":          {"f2", "a1, a2, f1, f2, " + followingStops + ", " + alwaysStop},
			"starting to lead":   {"l1", "a1, a2, l1, -l1, l1., release, " + alwaysStop},
			"leading":            {"l2", "a1, a2, l1, l2, " + leadingStops + ", " + alwaysStop},
			"stopping by itself": {"", "a1, a2, l1, l2, l2!, -l1, l1., release, " + alwaysStop},
		} {
			t.Run(how+" while "+phase, func(t *testing.T) {
				onWorld(t, func(t *testing.T, s *world) {
					if strings.HasPrefix(phase, "following") || phase == "settling" {
						s.rival()
					}
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					acts := map[string]act{}
					r := s.replica("a")
					r.started = func(task string) {
						switch {
						case task != want.at:
						case phase == "settling":
							time.AfterFunc(drain/2, func() { stop(r, cancel) })
						default:
							stop(r, cancel)
							if phase == "following begins" || strings.HasPrefix(phase, "starting") {
								time.Sleep(drain) // a start takes its time: the stop is seen
							}
						}
					}
					if phase == "stopping by itself" {
						acts["l2"] = act{after: lease, how: func() error { stop(r, cancel); return tasks.ErrStop }}
					}
					testutil.Want(t, <-r.cast(acts).run(ctx), nil)
					s.expect(want.story)
				})
			})
		}
	}
}

// Each kind is told why it is stopped.
func TestCauses(t *testing.T) {
	reason := errors.New("enough")
	causes := map[string]error{}
	onWorld(t, func(t *testing.T, s *world) {
		held := s.rival()
		r := s.replica("a")
		r.Always("signal", func(ctx context.Context) error {
			<-ctx.Done()
			causes["always"] = context.Cause(ctx)
			return context.Cause(ctx) // drops out as well as ctx.Err()
		})
		r.Following("f", func(ctx context.Context, _ *tasks.Followed) error {
			<-ctx.Done()
			causes["following"] = context.Cause(ctx)
			return context.Cause(ctx)
		})
		r.add("l1", act{})
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := r.run(ctx)
		time.Sleep(lease)
		testutil.Want(t, held.Release(t.Context()), nil)
		time.Sleep(lease)
		cancel(reason)
		testutil.Want(t, <-ended, nil)

		r = s.replica("b")
		r.Always("signal", func(ctx context.Context) error {
			<-ctx.Done()
			causes["signal"] = context.Cause(ctx)
			return ctx.Err()
		})
		ended = r.run(t.Context())
		synctest.Wait()
		r.signals <- syscall.SIGINT
		testutil.Want(t, <-ended, nil)
	})
	want := map[string]error{"always": reason, "following": tasks.ErrElected}
	var signal *tasks.SignalError
	if !errors.As(causes["signal"], &signal) || signal.Signal != syscall.SIGINT || signal.Error() != "signal: interrupt" {
		t.Errorf("cause after a signal: %v", causes["signal"])
	}
	delete(causes, "signal")
	if !maps.Equal(causes, want) {
		t.Errorf("causes %v, want %v", causes, want)
	}
}

// Errors of the stop are joined after the error that began it; a panic carries them.
func TestErrorsOfTheStopAreJoined(t *testing.T) {
	first, late := errors.New("first"), errors.New("late")
	acts := map[string]act{
		"l2": {after: lease, how: func() error { return first }},
		"l1": {late: late},
		"a1": {late: fmt.Errorf("wrapped: %w", context.Canceled)}, // the context's
	}
	onWorld(t, func(t *testing.T, s *world) {
		err := <-s.replica("a").cast(acts).run(t.Context())
		testutil.Want(t, err, first)
		if got := err.Error(); got != "task \"l2\": first\ntask \"l1\": late" {
			t.Errorf("error %q", got)
		}
	})
	onWorld(t, func(t *testing.T, s *world) {
		r := s.replica("a").cast(acts)
		r.Always("a3", func(ctx context.Context) error { <-ctx.Done(); panic("late too") })
		err := <-r.run(t.Context())
		var p panicked
		if !errors.As(err, &p) || p.Task != "a3" || p.Value != "late too" || !errors.Is(p.Err, first) || !errors.Is(p.Err, late) {
			t.Errorf("ended with %v", err)
		}
	})
}

// Tasks that are done leave the others alone. The leader goes on leading with
// nothing to do, and an error of a context that has not ended is an error.
func TestDoneTasksLeaveTheOthersAlone(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		ctx, stop := context.WithCancel(t.Context())
		ended := s.replica("a").cast(map[string]act{
			"a1": {after: lease, how: done}, "l1": {after: 2 * lease, how: done}, "l2": {after: 3 * lease, how: done},
		}).run(ctx)
		time.Sleep(10 * lease)
		testutil.Pending(t, "run", ended)
		s.expect("a1, a2, l1, l2, a1!, l1!, l2!")
		stop()
		testutil.Want(t, <-ended, nil)
		s.expect("release, -a2, a2.")
	})
	onWorld(t, func(t *testing.T, s *world) {
		canceled := func() error { return context.Canceled }
		ended := s.replica("a").cast(map[string]act{"l1": {after: lease, how: canceled}}).run(t.Context())
		testutil.Want(t, <-ended, context.Canceled)
	})
}
