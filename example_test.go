// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strconv"
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

// Each write carries the token, and the resource rejects a token lower than the highest
// that it has seen. So a holder that was paused between its check and its write changes
// nothing.
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

// With ProgressTimeout, heartbeats go on only while the work makes progress: stuck work
// loses the lock although its process lives.
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

// A checkpoint in the record lets the next holder go on where this one ended, however
// it ended.
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

func ExampleClient_OpenSession() {
	ctx := context.Background()
	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	session, err := client.OpenSession(ctx, nil) // one heartbeat from here on
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close(ctx) // ends the work, waits for it, frees all locks by one write
	for _, account := range []string{"account/1", "account/2", "account/3"} {
		lease, err := session.Acquire(ctx, account, nil) // a Lease like any other
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			<-lease.Context().Done() // the work goes here; it returns when its context ends
			_ = lease.Release(ctx)
		}()
	}
	fmt.Println(session.Leases(), "locks, one heartbeat")

	// Output:
	// 3 locks, one heartbeat
}

func ExampleSession_RunAll() {
	ctx := context.Background()
	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	session, err := client.OpenSession(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close(ctx)

	err = session.RunAll(ctx, []string{"account/7", "account/3"}, nil, func(ctx context.Context, set *tenure.LeaseSet) error {
		for _, lease := range set.Leases() { // hand each token to what its lock protects
			fmt.Println(lease.Name(), "token", lease.Token())
		}
		return set.Check() // before each side effect: both are held, or nothing is done
	})
	if err != nil {
		log.Fatal(err)
	}

	// Output:
	// account/3 token 1
	// account/7 token 1
}

// One client serves a leader that is replaced soon, and a job that may be cut off from the
// store for a while.
func ExampleTiming() {
	ctx := context.Background()
	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close(ctx)

	leader := client.Election("leader", &tenure.ElectionOptions{
		Timing: tenure.Timing{LeaseDuration: 5 * time.Second},
	})
	job, err := client.Acquire(ctx, "job", &tenure.AcquireOptions{
		Timing: tenure.Timing{LeaseDuration: 5 * time.Minute},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = job.Release(ctx) }()
	fmt.Println("a heartbeat of the job each", job.Timing().HeartbeatPeriod)

	err = leader.Run(ctx, func(_ context.Context, lease *tenure.Lease) error {
		fmt.Println("one of the leader each", lease.Timing().HeartbeatPeriod)
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// a heartbeat of the job each 1m0s
	// one of the leader each 1s
}

// An operator asks a holder to stop. The holder learns why from the cause of its
// context, and the history shows both.
func ExampleClient_StepDown() {
	ctx := context.Background()
	store := memstore.New()
	web7, err := tenure.New(store, &tenure.Options{Owner: "web-7", LeaseDuration: 5 * time.Second})
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

	// It returns when the holder has stopped.
	err = operator.StepDown(ctx, "reports", &tenure.StepDownOptions{Reason: "maintenance of web-7"})
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

// Events are the basis of monitoring. They come one at a time, and the protocol does
// not wait for the callback.
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

// A worker notes its progress in the record of its lock. When it dies, its successor
// reads the note, and goes on. Work after the last note is done twice, so each step
// must tolerate that: here shipping an order.
func ExampleLease_Previous() {
	ctx := context.Background()
	store := memstore.New()
	errKilled := errors.New("killed")

	// work ships the orders up to 4. It is killed right after the order killedAt, before
	// it can record it.
	work := func(owner string, killedAt int) error {
		client, err := tenure.New(store, &tenure.Options{Owner: owner, LeaseDuration: 2 * time.Second})
		if err != nil {
			return err
		}
		defer client.Close(ctx)
		return client.Run(ctx, "orders", nil, func(ctx context.Context, lease *tenure.Lease) error {
			done := 0
			if previous, ok := lease.Previous(); ok {
				done, _ = strconv.Atoi(string(previous.Data))
				fmt.Printf("%s: the term of %s has %s, with %d orders shipped\n", owner, previous.Owner, previous.End, done)
			}
			for order := done + 1; order <= 4; order++ {
				if err := lease.Check(); err != nil {
					return err
				}
				fmt.Println(owner, "ships order", order)
				if order == killedAt {
					// Like the crash of a process, this releases nothing.
					soon, stop := context.WithTimeout(context.Background(), time.Millisecond)
					defer stop()
					_ = client.Close(soon)
					return errKilled
				}
				if err := lease.SetData(ctx, strconv.AppendInt(nil, int64(order), 10)); err != nil {
					return err
				}
			}
			return nil
		})
	}

	if err := work("web-7", 3); !errors.Is(err, errKilled) {
		log.Fatal(err)
	}
	if err := work("web-8", 0); err != nil { // waits until the lease has run out
		log.Fatal(err)
	}
	// Output:
	// web-7 ships order 1
	// web-7 ships order 2
	// web-7 ships order 3
	// web-8: the term of web-7 has expired, with 2 orders shipped
	// web-8 ships order 3
	// web-8 ships order 4
}

// A new version fails as soon as it leads. The old version, which also waits, leads
// instead, although the new one is restarted at once.
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

// One box of a new version leads first. An operator hands it the lead by name, watches
// it, and hands the lead back in the same way.
func ExampleElection_StepDown_oneBox() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := memstore.New()
	leads, ended := make(chan string), make(chan error, 2)
	campaign := func(owner, version string) *tenure.Client {
		client, err := tenure.New(store, &tenure.Options{Owner: owner, Label: version, LeaseDuration: 5 * time.Second})
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

// An operator hands the lead to a new version by its label, on whichever host it runs,
// and back by the name of a host.
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
// itself. It fails, and because of its cool-down it asks no more: the old version leads
// on.
func ExampleElectionOptions_blueGreen() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := memstore.New()
	leads, ended := make(chan string), make(chan error, 3)
	campaign := func(version string, priority int, work func(context.Context) error) *tenure.Client {
		client, err := tenure.New(store, &tenure.Options{Owner: "host-of-" + version, Label: version, LeaseDuration: 2 * time.Second})
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
	case <-time.After(4 * time.Second): // two leases: v2 would have asked
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
