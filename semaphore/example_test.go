// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/fence"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/semaphore"
)

// Two may render at once. The third one waits until a slot is free.
func Example() {
	ctx := context.Background()
	client, err := tenure.New(memstore.New(), &tenure.Options{Owner: "web-1"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	renders, err := semaphore.New(client, "renders", 2, nil)
	if err != nil {
		log.Fatal(err)
	}

	first, err := renders.Acquire(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	second, err := renders.Acquire(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("slots 0 and 1 are taken:", first.Slot()+second.Slot() == 1)

	_, err = renders.TryAcquire(ctx, nil)
	fmt.Println("full:", errors.Is(err, semaphore.ErrFull))

	time.AfterFunc(10*time.Millisecond, func() { _ = first.Release(ctx) })
	err = renders.Run(ctx, nil, func(_ context.Context, lease *semaphore.Lease) error {
		fmt.Println("the third one has the first one's slot:", lease.Slot() == first.Slot())
		return lease.Check()
	})
	fmt.Println(errors.Join(err, second.Release(ctx)))
	// Output:
	// slots 0 and 1 are taken: true
	// full: true
	// the third one has the first one's slot: true
	// <nil>
}

// The number of slots is changed while they are in use, by any process.
func ExampleSemaphore_Resize() {
	ctx := context.Background()
	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	workers, err := semaphore.New(client, "workers", 1, nil)
	if err != nil {
		log.Fatal(err)
	}
	lease, err := workers.Acquire(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}

	if err := workers.Resize(ctx, 2, nil); err != nil {
		log.Fatal(err)
	}
	other, err := workers.Acquire(ctx, &tenure.AcquireOptions{WatchRequests: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("slot", other.Slot(), "of", other.Slots())

	// One slot again: its holder is asked to stop.
	context.AfterFunc(other.Context(), func() {
		fmt.Println(errors.Is(context.Cause(other.Context()), tenure.ErrSteppedDown))
		_ = other.Release(ctx)
	})
	err = workers.Resize(ctx, 1, &semaphore.ResizeOptions{StepDown: true, Reason: "the night is over"})
	fmt.Println(errors.Join(err, lease.Release(ctx)))
	// Output:
	// slot 1 of 2
	// true
	// <nil>
}

// Each slot has a resource of its own, which its token fences.
func ExampleLease() {
	ctx := context.Background()
	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	imports, err := semaphore.New(client, "imports", 1, nil)
	if err != nil {
		log.Fatal(err)
	}
	gate := fence.NewGate(nil) // at the resource
	write := func(lease *semaphore.Lease) error {
		put := func(context.Context) error {
			fmt.Println("written to", lease.Name(), "under token", lease.Token())
			return nil
		}
		return gate.Do(ctx, lease.Name(), lease.Token(), put)
	}

	former, err := imports.Acquire(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	_ = write(former)
	if err := former.Release(ctx); err != nil {
		log.Fatal(err)
	}
	lease, err := imports.Acquire(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	_ = write(lease)
	fmt.Println(errors.Is(write(former), fence.ErrStale), lease.Release(ctx))
	// Output:
	// written to imports:slot/0 under token 1
	// written to imports:slot/0 under token 2
	// true <nil>
}

// Of three slots this process has one while it works.
func ExampleSemaphore_Run() {
	ctx := context.Background()
	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	render := func(ctx context.Context, slot int) error {
		fmt.Println("a slot below three:", slot < 3, ctx.Err())
		return nil
	}

	renders, err := semaphore.New(client, "renders", 3, nil)
	if err != nil {
		log.Fatal(err)
	}
	err = renders.Run(ctx, nil, func(ctx context.Context, lease *semaphore.Lease) error {
		return render(ctx, lease.Slot()) // at most three are here, each with another slot
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// a slot below three: true <nil>
}

// A process that holds many slots holds them under a session: one heartbeat keeps
// them all alive.
func ExampleOptions() {
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
	renders, err := semaphore.New(client, "renders", 300, &semaphore.Options{Session: session})
	if err != nil {
		log.Fatal(err)
	}
	var leases []*semaphore.Lease
	for range 3 {
		lease, err := renders.Acquire(ctx, nil)
		if err != nil {
			log.Fatal(err)
		}
		leases = append(leases, lease)
	}
	fmt.Println(session.Leases(), "slots under one heartbeat")
	for _, lease := range leases {
		if err := lease.Release(ctx); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(session.Close(ctx))
	// Output:
	// 3 slots under one heartbeat
	// <nil>
}
