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

// A new version fails as soon as it leads. The old one, which waits beside it, leads
// instead, although the new one is started again at once.
func ExampleElectionOptions_coolDown() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := memstore.New()
	start := func(version string) *tenure.Client {
		client, err := tenure.New(store, &tenure.Options{Owner: "host-of-" + version, Label: version})
		if err != nil {
			log.Fatal(err)
		}
		return client
	}
	v1, v2 := start("v1"), start("v2")
	defer v1.Close(context.Background())
	defer v2.Close(context.Background())
	options := &tenure.ElectionOptions{CoolDown: 20 * time.Second}

	bad := func(context.Context, *tenure.Lease) error { return errors.New("cannot read the new schema") }
	fmt.Println("v2:", v2.Election("scheduler", options).Run(ctx, bad))
	leads, ended := make(chan string), make(chan error, 2)
	go func() { ended <- v2.Election("scheduler", options).Run(ctx, bad) }() // its supervisor starts it again
	go func() {
		ended <- v1.Election("scheduler", options).Run(ctx, func(ctx context.Context, _ *tenure.Lease) error {
			leads <- "v1 leads"
			<-ctx.Done()
			return nil
		})
	}()
	fmt.Println(<-leads)

	history, err := v1.History(ctx, "scheduler")
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range history[1:] {
		fmt.Println(t.Label, t.End, t.Request.Reason)
	}
	stop()
	for range 2 {
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			log.Fatal(err)
		}
	}
	// Output:
	// v2: cannot read the new schema
	// v1 leads
	// v2 failed cannot read the new schema
}

// One box of a new version leads first. It is handed the lead by name, watched, and
// hands it back in the same way.
func ExampleElection_StepDown_oneBox() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := memstore.New()
	leads, ended := make(chan string), make(chan error, 2)
	campaign := func(owner, version string) *tenure.Client {
		client, err := tenure.New(store, &tenure.Options{Owner: owner, Label: version})
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			ended <- client.Election("scheduler", nil).Run(ctx, func(ctx context.Context, _ *tenure.Lease) error {
				leads <- owner + " leads with " + version
				<-ctx.Done()
				return nil
			})
		}()
		return client
	}
	old := campaign("web-1", "v1")
	defer old.Close(context.Background())
	fmt.Println(<-leads)
	box := campaign("box-1", "v2")
	defer box.Close(context.Background())

	election := old.Election("scheduler", nil)
	fmt.Println("to the box:", election.StepDown(ctx, &tenure.StepDownOptions{To: "box-1", Reason: "try v2"}))
	fmt.Println(<-leads)
	fmt.Println("and back:", election.StepDown(ctx, &tenure.StepDownOptions{To: "web-1", Reason: "v2 is slower"}))
	fmt.Println(<-leads)
	stop()
	for range 2 {
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			log.Fatal(err)
		}
	}
	// Output:
	// web-1 leads with v1
	// to the box: <nil>
	// box-1 leads with v2
	// and back: <nil>
	// web-1 leads with v1
}

// A new version is handed the lead by its label, on whichever host it runs, and hands it
// back by the name of a host.
func ExampleElection_StepDown_label() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := memstore.New()
	leads, ended := make(chan string), make(chan error, 3)
	campaign := func(owner, version string) *tenure.Client {
		client, err := tenure.New(store, &tenure.Options{Owner: owner, Label: version, LeaseDuration: 2 * time.Second})
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			ended <- client.Election("scheduler", nil).Run(ctx, func(ctx context.Context, _ *tenure.Lease) error {
				leads <- owner + " leads with " + version
				<-ctx.Done()
				return nil
			})
		}()
		return client
	}
	blue := campaign("web-1", "v1")
	defer blue.Close(context.Background())
	fmt.Println(<-leads)
	defer campaign("web-2", "v1").Close(context.Background())
	defer campaign("web-7", "v2").Close(context.Background())

	election := blue.Election("scheduler", nil)
	fmt.Println("to v2:", election.StepDown(ctx, &tenure.StepDownOptions{ToLabel: "v2", Reason: "deploy v2"}))
	fmt.Println(<-leads)
	fmt.Println("back:", election.StepDown(ctx, &tenure.StepDownOptions{To: "web-1", Reason: "v2 is slower"}))
	fmt.Println(<-leads)
	stop()
	for range 3 {
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			log.Fatal(err)
		}
	}
	// Output:
	// web-1 leads with v1
	// to v2: <nil>
	// web-7 leads with v2
	// back: <nil>
	// web-1 leads with v1
}

// Blue and green: the new version has the higher priority, and asks for the lead by
// itself. It fails, and its cool-down has it ask no more: the old version leads on.
func ExampleElectionOptions_blueGreen() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := memstore.New()
	leads, ended := make(chan string), make(chan error, 3)
	campaign := func(version string, priority int, work func(context.Context) error) *tenure.Client {
		client, err := tenure.New(store, &tenure.Options{Owner: "host-of-" + version, Label: version, LeaseDuration: time.Second})
		if err != nil {
			log.Fatal(err)
		}
		election := client.Election("scheduler", &tenure.ElectionOptions{
			Priority: priority, CoolDown: 20 * time.Second, CoolDownMax: 20 * time.Second,
		})
		go func() {
			for { // a supervisor starts it again when it fails
				err := election.Run(ctx, func(ctx context.Context, _ *tenure.Lease) error {
					leads <- version
					return work(ctx)
				})
				if ctx.Err() != nil {
					ended <- err
					return
				}
			}
		}()
		return client
	}
	good := func(ctx context.Context) error { <-ctx.Done(); return nil }
	bad := func(context.Context) error { return errors.New("cannot read the new schema") }
	blue := campaign("v1", 1, good)
	defer blue.Close(context.Background())
	fmt.Println(<-leads, "leads")
	green := campaign("v2", 2, bad)
	defer green.Close(context.Background())
	fmt.Println(<-leads, "leads") // when v1 has led for a lease
	fmt.Println(<-leads, "leads")

	select {
	case version := <-leads:
		fmt.Println(version, "leads")
	case <-time.After(3 * time.Second): // three leases: v2 would have asked
		fmt.Println("and leads on")
	}
	history, err := blue.History(ctx, "scheduler")
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range history[1:] {
		fmt.Println(t.Label, t.End)
	}
	stop()
	for range 2 {
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			log.Fatal(err)
		}
	}
	// Output:
	// v1 leads
	// v2 leads
	// v1 leads
	// and leads on
	// v2 failed
	// v1 handed_over
}
