// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuregocron_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/tenurelock/tenure"
	tenuregocron "github.com/tenurelock/tenure/adapters/gocron"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/once"
)

func report(context.Context, uint64) error { return nil }

// Each second of the schedule is run by one of the processes that have this job.
func Example() {
	ctx := context.Background()
	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	schedule := tenuregocron.Period(time.Second)
	locker, err := tenuregocron.NewLocker(client, schedule, nil)
	if err != nil {
		log.Fatal(err)
	}
	ran := make(chan int64, 100)
	task := locker.Task("report", func(ctx context.Context, turn *once.Turn) error {
		ran <- turn.Slot()
		return report(ctx, turn.Token()) // ctx ends with the lease
	})
	scheduler, err := gocron.NewScheduler()
	if err != nil {
		log.Fatal(err)
	}
	_, err = scheduler.NewJob(gocron.DurationJob(time.Second), gocron.NewTask(task),
		gocron.WithName("report"), gocron.WithDistributedJobLocker(locker),
		gocron.WithStartAt(gocron.WithStartDateTime(schedule.Next(time.Now()))))
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	first := <-ran
	second := <-ran
	fmt.Println("each once:", first != second)
	if err := scheduler.Shutdown(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// each once: true
}

// All jobs run in the leader.
func ExampleElector() {
	ctx, stop := context.WithCancel(context.Background())
	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	elector := tenuregocron.NewElector(client.Election("scheduler", nil))
	ended := make(chan error, 1)
	go func() { ended <- elector.Run(ctx) }()

	ran := make(chan uint64, 100)
	task := elector.Task(func(ctx context.Context, lease *tenure.Lease) error {
		ran <- lease.Token()
		return report(ctx, lease.Token()) // ctx ends with the lease
	})
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		log.Fatal(err)
	}
	if _, err = scheduler.NewJob(gocron.DurationJob(50*time.Millisecond), gocron.NewTask(task)); err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	fmt.Println("token", <-ran)

	if err := scheduler.Shutdown(); err != nil {
		log.Fatal(err)
	}
	stop()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	// Output:
	// token 1
}
