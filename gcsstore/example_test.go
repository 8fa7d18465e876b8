// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package gcsstore_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"cloud.google.com/go/storage"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/gcsstore"
)

// Each process has a client of its own. Its credentials are the same as for every other
// service. A lease of a minute costs a quarter of the default lease of 15 s.
func Example() {
	ctx := context.Background()
	objects, err := storage.NewClient(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer objects.Close()

	store, err := gcsstore.Open(ctx, objects, "my-bucket", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	client, err := tenure.New(store, &tenure.Options{LeaseDuration: time.Minute, RefreshPeriod: 5 * time.Second})
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
