// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/sqlitestore"
)

func Example() {
	folder, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)

	// Each process opens the file; here two handles stand for two processes.
	file := filepath.Join(folder, "locks.db")
	one, err := sqlitestore.Open(file, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer one.Close()
	two, err := sqlitestore.Open(file, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer two.Close()

	// Programs hand the store to tenure.New. This is what goes on below.
	ctx := context.Background()
	lock := driver.Record{Key: "reports", Version: "v1", Beat: "b1", Owner: "web-1", Lease: 15 * time.Second, State: driver.Held}
	now, _, err := one.Claim(ctx, lock)
	fmt.Println(now.Token, err)

	lock.Version, lock.Beat, lock.Owner = "v2", "b2", "web-2"
	_, _, err = two.Claim(ctx, lock)
	fmt.Println(err)
	// Output:
	// 1 <nil>
	// conflict on "reports": held by "web-1" under token 1
}
