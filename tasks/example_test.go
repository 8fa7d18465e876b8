// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/tasks"
)

// Two replicas of one application: the leader tells its follower where it is.
func Example() {
	ctx := context.Background()
	store := memstore.New()
	led := make(chan struct{})

	replica := func(owner string) (*tasks.Group, *tenure.Client) {
		client, err := tenure.New(store, &tenure.Options{Owner: owner})
		if err != nil {
			log.Fatal(err)
		}
		group := tasks.New(client.Election("scheduler", nil), nil)
		group.Leading("scheduler", func(ctx context.Context, lease *tenure.Lease) error {
			fmt.Println(owner, "leads under token", lease.Token())
			if err := lease.SetData(ctx, []byte("10.0.0.1:80")); err != nil {
				return err
			}
			close(led)
			<-ctx.Done() // the leader's work goes here
			fmt.Println(owner, "stops leading")
			return nil
		})
		group.Following("proxy", func(ctx context.Context, followed *tasks.Followed) error {
			for leader := range followed.Changes(ctx) {
				if !leader.None() {
					fmt.Printf("%s forwards to %s at %s\n", owner, leader.Owner, leader.Data)
					return tasks.ErrStop // of its group; a real proxy goes on
				}
			}
			return nil
		})
		return group, client
	}

	first, firstClient := replica("web-1")
	defer firstClient.Close(ctx)
	second, secondClient := replica("web-2")
	defer secondClient.Close(ctx)

	firstCtx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- first.Run(firstCtx) }()
	<-led
	fmt.Println("web-2:", second.Run(ctx))
	stop() // as a signal would
	fmt.Println("web-1:", <-ended)
	// Output:
	// web-1 leads under token 1
	// web-2 forwards to web-1 at 10.0.0.1:80
	// web-2: <nil>
	// web-1 stops leading
	// web-1: <nil>
}

// A job that one replica does for all: it stops its group when it is done. The
// others are elected then, and see in the data that nothing is left to do.
func ExampleGroup_Leading() {
	ctx := context.Background()
	store := memstore.New()
	for _, owner := range []string{"web-1", "web-2"} {
		client, err := tenure.New(store, &tenure.Options{Owner: owner})
		if err != nil {
			log.Fatal(err)
		}
		group := tasks.New(client.Election("migration", nil), nil)
		group.Leading("migrate", func(ctx context.Context, lease *tenure.Lease) error {
			if previous, ok := lease.Previous(); ok && string(previous.Data) == "done" {
				fmt.Println(owner, "finds it done")
				return tasks.ErrStop
			}
			fmt.Println(owner, "migrates")
			if err := lease.SetData(ctx, []byte("done")); err != nil {
				return err
			}
			return tasks.ErrStop
		})
		fmt.Println(group.Run(ctx))
		_ = client.Close(ctx)
	}
	// Output:
	// web-1 migrates
	// <nil>
	// web-2 finds it done
	// <nil>
}

// A task of the leader that is run each period, by whichever replica leads then.
func ExampleGroup_Every() {
	ctx := context.Background()
	client, err := tenure.New(memstore.New(), &tenure.Options{Owner: "web-1", HeartbeatPeriod: 100 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	group := tasks.New(client.Election("scheduler", nil), nil)
	group.Every("clean up", 200*time.Millisecond, nil, func(ctx context.Context, turn *once.Turn) error {
		fmt.Println("run", turn.Slot(), "under token", turn.Token(), "of", turn.Name())
		if turn.Slot() == 3 {
			return tasks.ErrStop // of its group; a real task goes on
		}
		return nil
	})
	fmt.Println(group.Run(ctx))

	ledger, err := once.ShowEvery(ctx, client, tasks.EveryName("scheduler", "clean up"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("periods begun:", ledger.Number)
	// Output:
	// run 1 under token 1 of scheduler/clean up:every
	// run 2 under token 1 of scheduler/clean up:every
	// run 3 under token 1 of scheduler/clean up:every
	// <nil>
	// periods begun: 3
}

// A leader that is not in good health makes way: its tasks are stopped, and the term
// ends as failed.
func ExampleGroup_health() {
	ctx := context.Background()
	client, err := tenure.New(memstore.New(), &tenure.Options{Owner: "web-1"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	group := tasks.New(client.Election("scheduler", &tenure.ElectionOptions{
		HealthPeriod: 10 * time.Millisecond, HealthFailures: 2,
		Health: func(_ context.Context, lease *tenure.Lease) error {
			if lease.Token() == 1 {
				return errors.New("the queue does not get shorter")
			}
			return nil
		},
	}), nil)
	group.Leading("scheduler", func(ctx context.Context, lease *tenure.Lease) error {
		if lease.Token() > 1 {
			return tasks.ErrStop // leads again, in good health
		}
		<-ctx.Done()
		fmt.Println(context.Cause(ctx))
		return ctx.Err()
	})
	fmt.Println(group.Run(ctx))

	history, err := client.History(ctx, "scheduler")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("token", history[1].Token, "ended as", history[1].End)
	// Output:
	// unhealthy 2 times in a row: the queue does not get shorter
	// <nil>
	// token 1 ended as failed
}
