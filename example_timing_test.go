// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
)

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
