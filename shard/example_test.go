// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"fmt"
	"log"
	"strconv"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/shard"
)

// A worker counts in each of three partitions from the last checkpoint, and leaves when
// all are done.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	client, err := tenure.New(memstore.New(), &tenure.Options{Owner: "worker-1", LeaseDuration: 2 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	orders, err := shard.New(client, "orders", &shard.Options{Partitions: 3})
	if err != nil {
		log.Fatal(err)
	}

	var done sync.WaitGroup
	done.Add(3)
	go func() {
		done.Wait()
		stop() // the worker leaves
	}()
	err = orders.Run(ctx, func(ctx context.Context, p *shard.Partition) error {
		n, _ := strconv.Atoi(string(p.Last())) // 0 without a checkpoint
		for ; n < 5; n++ {
			if err := p.Check(); err != nil {
				return err
			}
			// Here the n-th order of the partition is worked on, under p.Token().
			if err := p.Checkpoint(ctx, strconv.AppendInt(nil, int64(n+1), 10)); err != nil {
				return err
			}
		}
		done.Done()
		<-ctx.Done() // the partition stays with this worker until then
		return nil
	})
	fmt.Println("left:", err)

	status, err := orders.Status(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range status.Partitions {
		st, err := client.Status(context.Background(), shard.LockName("orders", p.ID))
		fmt.Printf("partition %s: checkpoint %s under token %d, %v\n", p.ID, st.Data, p.Token, err)
	}
	// Output:
	// left: <nil>
	// partition 0: checkpoint 5 under token 1, <nil>
	// partition 1: checkpoint 5 under token 1, <nil>
	// partition 2: checkpoint 5 under token 1, <nil>
}
