// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore_test

import (
	"context"
	"fmt"
	"log"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/etcdstore"
)

// Each process has a store and a client of its own.
func Example() {
	ctx := context.Background()
	store, err := etcdstore.Open(ctx, clientv3.Config{
		Endpoints: []string{"10.0.0.1:2379", "10.0.0.2:2379", "10.0.0.3:2379"},
	}, nil)
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
