// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package mysqlstore_test

import (
	"context"
	"database/sql"
	"log"

	"github.com/go-sql-driver/mysql"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/mysqlstore"
)

// Each process has a store and a client of its own. The holder's own writes are made while it is the holder, or
// not at all.
func Example() {
	ctx := context.Background()
	config, err := mysql.ParseDSN("app:password@tcp(db-1:3306)/app?tls=true")
	if err != nil {
		log.Fatal(err)
	}
	store, err := mysqlstore.Open(ctx, config, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	client, err := tenure.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	db, err := sql.Open("mysql", config.FormatDSN())
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	err = client.Run(ctx, "reports", nil, func(ctx context.Context, lease *tenure.Lease) error {
		// One process at a time is here. ctx ends when it must stop.
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := store.Guard(ctx, tx, "reports", lease.Token()); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO report (text) VALUES ('...')"); err != nil {
			return err
		}
		return tx.Commit()
	})
	if err != nil {
		log.Fatal(err)
	}
}
