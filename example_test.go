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
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
)

// open stands for the store of a real program.
func open() driver.Store { return memstore.New() }

func ExampleClient_Run() {
	ctx := context.Background()
	client, err := tenure.New(open(), &tenure.Options{LeaseDuration: 15 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	err = client.Run(ctx, "reports", nil, func(ctx context.Context, lease *tenure.Lease) error {
		// Only one process is here at a time. ctx ends when it must stop.
		for _, report := range []string{"january", "february"} {
			if err := lease.Check(); err != nil {
				return err // before every side effect
			}
			fmt.Println("writing", report, "under token", lease.Token())
		}
		return ctx.Err()
	})
	fmt.Println("done:", err)
	// Output:
	// writing january under token 1
	// writing february under token 1
	// done: <nil>
}

func ExampleClient_TryAcquire() {
	ctx := context.Background()
	store := memstore.New()
	web7, _ := tenure.New(store, &tenure.Options{Owner: "web-7"})
	defer web7.Close(ctx)
	web8, _ := tenure.New(store, &tenure.Options{Owner: "web-8"})
	defer web8.Close(ctx)

	lease, err := web7.TryAcquire(ctx, "cleanup", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = lease.Release(ctx) }()

	_, err = web8.TryAcquire(ctx, "cleanup", nil)
	var held *tenure.HeldError
	if errors.As(err, &held) {
		fmt.Println("held by", held.Owner, "under token", held.Token)
	}
	// Output: held by web-7 under token 1
}

func ExampleElection() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client, err := tenure.New(open(), &tenure.Options{Owner: "web-7"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx) // also when ctx has ended
	election := client.Election("scheduler", nil)

	lead := func(ctx context.Context, lease *tenure.Lease) error {
		log.Println("leading under token", lease.Token())
		<-ctx.Done() // the leader's work goes here; it returns when ctx ends
		return nil
	}
	ended := make(chan error, 1)
	go func() { ended <- election.Run(ctx, lead) }() // after a loss it campaigns again

	for leader, err := range election.Observe(ctx) {
		if err != nil {
			log.Print(err)
		} else if !leader.None() {
			fmt.Println("led by", leader.Owner)
			break
		}
	}
	cancel()
	fmt.Println("ended:", <-ended)
	// Output:
	// led by web-7
	// ended: <nil>
}

// The token travels with each write, and the resource refuses a lower one than
// it has seen. So a holder that was paused between its check and its write
// changes nothing.
func ExampleLease_Token() {
	ctx := context.Background()
	client, err := tenure.New(open(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	highest := uint64(0) // kept by the resource, in the same transaction
	write := func(token uint64, what string) error {
		if token < highest {
			return fmt.Errorf("%s: token %d is stale, %d was seen", what, token, highest)
		}
		highest = token
		return nil
	}

	var tokens []uint64
	for range 2 {
		lease, err := client.Acquire(ctx, "ledger", nil)
		if err != nil {
			log.Fatal(err)
		}
		tokens = append(tokens, lease.Token())
		_ = lease.Release(ctx)
	}
	fmt.Println(write(tokens[1], "the second holder"))
	fmt.Println(write(tokens[0], "the first one, late"))
	// Output:
	// <nil>
	// the first one, late: token 1 is stale, 2 was seen
}

// With ProgressTimeout, heartbeats go on only while the work moves: work that
// is stuck loses the lock although its process lives.
func ExampleLease_Progress() {
	ctx := context.Background()
	client, err := tenure.New(open(), &tenure.Options{ProgressTimeout: 50 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	err = client.Run(ctx, "import", nil, func(ctx context.Context, lease *tenure.Lease) error {
		for row := range 3 {
			fmt.Println("row", row)
			lease.Progress()
		}
		<-ctx.Done() // stuck: no progress any more
		return nil
	})
	fmt.Println(err, errors.Is(err, tenure.ErrLost))
	// Output:
	// row 0
	// row 1
	// row 2
	// run "import": work made no progress true
}

// A checkpoint in the record lets the next holder go on where this one ended,
// however that was.
func ExampleLease_SetData() {
	ctx := context.Background()
	client, err := tenure.New(open(), &tenure.Options{Owner: "web-7"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	work := func(ctx context.Context, lease *tenure.Lease) error {
		if previous, ok := lease.Previous(); ok {
			fmt.Printf("%s was %s at %q\n", previous.Owner, previous.End, previous.Data)
		}
		return lease.SetData(ctx, []byte("row 4711"))
	}
	for range 2 {
		if err := client.Run(ctx, "import", nil, work); err != nil {
			log.Fatal(err)
		}
	}
	// Output: web-7 was released at "row 4711"
}
