// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/robfig/cron/v3"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/tasks"
)

// nightly runs each occurrence of a crontab's line on one of the hosts that call it, until ctx
// ends.
func nightly(ctx context.Context, client *tenure.Client, line string, work once.Work) error {
	c := cron.New()
	var id cron.EntryID
	id, err := c.AddFunc(line, func() {
		scheduled := c.Entry(id).Prev // the time of the schedule, not the present one
		_, err := once.Once(ctx, client, "nightly", once.Minute(scheduled), nil, work)
		switch {
		case errors.Is(err, once.ErrDone), errors.Is(err, once.ErrRunning):
			// Another host has it.
		case err != nil:
			slog.ErrorContext(ctx, "nightly", "error", err)
		}
	})
	if err != nil {
		return err
	}
	c.Start()
	<-ctx.Done()
	<-c.Stop().Done() // waits for the job
	return nil
}

// leading runs a whole crontab in the leader: its jobs end before the next leader's begin.
func leading(ctx context.Context, client *tenure.Client, line string, job func(context.Context, *tenure.Lease)) error {
	return client.Election("crontab", nil).Run(ctx, func(ctx context.Context, lease *tenure.Lease) error {
		c := cron.New()
		if _, err := c.AddFunc(line, func() { job(ctx, lease) }); err != nil {
			return err
		}
		c.Start()
		<-ctx.Done()      // the lease ends, or ctx
		<-c.Stop().Done() // the lock is released when the jobs have returned
		return nil
	})
}

// periodic runs a manager of periodic tasks in the leader, and nowhere else.
func periodic(client *tenure.Client, options asynq.PeriodicTaskManagerOpts) *tasks.Group {
	group := tasks.New(client.Election("periodic-tasks", nil), nil)
	group.Leading("periodic tasks", func(ctx context.Context, _ *tenure.Lease) error {
		manager, err := asynq.NewPeriodicTaskManager(options)
		if err != nil {
			return err
		}
		if err := manager.Start(); err != nil {
			return err
		}
		<-ctx.Done()
		manager.Shutdown()
		return nil
	})
	return group
}

func Example_cron() {
	ctx, stop := context.WithCancel(context.Background())
	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	err = leading(ctx, client, "@every 1s", func(_ context.Context, lease *tenure.Lease) {
		fmt.Println("token", lease.Token())
		stop()
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// token 1
}

func Example_asynq() {
	ctx, stop := context.WithCancel(context.Background())
	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	redis, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer redis.Close()

	group := periodic(client, asynq.PeriodicTaskManagerOpts{
		RedisConnOpt:               asynq.RedisClientOpt{Addr: redis.Addr()},
		PeriodicTaskConfigProvider: every("1s", func() { stop() }),
		SchedulerOpts:              &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel},
	})
	if err := group.Run(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("has ended")
	// Output:
	// has ended
}

// provider has one task, and tells when the manager has asked for it.
type provider struct {
	period string
	asked  func()
}

func every(period string, asked func()) provider { return provider{period, asked} }

func (p provider) GetConfigs() ([]*asynq.PeriodicTaskConfig, error) {
	p.asked()
	return []*asynq.PeriodicTaskConfig{{Cronspec: "@every " + p.period, Task: asynq.NewTask("report", nil)}}, nil
}
