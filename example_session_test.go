// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"fmt"
	"log"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
)

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
