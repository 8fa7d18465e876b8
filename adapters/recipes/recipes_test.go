// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package recipes_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/tenuretest"
)

func quiet(o *tenure.Options) { o.Logger = nil }

// TestCronOnce: each minute is run by one of three hosts, while one is cut off for a while.
func TestCronOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := tenuretest.New(t, quiet)
		ctx, stop := context.WithCancel(t.Context())
		var mu sync.Mutex
		runs := make(map[int64]int)
		var all sync.WaitGroup
		var hosts []*tenuretest.Client
		for _, name := range []string{"a", "b", "c"} {
			h := w.Client(name)
			hosts = append(hosts, h)
			all.Go(func() {
				err := nightly(ctx, h.Client, "* * * * *", func(_ context.Context, turn *once.Turn) error {
					mu.Lock()
					runs[turn.Slot()]++
					mu.Unlock()
					time.Sleep(5 * time.Second)
					return turn.Check()
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(10*time.Minute + 30*time.Second)
		hosts[0].Partition()
		time.Sleep(10 * time.Minute)
		hosts[0].Heal()
		time.Sleep(10 * time.Minute)
		stop()
		all.Wait()
		if len(runs) != 30 {
			t.Errorf("%d of 30 minutes were run", len(runs))
		}
		for slot, n := range runs {
			if n != 1 {
				t.Errorf("%v was run %d times", once.MinuteTime(slot), n)
			}
		}
	})
}

// TestCronLeading: the jobs of a leader that is cut off end before those of the next begin.
func TestCronLeading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := tenuretest.New(t, quiet)
		ctx, stop := context.WithCancel(t.Context())
		var mu sync.Mutex
		working, runs := 0, 0
		var all sync.WaitGroup
		for _, name := range []string{"a", "b"} {
			h := w.Client(name)
			all.Go(func() {
				err := leading(ctx, h.Client, "@every 20s", func(ctx context.Context, _ *tenure.Lease) {
					mu.Lock()
					working++
					runs++
					if working > 1 {
						t.Error("two jobs at a time")
					}
					mu.Unlock()
					select {
					case <-time.After(15 * time.Second):
					case <-ctx.Done():
						time.Sleep(time.Second)
					}
					mu.Lock()
					working--
					mu.Unlock()
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		for range 5 {
			first := w.Leader("crontab")
			time.Sleep(70 * time.Second) // in the middle of a job
			first.Partition()
			w.LeaderAfter(first)
			w.Heal()
		}
		time.Sleep(time.Minute)
		stop()
		all.Wait()
		if runs < 15 {
			t.Errorf("%d runs", runs)
		}
	})
}

// TestAsynq: two replicas enqueue each periodic task once, over a crash of the leader. Without
// a leader each of them enqueues it. In real time, because Redis is a server.
func TestAsynq(t *testing.T) {
	redis := miniredis.RunT(t)
	connection := asynq.RedisClientOpt{Addr: redis.Addr()}
	inspector := asynq.NewInspector(connection)
	defer inspector.Close()
	pending := func() int {
		t.Helper()
		info, err := inspector.GetQueueInfo("default")
		if err != nil {
			return 0 // there is no queue before the first task
		}
		return info.Pending
	}
	options := asynq.PeriodicTaskManagerOpts{
		RedisConnOpt: connection, PeriodicTaskConfigProvider: every("1s", func() {}),
		SchedulerOpts: &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel, HeartbeatInterval: 100 * time.Millisecond},
	}

	w := tenuretest.New(t, quiet, func(o *tenure.Options) { o.LeaseDuration = 2 * time.Second })
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		h := w.Client(name)
		all.Go(func() {
			if err := periodic(h.Client, options).Run(ctx); err != nil {
				t.Errorf("host %s: %v", name, err)
			}
		})
	}
	first := w.Leader("periodic-tasks")
	w.Until("a task is enqueued", func() bool { return pending() > 0 })
	entries, err := inspector.SchedulerEntries()
	if err != nil || len(entries) != 1 {
		t.Errorf("%d entries of schedulers, %v", len(entries), err)
	}
	first.Partition()
	w.LeaderAfter(first)
	then := pending()
	w.Until("the next leader enqueues", func() bool { return pending() > then })
	begun := time.Now()
	w.Heal()
	w.Until("some time has passed", func() bool { return time.Since(begun) > 3*time.Second })
	stop()
	all.Wait()
	ledBy := time.Since(begun)
	if n, most := pending()-then, int(ledBy/time.Second)+2; n > most {
		t.Errorf("%d tasks in %v by one leader: more than %d", n, ledBy, most)
	}

	// The same without a leader.
	redis.FlushAll()
	var managers []*asynq.PeriodicTaskManager
	for range 2 {
		m, err := asynq.NewPeriodicTaskManager(options)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
		managers = append(managers, m)
	}
	w.Until("both enqueue", func() bool {
		entries, err := inspector.SchedulerEntries()
		return err == nil && len(entries) == 2 && pending() >= 2
	})
	for _, m := range managers {
		m.Shutdown()
	}
}
