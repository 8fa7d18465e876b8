// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tasks_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/tasks"
)

// Two replicas hand over: the second one's following tasks have returned before
// its leading ones start, and those start after the first one's release.
func TestHandover(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		ctx, stop := context.WithCancel(t.Context())
		a := s.replica("a").cast(nil).run(ctx)
		time.Sleep(lease)
		s.expect("a1, a2, l1, l2")
		ctxB, stopB := context.WithCancel(t.Context())
		b := s.replica("b").cast(nil).run(ctxB)
		time.Sleep(lease)
		s.expect("a1, a2, f1, f2")
		stop()
		testutil.Want(t, <-a, nil)
		time.Sleep(lease)
		story := s.story()
		before, after, ok := strings.Cut(story, "release, ")
		if !ok || before != "-l2, l2., -l1, l1., " {
			t.Errorf("before the release: %q of %q", before, story)
		}
		for _, entry := range []string{"-a2, ", "a2., ", "-a1, ", "a1., "} { // of the first one, meanwhile
			after = strings.Replace(after+", ", entry, "", 1)
			after = strings.TrimSuffix(after, ", ")
		}
		if after != followingStops+", l1, l2" {
			t.Errorf("after the release: %q", after)
		}
		stopB()
		testutil.Want(t, <-b, nil)
	})
}

// Replicas come and go, are cut off, and lose their stores, for hours: the
// world checks at every start and every release who may run. See enter.
func TestReplicasThroughFaults(t *testing.T) {
	seeds := uint64(10)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			onWorld(t, func(t *testing.T, s *world) {
				rng := rand.New(rand.NewPCG(seed, 1))
				var ended []<-chan error
				var stops []context.CancelFunc
				var replicas []*replica
				terms := 0
				for i := range 2 + rng.IntN(2) {
					r := s.replica(string(rune('a' + i)))
					r.quiet = true
					for _, name := range []string{"a1", "f1", "f2", "l1", "l2"} {
						r.add(name, act{drain: time.Millisecond})
					}
					r.Leading("count", func(ctx context.Context, l *tenure.Lease) error {
						defer r.enter("leading", "count")()
						s.mu.Lock()
						terms++
						s.mu.Unlock()
						<-ctx.Done()
						return l.Check()
					})
					ctx, stop := context.WithCancel(t.Context())
					replicas, stops, ended = append(replicas, r), append(stops, stop), append(ended, r.run(ctx))
				}
				leaders, following := 0, 0
				for range 100 {
					r := replicas[rng.IntN(len(replicas))]
					r.client.Partition()
					time.Sleep(time.Duration(rng.Int64N(int64(2 * lease))))
					r.client.Heal()
					time.Sleep(time.Duration(rng.Int64N(int64(lease))))
					s.mu.Lock()
					for k, n := range s.running {
						if n > 0 && strings.HasSuffix(k, "leading") {
							leaders++
						}
						if n > 0 && strings.HasSuffix(k, "following") {
							following++
						}
					}
					s.mu.Unlock()
				}
				for i, stop := range stops {
					stop()
					testutil.Want(t, <-ended[i], nil)
				}
				if terms < 10 || leaders < 20 || following < 50 {
					t.Errorf("%d terms; leaders at work in %d of 100 looks; followers %d", terms, leaders, following)
				}
			})
		})
	}
}

// A group runs in a bubble as it runs outside, whatever its signals are. Where they are
// caught, the whole test binary dies.
func TestInBubble(t *testing.T) {
	for name, options := range map[string]*tasks.Options{
		"no options":      nil,
		"no signal":       {Signals: []os.Signal{}},
		"a signal":        {Signals: []os.Signal{os.Interrupt}},
		"default signals": {StopTimeout: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := testutil.Must(tenure.New(memstore.New(), &tenure.Options{Clock: tenure.MonotonicClock()}))(t)
				defer client.Close(t.Context())
				group := tasks.New(client.Election(election, nil), options)
				led := false
				group.Leading("l", func(context.Context, *tenure.Lease) error {
					led = true
					return tasks.ErrStop
				})
				if err := group.Run(t.Context()); err != nil || !led {
					t.Errorf("%v; led: %v", err, led)
				}
			})
		})
	}
}

// A group without leading tasks does not campaign, and is done with its tasks.
func TestGroupWithoutLeadingTasks(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		r := s.replica("a")
		r.add("a1", act{after: 2 * lease, how: done})
		r.add("f1", act{after: 3 * lease, how: done})
		ended := r.run(t.Context())
		time.Sleep(lease)
		if s.Record(election).Key != "" {
			t.Error("it campaigns")
		}
		testutil.Want(t, <-ended, nil)
		s.expect("a1, f1, a1!, f1!")
		testutil.Want(t, <-s.replica("b").run(t.Context()), nil) // has no task at all
	})
}

// A replica alone does not start its following tasks only to stop them.
func TestFirstReplicaLeadsAtOnce(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		ctx, stop := context.WithCancel(t.Context())
		start := time.Now()
		r := s.replica("a").cast(nil)
		r.started = func(task string) {
			if task == "l1" && time.Since(start) > 0 {
				t.Errorf("leads after %v", time.Since(start))
			}
		}
		ended := r.run(ctx)
		time.Sleep(lease)
		s.expect("a1, a2, l1, l2")
		stop()
		testutil.Want(t, <-ended, nil)
	})
}

// Values of Run's context reach the tasks, and leading ones find their lease.
func TestContextValues(t *testing.T) {
	type key struct{}
	onWorld(t, func(t *testing.T, s *world) {
		r := s.replica("a")
		check := func(ctx context.Context) error {
			if ctx.Value(key{}) != "value" {
				t.Error("no value")
			}
			if _, ok := ctx.Deadline(); ok {
				t.Error("the deadline reaches the task")
			}
			return nil
		}
		r.Always("a", check)
		r.Leading("l", func(ctx context.Context, l *tenure.Lease) error {
			if from, ok := tenure.FromContext(ctx); !ok || from != l {
				t.Error("no lease")
			}
			<-ctx.Done()
			if err := l.Check(); err != nil { // it is good for a last checkpoint
				t.Error(err)
			}
			return check(ctx)
		})
		ctx, stop := context.WithTimeout(context.WithValue(t.Context(), key{}, "value"), lease)
		defer stop()
		testutil.Want(t, <-r.run(ctx), nil)
	})
}

// What is wrong with a group is an error of Run, and nothing is started.
func TestRunRefuses(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		r := s.replica("a", func(o *tasks.Options) { o.StopTimeout = -1 })
		r.Always("", func(context.Context) error { return nil })
		r.Always("x", nil)
		r.Leading("x", nil)
		r.Following("y", nil)
		want := "tasks: stop timeout -1ns must not be negative\na task has no name\ntask \"x\" has no function\n" +
			"task name \"x\" is used twice: give each task its own name\ntask \"x\" has no function\ntask \"y\" has no function"
		if err := r.Run(t.Context()); err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
		if err := tasks.New(nil, nil).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "election is nil") {
			t.Errorf("got %v", err)
		}
		s.expect("")

		r = s.replica("b")
		testutil.Want(t, r.Run(t.Context()), nil)
		if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "has run before") {
			t.Errorf("second run: %v", err)
		}
		defer func() {
			if recover() == nil {
				t.Error("adding after Run does not panic")
			}
		}()
		r.Always("late", func(context.Context) error { return nil })
	})
}
