// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore_test

import (
	"context"
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
