// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/shard"
)

// A new version is given a small part of the work first, by the weight of its worker,
// and half of it when that went well.
func ExampleOptions_weightOfTheNewVersion() {
	store := memstore.New()
	start := func(owner, version string, weight float64) (group *shard.Group, stop func()) {
		client, err := tenure.New(store, &tenure.Options{Owner: owner, Label: version, LeaseDuration: time.Second})
		if err != nil {
			log.Fatal(err)
		}
		if group, err = shard.New(client, "orders", &shard.Options{Partitions: 10, Weight: weight}); err != nil {
			log.Fatal(err)
		}
		ctx, end := context.WithCancel(context.Background())
		left := make(chan error, 1)
		go func() {
			left <- group.Run(ctx, func(ctx context.Context, _ *shard.Partition) error {
				<-ctx.Done() // the work on the partition goes here
				return nil
			})
		}()
		return group, func() {
			end()
			if err := <-left; err != nil {
				log.Fatal(err)
			}
			_ = client.Close(context.Background())
		}
	}
	settled := func(group *shard.Group, workers int) {
		looks := time.NewTicker(20 * time.Millisecond)
		defer looks.Stop()
		for range looks.C {
			status, err := group.Status(context.Background())
			if err != nil || status.Workers != workers || status.Owned != 10 || status.Moving > 0 {
				continue
			}
			for _, m := range status.Members {
				if m.State == shard.MemberAlive {
					fmt.Printf("%s with weight %v has %d of 10\n", m.Label, m.Weight, m.Owned)
				}
			}
			return
		}
	}
	old, stopOld := start("worker-1", "v1", 1)
	settled(old, 1)
	_, stopBox := start("box-1", "v2", 0.25)
	settled(old, 2)
	stopBox()
	_, stopBox = start("box-1", "v2", 1) // it is watched no more
	settled(old, 2)
	stopBox()
	stopOld()
	// Output:
	// v1 with weight 1 has 10 of 10
	// v1 with weight 1 has 8 of 10
	// v2 with weight 0.25 has 2 of 10
	// v1 with weight 1 has 5 of 10
	// v2 with weight 1 has 5 of 10
}
