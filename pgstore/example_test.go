// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/pgstore"
)

// Each process has a store and a client of its own.
func Example() {
	ctx := context.Background()
	store, err := pgstore.Open(ctx, "postgres://app@db-1,db-2/app?sslmode=verify-full", nil)
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

// The holder's own writes are made while it is the holder, or not at all.
func ExampleStore_Guard() {
	ctx := context.Background()
	config, err := pgxpool.ParseConfig("postgres://app@db/app")
	if err != nil {
		log.Fatal(err)
	}
	pgstore.Configure(config)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store, err := pgstore.New(pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	client, err := tenure.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	err = client.Run(ctx, "reports", nil, func(ctx context.Context, lease *tenure.Lease) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := store.Guard(ctx, tx, "reports", lease.Token()); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "INSERT INTO report (text) VALUES ('...')")
			return err
		})
	})
	if err != nil {
		log.Fatal(err)
	}
}
