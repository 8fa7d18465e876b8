// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/sqlitestore"
)

// Each process opens the file and has a client of its own.
func Example() {
	folder, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "locks.db")
	ctx := context.Background()

	store, err := sqlitestore.Open(file, nil)
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
		if err := lease.Check(); err != nil {
			return err // ask before every side effect
		}
		fmt.Println("writing the report under token", lease.Token())
		return nil
	})
	fmt.Println(err)
	// Output:
	// writing the report under token 1
	// <nil>
}

// The lock is in the program's own database, and each transaction of the leader
// is refused once another has begun.
func ExampleGuard() {
	folder, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	ctx := context.Background()

	db, err := sql.Open("sqlite", filepath.Join(folder, "app.db")+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(1000)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE TABLE payouts (account TEXT, cents INTEGER)"); err != nil {
		log.Fatal(err)
	}
	store, err := sqlitestore.New(db, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	client, err := tenure.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	pay := func(ctx context.Context, token uint64) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := sqlitestore.Guard(ctx, tx, "payouts", token); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO payouts VALUES ('alice', 1250)"); err != nil {
			return err
		}
		return tx.Commit()
	}
	var token uint64
	err = client.Run(ctx, "payouts", nil, func(ctx context.Context, lease *tenure.Lease) error {
		token = lease.Token()
		return pay(ctx, token)
	})
	fmt.Println("the holder:", err)
	fmt.Println("too late:", pay(ctx, token))
	// Output:
	// the holder: <nil>
	// too late: guard "payouts": token 1 is stale: its term has ended, the lock is released under token 1; stop
}
