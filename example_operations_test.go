// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
)

// An operator asks a holder to stop. The holder learns why from the cause of
// its context, and both stand in the history.
func ExampleClient_StepDown() {
	ctx := context.Background()
	store := memstore.New()
	web7, err := tenure.New(store, &tenure.Options{Owner: "web-7"})
	if err != nil {
		log.Fatal(err)
	}
	defer web7.Close(ctx)
	operator, err := tenure.New(store, &tenure.Options{Owner: "operator"})
	if err != nil {
		log.Fatal(err)
	}
	defer operator.Close(ctx)

	begun, ended := make(chan struct{}), make(chan error, 1)
	options := &tenure.AcquireOptions{History: true, WatchRequests: true}
	go func() {
		ended <- web7.Run(ctx, "reports", options, func(ctx context.Context, lease *tenure.Lease) error {
			close(begun)
			<-ctx.Done() // the work
			var asked *tenure.StepDownError
			if errors.As(context.Cause(ctx), &asked) {
				fmt.Printf("stopping: %s says %q\n", asked.By, asked.Reason)
			}
			return nil
		})
	}()
	<-begun

	err = operator.StepDown(ctx, "reports", "maintenance of web-7") // returns when it has stopped
	fmt.Println("asked:", err)
	fmt.Println("web-7:", <-ended)

	history, err := operator.History(ctx, "reports")
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range history {
		fmt.Println(t.Token, t.Owner, t.End)
	}
	// Output:
	// stopping: operator says "maintenance of web-7"
	// asked: <nil>
	// web-7: <nil>
	// 1 web-7 stepped_down
}

// Events are what monitoring is made of. One event comes at a time, and the
// protocol does not wait for it.
func ExampleOptions_onEvent() {
	observe := func(metric string, seconds float64) {}   // a histogram or gauge of your metrics
	count := func(metric string) { fmt.Println(metric) } // a counter

	onEvent := func(e tenure.Event) {
		switch e.Kind {
		case tenure.EventRenewed:
			observe("heartbeat_latency_seconds", e.Took.Seconds())
			observe("heartbeat_slack_seconds", e.Remaining.Seconds())
		case tenure.EventBusy:
			observe("leader_busy_share", e.Share)
		case tenure.EventAcquired:
			count("leases_acquired_total")
			observe("acquire_wait_seconds", e.Took.Seconds())
		case tenure.EventReleased, tenure.EventEnded:
			count("leases_over_total")
		case tenure.EventJeopardy:
			count("heartbeats_in_jeopardy_total")
		case tenure.EventLost:
			count("leases_lost_total")
		case tenure.EventStopTimeout:
			count("stop_timeouts_total")
		case tenure.EventStoreError:
			count("store_errors_total")
		}
	}

	ctx := context.Background()
	client, err := tenure.New(memstore.New(), &tenure.Options{OnEvent: onEvent})
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Run(ctx, "reports", nil, func(context.Context, *tenure.Lease) error { return nil }); err != nil {
		log.Fatal(err)
	}
	_ = client.Close(ctx) // hands out the last events
	// Output:
	// leases_acquired_total
	// leases_over_total
}

// Do runs a piece of work if there is time for it, and counts it as busy.
func ExampleLease_Do() {
	ctx := context.Background()
	client, err := tenure.New(memstore.New(), &tenure.Options{LeaseDuration: 15 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	err = client.Run(ctx, "import", nil, func(ctx context.Context, lease *tenure.Lease) error {
		err := lease.Do(ctx, 2*time.Second, func(ctx context.Context) error {
			fmt.Println("a batch that takes two seconds at most")
			return nil
		})
		if err != nil {
			return err
		}
		err = lease.Do(ctx, time.Hour, func(context.Context) error {
			fmt.Println("never runs: no lease has an hour left")
			return nil
		})
		fmt.Println("too late:", errors.Is(err, tenure.ErrTooLate))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// a batch that takes two seconds at most
	// too late: true
}
