// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclientgo_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"k8s.io/client-go/tools/leaderelection"

	"github.com/tenurelock/tenure"
	tenureclientgo "github.com/tenurelock/tenure/adapters/clientgo"
	"github.com/tenurelock/tenure/memstore"
)

func Example() {
	ctx, stop := context.WithCancel(context.Background())
	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	lock := tenureclientgo.NewLock(client, "operator", nil)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, ReleaseOnCancel: true,
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: lock.Leading(func(ctx context.Context, lease *tenure.Lease) {
				fmt.Println("leads with token", lease.Token())
				stop()
				<-ctx.Done() // ends at the deadline of the lease
			}),
			OnStoppedLeading: func() { fmt.Println("has stopped") },
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	bound, free := lock.Bind(ctx)
	elector.Run(bound) // ends at the deadline of the lease, too
	free()
	// Output:
	// leads with token 1
	// has stopped
}
