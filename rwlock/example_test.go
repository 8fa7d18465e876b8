// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/fence"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/rwlock"
)

// Any number of processes read at a time; while one writes, no process reads.
func Example() {
	ctx := context.Background()
	client, err := tenure.New(memstore.New(), &tenure.Options{Owner: "web-1"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	rebuild := func(context.Context) error { return nil }
	report := func(context.Context) error { return nil }

	catalog, err := rwlock.New(client, "catalog", nil)
	if err != nil {
		log.Fatal(err)
	}
	err = catalog.RunWrite(ctx, nil, func(ctx context.Context, lease *rwlock.Lease) error {
		return rebuild(ctx) // no other process is here
	})
	if err != nil {
		log.Fatal(err)
	}
	err = catalog.RunRead(ctx, nil, func(ctx context.Context, lease *rwlock.Lease) error {
		if last, ok := lease.LastWriter(); ok && last.End != tenure.EndReleased {
			return fmt.Errorf("%s has written half of it, perhaps: %s", last.Owner, last.Ended())
		}
		return report(ctx) // others may read too, and no process writes
	})
	fmt.Println(err)
	// Output: <nil>
}

// A reader shows its token to the fence before it reads. A late write of the writer before
// it is refused from then on.
func ExampleLease_Token() {
	ctx := context.Background()
	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	catalog, err := rwlock.New(client, "catalog", nil)
	if err != nil {
		log.Fatal(err)
	}
	gate := fence.NewGate(nil) // at the resource
	write := func(lease *rwlock.Lease) error {
		put := func(context.Context) error {
			fmt.Println("written under token", lease.Token())
			return nil
		}
		return gate.Do(ctx, lease.Name(), lease.Token(), put)
	}

	former, err := catalog.AcquireWrite(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	_ = write(former)
	if err := former.Release(ctx); err != nil {
		log.Fatal(err)
	}
	err = catalog.RunRead(ctx, nil, func(ctx context.Context, lease *rwlock.Lease) error {
		show := func(context.Context) error { return nil }
		if err := gate.Do(ctx, lease.Name(), lease.Token(), show); err != nil {
			return err // another writer has come
		}
		fmt.Println("reads under token", lease.Token())
		fmt.Println(errors.Is(write(former), fence.ErrStale)) // it comes late
		return lease.Check()
	})
	fmt.Println(err)
	// Output:
	// written under token 2
	// reads under token 3
	// true
	// <nil>
}

// A writer reads what it has written, with no other writer in between.
func ExampleLease_Downgrade() {
	ctx := context.Background()
	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	catalog, err := rwlock.New(client, "catalog", nil)
	if err != nil {
		log.Fatal(err)
	}
	err = catalog.RunWrite(ctx, nil, func(ctx context.Context, lease *rwlock.Lease) error {
		fmt.Println("writes:", lease.Writing(), lease.Token())
		if err := lease.Downgrade(ctx); err != nil {
			return err
		}
		fmt.Println("writes:", lease.Writing(), lease.Token()) // a fence is shown this one
		return lease.Check()
	})
	fmt.Println(err)
	// Output:
	// writes: true 2
	// writes: false 3
	// <nil>
}
