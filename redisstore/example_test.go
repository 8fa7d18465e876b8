// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package redisstore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/rueidis"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/redisstore"
)

// Each process has a store and a client of its own. Three Sentinels promote one of two replicas.
func Example() {
	ctx := context.Background()
	store, err := redisstore.Open(ctx, rueidis.ClientOption{
		InitAddress: []string{"10.0.0.1:26379", "10.0.0.2:26379", "10.0.0.3:26379"},
		Sentinel:    rueidis.SentinelOption{MasterSet: "locks"},
	}, &redisstore.Options{Replicas: 2, Quorum: true})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	client, err := tenure.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	err = client.Run(ctx, "reports", nil, func(ctx context.Context, lease *tenure.Lease) error {
		// One process at a time is here. ctx ends when it must stop.
		fmt.Println("writing the report under token", lease.Token())
		return lease.Check()
	})
	if err != nil {
		log.Fatal(err)
	}
}
