// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureotel_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/tenureotel"
)

func Example() {
	ctx := context.Background()
	store := memstore.New()
	spans := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(spans))

	telemetry, err := tenureotel.New(&tenureotel.Options{TracerProvider: provider, Locks: []string{"reports"}})
	if err != nil {
		log.Fatal(err)
	}
	defer telemetry.Close()
	options := tenure.Options{LeaseDuration: 15 * time.Second}
	telemetry.Attach(&options) // keeps an OnEvent that is there
	client, err := tenure.New(store, &options)
	if err != nil {
		log.Fatal(err)
	}

	err = client.Run(ctx, "reports", nil, func(context.Context, *tenure.Lease) error { return nil })
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Close(ctx); err != nil { // after the last event
		log.Fatal(err)
	}
	for _, span := range spans.GetSpans() {
		fmt.Println(span.Name)
	}
	// Output:
	// tenure acquire
	// tenure hold
}
