// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/once"
)

// Two hosts start the report of 03:00; one of them runs it.
func ExampleOnce() {
	ctx := context.Background()
	store := memstore.New()
	report := func(_ context.Context, token uint64) error {
		fmt.Println("the report, under token", token)
		return nil
	}
	for _, owner := range []string{"web-1", "web-2"} {
		client, err := tenure.New(store, &tenure.Options{Owner: owner})
		if err != nil {
			log.Fatal(err)
		}
		defer client.Close(ctx)

		scheduled := time.Date(2026, 11, 23, 3, 0, 0, 0, time.UTC)
		slot := once.Minute(scheduled) // of the schedule, not of now
		_, err = once.Once(ctx, client, "nightly", slot, nil, func(ctx context.Context, turn *once.Turn) error {
			return report(ctx, turn.Token())
		})
		switch {
		case errors.Is(err, once.ErrDone), errors.Is(err, once.ErrRunning):
			fmt.Println(owner, "leaves it to the other host")
		case err != nil:
			log.Print(err)
		}
	}
	// Output:
	// the report, under token 1
	// web-2 leaves it to the other host
}

// After an outage the missed hours are run first, the last three of them at most.
func ExampleOptions() {
	ctx := context.Background()
	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	work := func(_ context.Context, turn *once.Turn) error {
		fmt.Println("hour", turn.Slot())
		return nil
	}

	options := &once.Options{
		CatchUp:  3,
		MaxAhead: 24,
		Between: func(last, slot int64) (hours []int64, more int) {
			for h := last + 1; h < slot; h++ {
				hours = append(hours, h)
			}
			return hours, 0
		},
	}
	for _, hour := range []int64{100, 106} {
		res, err := once.Once(ctx, client, "hourly", hour, options, work)
		fmt.Println("missed:", res.Missed, err)
	}
	// Output:
	// hour 100
	// missed: [] <nil>
	// hour 103
	// hour 104
	// hour 105
	// hour 106
	// missed: [101 102] <nil>
}
