// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package s3store_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/s3store"
)

// Each process has a client of its own. The configuration is that of
// config.LoadDefaultConfig, as for every other service. A lease of a minute costs a quarter of
// the default lease of 15 s.
func Example() {
	ctx := context.Background()
	var cfg aws.Config // of config.LoadDefaultConfig(ctx)

	store, err := s3store.Open(ctx, s3.NewFromConfig(cfg), "my-bucket", nil)
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

// Of another server than Amazon's the client needs the endpoint. Most have no name for each
// bucket.
func ExampleOpen_endpoint() {
	ctx := context.Background()
	var cfg aws.Config // of config.LoadDefaultConfig(ctx)

	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.BaseEndpoint = aws.String("https://ACCOUNT.r2.cloudflarestorage.com")
		o.Region = "auto"
		o.UsePathStyle = true
	})
	store, err := s3store.Open(ctx, client, "my-bucket", &s3store.Options{Prefix: "locks/"})
	if err != nil {
		log.Fatal(err) // the server does not keep the conditions of writes, for example
	}
	defer store.Close()
}
