// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strconv"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
)

// A worker notes in the record of its lock how far it came. When it dies, its
// successor reads that there, and goes on. What was done after the last note is
// done twice, so each step must stand that: here shipping an order.
func ExampleLease_Previous() {
	ctx := context.Background()
	store := memstore.New()
	errKilled := errors.New("killed")

	// work ships the orders up to 4. It is killed right after the one that is
	// named, before it can say so.
	work := func(owner string, killedAt int) error {
		client, err := tenure.New(store, &tenure.Options{Owner: owner, LeaseDuration: 2 * time.Second})
		if err != nil {
			return err
		}
		defer client.Close(ctx)
		return client.Run(ctx, "orders", nil, func(ctx context.Context, lease *tenure.Lease) error {
			done := 0
			if previous, ok := lease.Previous(); ok {
				done, _ = strconv.Atoi(string(previous.Data))
				fmt.Printf("%s: the tenure of %s has %s, with %d orders shipped\n", owner, previous.Owner, previous.End, done)
			}
			for order := done + 1; order <= 4; order++ {
				if err := lease.Check(); err != nil {
					return err
				}
				fmt.Println(owner, "ships order", order)
				if order == killedAt {
					kill(client)
					return errKilled
				}
				if err := lease.SetData(ctx, strconv.AppendInt(nil, int64(order), 10)); err != nil {
					return err
				}
			}
			return nil
		})
	}

	if err := work("web-7", 3); !errors.Is(err, errKilled) {
		log.Fatal(err)
	}
	if err := work("web-8", 0); err != nil { // waits until the lease has run out
		log.Fatal(err)
	}
	// Output:
	// web-7 ships order 1
	// web-7 ships order 2
	// web-7 ships order 3
	// web-8: the tenure of web-7 has expired, with 2 orders shipped
	// web-8 ships order 3
	// web-8 ships order 4
}

// kill leaves behind what the death of a process does: nothing is released, and
// no heartbeat comes any more.
func kill(client *tenure.Client) {
	soon, stop := context.WithTimeout(context.Background(), time.Millisecond)
	defer stop()
	_ = client.Close(soon)
}
